"""`python -m tests.support.site FOLDER`: writes the sources of the site, with generated pages.

A line `<!-- generated: NAME -->` of a page becomes what the code has, so no page repeats it.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from klutchctl import main as cli
from klutchctl.entry import MEANINGS, PRECEDENCE

ROOT: Final = Path(__file__).parents[2]
_MARK: Final = re.compile(r"^<!-- generated: (\S+) -->$", re.MULTILINE)
_TYPES: Final = ("const", "enum", "type")


def commands() -> Iterator[str]:
    """Yield a section for each command: what its `--help` prints."""
    names = [name for name, _, _ in cli.COMMANDS]
    for words in ("", *names, "sandbox", "sandbox up", "sandbox down", "sandbox status"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            cli.run([*words.split(), "--help"])
        yield f"## {f'klutchctl {words}'.strip()}\n\n```text\n{printed.getvalue().strip()}\n```\n"


def exit_codes() -> Iterator[str]:
    """Yield the table of exit codes, and which one a command with several reasons ends with."""
    yield "| code | meaning |\n|---|---|"
    yield from (f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items())
    order = ", ".join(str(int(code)) for code in PRECEDENCE)
    yield f"\nIf several apply, the first of these is used: {order}."


def fleet_files() -> Iterator[str]:
    """Yield a section for each kind of document, with a table of its fields."""
    schema = json.loads((ROOT / "schemas/fleet.schema.json").read_text("utf-8"))
    definitions = schema["definitions"]
    for kind in schema["properties"]["kind"]["enum"]:
        spec = definitions[f"{kind}Document"]["properties"]["spec"]
        yield f"## {kind}\n\n| field | type | meaning |\n|---|---|---|"
        yield from _rows(spec, definitions, "spec")
        yield ""


def charts() -> Iterator[str]:
    """Yield a section for each chart: its values with their comments, and their types."""
    for name in ("bind", "konnector", "klutchctl"):
        folder = ROOT / name / "deploy/chart"
        schema = json.loads((folder / "values.schema.json").read_text("utf-8"))
        yield f"## {name}/deploy/chart\n\n```yaml\n{(folder / 'values.yaml').read_text('utf-8')}```"
        yield "\n| value | type | |\n|---|---|---|"
        yield from _rows(schema, schema.get("definitions", {}), "")
        yield ""


def _rows(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, field in _resolved(schema, definitions).get("properties", {}).items():
        full = _resolved(field, definitions)
        place = f"{path}.{name}".lstrip(".")
        kind = next((_text(full[key]) for key in _TYPES if key in full), "any")
        yield f"| `{place}` | {kind} | {full.get('description', '')} |"
        inner = full.get("items", full)
        if place.count(".") < 4:
            yield from _rows(inner, definitions, f"{place}[]" if "items" in full else place)


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    while reference := schema.get("$ref"):
        schema = {**definitions[reference.rpartition("/")[2]], **schema}
        schema = {key: value for key, value in schema.items() if key != "$ref"} | {
            "description": schema.get("description", "")
        }
    return schema


def _text(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return ", ".join(str(one) if one != "" else '""' for one in values)


GENERATORS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "commands": commands,
    "exit-codes": exit_codes,
    "fleet-files": fleet_files,
    "charts": charts,
}


def page(text: str) -> str:
    """Return a page with what is generated in the place of its marks."""
    return _MARK.sub(lambda mark: "\n".join(GENERATORS[mark[1]]()), text)


def main(folder: Path) -> None:
    """Write all sources into a folder."""
    os.environ["COLUMNS"] = "80"
    source = ROOT / "klutchctl"
    for path in (source / "mkdocs.yml", *sorted((source / "docs").rglob("*.*"))):
        if path.suffix in {".md", ".svg", ".yml", ".css"}:
            there = folder / path.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(page(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
