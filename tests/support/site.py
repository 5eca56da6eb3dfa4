"""`python -m tests.support.site FOLDER`: writes the sources of the site, with generated pages.

With `search.json` of a built site, checks that the search knows each reason by its name. A line
`<!-- generated: NAME -->` of a page becomes what the code has, so no page repeats it.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import bind.__main__
import bind.osb.__main__
import konnector.__main__
from klutchctl import main as cli
from klutchctl.commands.explain import FIELDS, reasons
from klutchctl.entry import MEANINGS, PRECEDENCE
from reconciler.fleet import wording

ROOT: Final = Path(__file__).parents[2]
_MARK: Final = re.compile(r"^<!-- generated: (\S+) -->$", re.MULTILINE)
_TYPES: Final = ("const", "enum", "type")
_BOOK: Final = "oncall/reasons.md"
_REASON: Final = re.compile(r"^### (.*)\n\n((?:- .*\n)+)", re.MULTILINE)
# Instead of the theme's button: text, and for a page of a reason the place of its text.
_ACTIONS: Final = """{% set edit = page.meta.edit or page.edit_url %}
<a class="md-content__button" rel="edit" href="{{ edit }}">Edit this page</a>"""


def commands() -> Iterator[str]:
    """Yield a section for each command: what its `--help` prints."""
    names = [one.name for one in cli.COMMANDS]
    for words in ("", *names, "sandbox", "sandbox up", "sandbox down", "sandbox status"):
        yield _help(f"klutchctl {words}".strip(), cli.run, words.split())


def flags() -> Iterator[str]:
    """Yield a section for each other program."""
    programs = {"klutch-bind": bind.__main__, "klutch-osb": bind.osb.__main__}
    for name, program in {**programs, "konnector": konnector.__main__}.items():
        yield _help(name, program.run, [])


def _help(name: str, run: Callable[[list[str]], int], words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        run([*words, "--help"])
    return f"## {name}\n\n```text\n{printed.getvalue().strip()}\n```\n"


def exit_codes() -> Iterator[str]:
    """Yield the table of exit codes, and which one a command with several reasons ends with."""
    yield "| code | meaning |\n|---|---|"
    yield from (f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items())
    order = ", ".join(str(int(code)) for code in PRECEDENCE)
    yield f"\nIf several apply, the first of these is used: {order}."


def problems() -> Iterator[str]:
    yield "| problem | meaning |\n|---|---|"
    yield from (f"| `{code}` | {meaning} |" for code, meaning in wording.CODES.items())


def fleet_files() -> Iterator[str]:
    """Yield a section for each kind of document, with a table of its fields."""
    schema = json.loads((ROOT / "schemas/fleet.schema.json").read_text("utf-8"))
    definitions = schema["definitions"]
    for kind in schema["properties"]["kind"]["enum"]:
        spec = definitions[f"{kind}Document"]["properties"]["spec"]
        yield f"\n## {kind}\n\n| field | type | meaning |\n|---|---|---|"
        yield from _rows(spec, definitions, "spec")


def charts() -> Iterator[str]:
    """Yield a section for each chart: its values with their comments, and their types."""
    for name in ("bind", "konnector", "klutchctl"):
        folder = ROOT / name / "deploy/chart"
        schema = json.loads((folder / "values.schema.json").read_text("utf-8"))
        values = (folder / "values.yaml").read_text("utf-8")
        yield f"\n## {name}/deploy/chart\n\n```yaml\n{values}```"
        yield "\n| value | type |\n|---|---|"
        rows = _rows(schema, schema.get("definitions", {}), "")
        yield from (row.rsplit("|", 2)[0] + "|" for row in rows)


def _rows(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    whole = _resolved(schema, definitions)
    for name, field in whole.get("properties", {}).items():
        full = _resolved(field, definitions)
        place = f"{path}.{name}".lstrip(".")
        kind = next((_text(full[key]) for key in _TYPES if key in full), "any")
        usual = None if "properties" in full else full.get("default")
        note = "" if usual in ("", [], {}, None) else f"Default: {_text(usual)}."
        note = "Required." if name in whole.get("required", ()) else note
        yield f"| `{place}` | {kind} | {full.get('description', '')} {note} |"
        if place.count(".") < 4:
            yield from _rows(full.get("items", full), definitions, place + "[]" * ("items" in full))


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    while reference := schema.get("$ref"):
        whole = {**definitions[reference.rpartition("/")[2]], **schema}
        schema = {key: value for key, value in whole.items() if key != "$ref"}
    return schema


def _text(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return ", ".join(one if isinstance(one, str) and one else json.dumps(one) for one in values)


def page(text: str) -> str:
    """Return a page with what is generated in the place of its marks."""
    return _MARK.sub(lambda mark: "\n".join(globals()[mark[1]]()), text)


def reason_pages(book: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each page. `Off` and `off`, one file on macOS, have both texts."""
    every = list(reasons(book))
    for name in {one.name: one for one in every}:
        others, lines = {one.name for one in every} - {name}, [f"# {name}"]
        for one in (one for one in every if one.name.lower() == name.lower()):
            lines.append(f"{one.section}. In a terminal: `klutchctl explain {one.name}`")
            texts = ((field, one.fields[field]) for field in FIELDS)
            lines += (f"**{field}:** {_linked(text, others)}" for field, text in texts)
        yield name, "\n\n".join(lines)


