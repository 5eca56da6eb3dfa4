"""Renders the objects of a fleet as YAML documents and as JSON. Pure.

Each stands with its cluster and with the place in the files that it comes from. They are those
of a first apply, before any Secret is known: no payload is in them.

YAML is in block style, the same bytes each time, keys in their given order. Text that YAML could
take for anything else, or that does not print, stands in double quotes with escapes: what a
terminal shows is what a parser reads. Any reader of YAML 1.1 or 1.2 gets the values back.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from klutchctl.render import terminal
from reconciler.core.manifest import JSON
from reconciler.fleet.values import Fleet
from reconciler.fleet.wanted import Rule, Wanted
from reconciler.planning.planfile import origin_json

FORMAT: Final = "klutchctl.dev/manifests"
VERSION: Final = "1.0"  # a minor version adds fields, a major one breaks

# Starts like a word, so it is no number; a colon only where it cannot end a key.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"y", "yes", "true", "on", "n", "no", "false", "off", "null"})
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def as_text(fleet: Fleet, objects: Sequence[Wanted]) -> str:
    """Return one YAML document per object, with comments about its place and its reason."""
    written: dict[int, list[str]] = {}  # by identity: every cluster has the same long CRD
    lines: list[str] = []
    for wanted in objects:
        body = written.get(id(wanted.manifest))
        if body is None:
            body = written[id(wanted.manifest)] = yaml_lines(wanted.manifest)
        lines += ["---", f"# {'; '.join(map(terminal.visible, _facts(fleet, wanted)))}", *body]
    return "\n".join([*lines, ""])


def as_json(fleet: Fleet, objects: Sequence[Wanted]) -> str:
    facts = {"fleet": fleet.name, "files": fleet.digest, "revision": fleet.revision}
    found = [
        {
            "cluster": wanted.cluster,
            "controlPlane": _control_plane(fleet, wanted),
            "step": wanted.step,
            "rule": wanted.rule.value,
            "origin": origin_json(wanted.origin),
            "manifest": wanted.manifest,
        }
        for wanted in objects
    ]
    return terminal.document(FORMAT, VERSION, {**facts, "objects": found})


def _facts(fleet: Fleet, wanted: Wanted) -> Iterator[str]:
    control_plane = _control_plane(fleet, wanted)
    on = "in it" if control_plane is None else f"on its control plane {control_plane}"
    yield f"cluster {wanted.cluster}, {on}"
    if wanted.rule is Rule.CREATE_ONLY:
        yield "only where it is absent"
    yield str(wanted.origin)


def _control_plane(fleet: Fleet, wanted: Wanted) -> str | None:
    """Return the control plane that the object goes to, or None for the app cluster itself."""
    if wanted.ref.cluster == wanted.cluster:
        return None
    return fleet.clusters[wanted.cluster].control_plane


def yaml_lines(value: Mapping[str, JSON]) -> list[str]:
    """Return the lines of one document, without their ends."""
    document: list[str] = []
    _mapping(value, "", document)
    return document or ["{}"]


def _mapping(value: Mapping[str, JSON], indent: str, found: list[str]) -> None:
    # Objects are dicts and arrays lists at run time: looking for these takes half the time.
    for key, item in value.items():
        head = f"{indent}{yaml_text(key)}:"
        if isinstance(item, str):
            found.append(f"{head} {yaml_text(item)}")
        elif isinstance(item, dict) and item:
            found.append(head)
            _mapping(item, f"{indent}  ", found)
        elif isinstance(item, list | tuple) and item:
            found.append(head)
            _items(item, indent, found)
        else:
            found.append(f"{head} {_scalar(item)}")


def _items(items: Sequence[JSON], indent: str, found: list[str]) -> None:
    for item in items:
        start = len(found)
        if isinstance(item, dict) and item:
            _mapping(item, f"{indent}  ", found)
        elif isinstance(item, list | tuple) and item:
            _items(item, f"{indent}  ", found)
        else:
            found.append(f"{indent}  {_scalar(item)}")
        # The dash takes the place of the first line's indentation.
        found[start] = f"{indent}- {found[start][len(indent) + 2 :]}"


def _scalar(value: JSON) -> str:
    """Return a value on one line, also an empty array or object."""
    match value:
        case str():
            return yaml_text(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _number(value: float) -> str:
    text = repr(value)
    # YAML 1.1 wants a dot in what has an exponent.
    return text if "." in text else text.replace("e", ".0e")


@lru_cache(maxsize=1 << 16)
def yaml_text(text: str) -> str:
    """Return a text as YAML has it in a line, in quotes where it could be read as anything else."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
