"""The books of the repository: README.md, and those beside the programs and the example."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *(".", "klutchctl", "klutchctl/deploy/monitoring", "konnector", "bind", "reconciler"),
    *("schemas", "fleet-example", "fleet-example/services", "tests/captures"),
)
SITE = ROOT / "klutchctl/docs"
BOOKS = tuple(
    str(path.relative_to(ROOT))
    for pages in (*((ROOT / folder).glob("*.md") for folder in FOLDERS), SITE.rglob("*.md"))
    for path in sorted(pages)
)


def text(book: str) -> str:
    return (ROOT / book).read_text("utf-8")


def blocks(book: str, language: str) -> list[str]:
    """Return what is fenced in a book as a language, such as "console"."""
    return re.findall(rf"```{language}\n(.*?)```", text(book), re.DOTALL)


def commands(book: str) -> Iterator[tuple[str, int]]:
    """Yield command and expected exit code for each line of a console that begins with "$ "."""
    for block in blocks(book, "console"):
        yield from commands_of(block)


def commands_of(console: str) -> Iterator[tuple[str, int]]:
    for line in console.splitlines():
        if line.startswith("$ "):
            command, _, comment = line.removeprefix("$ ").partition("   #")
            code = re.search(r"exit code (\d+)", comment)
            yield command.strip(), int(code[1]) if code else 0