def _linked(text: str, others: Collection[str]) -> str:
    """Return a text for a page in another folder, with links to the reasons that it names."""
    text = re.sub(r"\]\((#?)", lambda at: f"](../{_BOOK if at[1] else 'oncall/'}{at[1]}", text)
    named = re.compile(r"`[^`]*`|\[[^]]*\]|\b[A-Z]\w+")  # of code and links, nothing is one
    return named.sub(lambda at: f"[{at[0]}]({at[0]}.md)" if at[0] in others else at[0], text)


def _listed(reason: re.Match[str]) -> str:
    meaning = re.findall(r"^- Means: (.*?\.)(?: |$)", reason[2], re.MULTILINE)
    place = f'<a id="{reason[1].lower()}"></a>'  # of its text in the file
    return f"- {place}[{reason[1]}](../reasons/{reason[1]}.md): {''.join(meaning)}\n"


def unfound(index: Path) -> set[str]:
    """Return the reasons without a page of their name in the search of a built site."""
    items = json.loads(index.read_text("utf-8").lower())["items"]
    names = {one["title"] for one in items if one["location"] == f"reasons/{one['title']}/"}
    every = reasons((ROOT / "klutchctl/docs" / _BOOK).read_text())
    return {one.name for one in every if one.name.lower() not in names}


def main(folder: Path) -> None:
    os.environ["COLUMNS"] = "80"
    source = ROOT / "klutchctl"
    written: dict[str, str | bytes] = {"overrides/partials/actions.html": _ACTIONS}
    for path in sorted((source / "docs").rglob("*.*")):
        if path.suffix in {".md", ".svg", ".css", ".png"}:
            name, content = str(path.relative_to(source)), path.read_bytes()
            written[name] = page(content.decode()) if path.suffix == ".md" else content
    book = (source / "docs" / _BOOK).read_text("utf-8")
    written[f"docs/{_BOOK}"] = _REASON.sub(_listed, book)
    settings = (source / "mkdocs.yml").read_text("utf-8")
    place = re.findall(r"^(?:repo_url|edit_uri): (.*)$", settings, re.MULTILINE)
    head = f"---\nedit: {'/'.join(place)}{_BOOK}\n---\n"
    written |= {f"docs/reasons/{name}.md": head + text for name, text in reason_pages(book)}
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


if __name__ == "__main__":
    path = Path(sys.argv[1])
    if path.name == "search.json":
        sys.exit(", ".join(sorted(unfound(path))) or 0)
    main(path)
