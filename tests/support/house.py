"""`python -m tests.support.house`: holds the house against its budgets, which pyproject.toml names.

Budgets are for the whole: a change that breaks one removes something else, or says in its commit
why the number rises. The words are those that CONTRIBUTING.md replaces: their numbers only fall.
"""

import ast
import functools
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("klutchctl", "reconciler", "konnector", "bind")
_QUESTION: Final = r"(what|who|whose|which|how|where|one|it)\b"
_LAYOUT: Final = frozenset({"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"})


def sources(*folders: str) -> Iterator[Path]:
    return (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def functions(path: Path) -> Iterator[int]:
    """Yield the lines of each function of a file, from its `def` to its end."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def statements(path: Path) -> int:
    """Count the statements of a file; docstrings are none, so neither is what they take."""
    tree = ast.parse(path.read_text("utf-8"))
    found = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return found - sum(ast.get_docstring(node) is not None for node in _documented(tree))


def _documented(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node  # type: ignore[misc]


def questions(path: Path) -> int:
    """Count the docstrings that begin with a question's word, or with a word for no noun."""
    docs = map(ast.get_docstring, _documented(ast.parse(path.read_text("utf-8"))))
    return sum(re.match(_QUESTION, doc or "", re.IGNORECASE) is not None for doc in docs)


def tokens(path: Path) -> int:
    """Count the tokens of a file without comments, line ends and indentation."""
    return _read(path)[0]


def words_of(paths: Iterable[Path]) -> Counter[str]:
    """Count the words of which the names in files, and their own, are made: `tell` of `tellAll`."""
    names, words = Counter[str](), Counter[str]()
    for path in paths:
        names.update(_read(path)[1])
    for name, count in names.items():
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name):
            words[word.lower()] += count
    return words


@functools.cache
def _read(path: Path) -> tuple[int, Counter[str]]:
    """Count tokens, and names but those in f-strings: single tokens before Python 3.12."""
    count, names, depth = 0, Counter([path.stem]), 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        kind = tokenize.tok_name[token.type]
        count += kind not in _LAYOUT
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if kind == "NAME" and not depth:
            names[token.string] += 1
    return count, names


def measure() -> dict[str, int]:
    """Return every figure that has a budget, by its name there."""
    product = [*sources(*PROGRAMS)]
    folders = Counter(path.parent for path in product)
    lengths = sorted(length for path in product for length in functions(path))
    words, own = words_of([*product, *sources("tests")]), words_of(product)
    return {
        "files": len(product),
        "files of a folder": max(folders.values()),
        "lines of a file": max(map(lines, product)),
        "lines of a function, p90": lengths[len(lengths) * 9 // 10],
        "lines of README.md": lines(ROOT / "README.md"),
        "questions in docstrings": sum(map(questions, product)),
        "lines of the product": sum(map(lines, product)),
        "statements of the product": sum(map(statements, product)),
        "tokens of the product": sum(map(tokens, product)),
        "lines of tests": sum(map(lines, sources("tests"))),
        "tokens of tests": sum(map(tokens, sources("tests"))),
        **{f"word {word}": count for word, count in words.items()},
        **{f"word {word} of the product": count for word, count in own.items()},
    }


def subjects() -> Iterator[str]:
    """Yield a row for each subject: its lines, tokens, aim and anchor."""
    of = {path: name for name, one in _house()["subjects"].items() for path in one["paths"]}
    found: dict[str, Counter[str]] = {name: Counter() for name in of.values()}
    for path in sources(*PROGRAMS):
        place = str(path.relative_to(ROOT))
        longest = max((one for one in of if f"{place}/".startswith(f"{one}/")), key=len)
        found[of[longest]].update(lines=lines(path), tokens=tokens(path))
    yield f"{'subject':26}{'lines':>8}{'tokens':>9}{'aim':>8}  anchor"
    for name, one in _house()["subjects"].items():
        figures = f"{found[name]['lines']:8,}{found[name]['tokens']:9,}{one['aim']:8,}"
        yield f"{name:26}{figures}  {one['anchor']}"


def _house() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    house: dict[str, Any] = project["tool"]["klutchctl"]["house"]
    return house


def budgets() -> dict[str, int]:
    house = _house()
    return {**house["budgets"], **{f"word {word}": most for word, most in house["words"].items()}}


def main() -> int:
    """Print subjects, and each figure beside its budget; return 1 where one is more than that."""
    print(*subjects(), "", sep="\n")
    figures = measure()
    broken = 0
    for name, most in budgets().items():
        figure = figures.get(name, 0)
        broken += figure > most
        verdict = "  <- too many" if figure > most else ""
        print(f"{name:26}{figure:8,} of {most:,}{verdict}")
    for path, digest in _house()["frozen"].items():
        if not sha256((ROOT / path).read_bytes()).hexdigest().startswith(digest):
            broken += 1
            print(f"{path} is another file: figures do not compare with earlier ones")
    for line in (ROOT / "tests/stories.txt").read_text("utf-8").splitlines():
        path, *names = line.split("::")
        if names and f"def {names[-1]}(" not in (ROOT / path).read_text("utf-8"):
            broken += 1
            print(f"tests/stories.txt names no test: {line}")
    for name in ("tokens of the product", "tokens of tests"):
        print(f"{name:26}{figures[name]:8,}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
