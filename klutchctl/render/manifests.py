"""The objects that a fleet becomes, as text (YAML documents) and as JSON. Pure.

Each stands with its cluster and with the place in the files that it comes from. They are those
of a first apply, before any Secret is known: no payload is in them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from klutchctl.render import yaml_writer
from klutchctl.render.terminal import visible
from reconciler.core.manifest import JSON
from reconciler.fleet.values import Fleet
from reconciler.fleet.wanted import Rule, Wanted

FORMAT: Final = "klutchctl.dev/manifests"
VERSION: Final = "1.0"  # a minor version adds fields, a major one breaks


def as_text(fleet: Fleet, objects: Sequence[Wanted]) -> str:
    """Return one YAML document per object, with comments that say where it goes and why."""
    written: dict[int, list[str]] = {}  # by identity: every cluster has the same long CRD
    lines: list[str] = []
    for wanted in objects:
        body = written.get(id(wanted.manifest))
        if body is None:
            body = written[id(wanted.manifest)] = yaml_writer.lines(wanted.manifest)
        lines += ["---", f"# {_place(fleet, wanted)}", *body]
    return "\n".join([*lines, ""])


def as_json(fleet: Fleet, objects: Sequence[Wanted]) -> str:
    """Return one JSON object with all of them, indented."""
    document: dict[str, JSON] = {
        "format": FORMAT,
        "version": VERSION,
        "fleet": fleet.name,
        "files": fleet.digest,
        "revision": fleet.revision,
        "objects": [_item(fleet, wanted) for wanted in objects],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _item(fleet: Fleet, wanted: Wanted) -> dict[str, JSON]:
    origin = wanted.origin
    return {
        "cluster": wanted.cluster,
        "controlPlane": _control_plane(fleet, wanted),
        "step": wanted.step,
        "rule": wanted.rule.value,
        "origin": {"path": origin.path, "line": origin.line, "column": origin.column},
        "manifest": wanted.manifest,
    }


def _place(fleet: Fleet, wanted: Wanted) -> str:
    return "; ".join(map(visible, _facts(fleet, wanted)))


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
