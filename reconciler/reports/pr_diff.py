"""Compares the files of a pull request with its base, and sorts edits by gravity.

This is about files alone; what of it would happen where is for the plan to say.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from pydantic.alias_generators import to_camel

from reconciler.core.decision import FieldChange, pointer
from reconciler.core.errors import Origin, Problem
from reconciler.core.manifest import JSON, Manifest, canonical, digest
from reconciler.fleet import wanted
from reconciler.fleet.base_model import StrictModel
from reconciler.fleet.load import Loaded
from reconciler.fleet.models import FleetDocument
from reconciler.fleet.parsing import Document
from reconciler.fleet.values import (
    Access,
    AppCluster,
    Claim,
    ControlPlane,
    DeletionPolicy,
    Fleet,
    Unit,
    UnitKey,
)
from reconciler.planning import permission_claims


class Effect(StrEnum):
    """The effect of an edit once it is merged, gravest first."""

    DELETE = "delete"
    REPLACE = "replace"
    WIDEN = "widen"  # a permission claim reaches further
    RIGHTS = "rights"  # who may do what, and who is trusted: Policies, access, guards, ...
    BLOCK = "block"
    RELEASE = "release"
    REMOVE = "remove"
    CHANGE = "change"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class Edit:
    """A difference between the files of two commits.

    `kind` is that of a document. Of a Binding, `resource` (`plural.group`) and `clusters` say which
    units are meant; both are empty else. `origin` is where it stands, or stood.
    """

    effect: Effect
    kind: str
    name: str
    origin: Origin
    resource: str = ""
    clusters: tuple[str, ...] = ()
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Against:
    """The edits since the commit `revision`, which was named `ref`; and the Policies' denials."""

    ref: str
    revision: str
    edits: tuple[Edit, ...]
    denied: tuple[Problem, ...] = ()


_Things: TypeAlias = Mapping[tuple[str, str], tuple[Origin, Manifest]]

_LEAVING: Final = {
    DeletionPolicy.DELETE: Effect.DELETE,
    DeletionPolicy.RELEASE: Effect.RELEASE,
    DeletionPolicy.BLOCK: Effect.BLOCK,
}
# Fields that decide over no rights and no trust. All others do, also those that come later.
_HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "ControlPlane": frozenset({"prettyName"}),
    "Cluster": frozenset({"suspended"}),
    "Binding": frozenset({"binding", "template", "deletionPolicy", "dependsOn", "labels"}),
}
# What is said elsewhere in an edit, or of a Fleet, where it arrives: in clusters and units.
_REPORTED_ELSEWHERE: Final = frozenset({"name", "origin", "key"})
_OF_OTHERS: Final = frozenset({"konnector", "vars"})
_NAMES: Final = {"ca": "caFile"}
# What `planning.permission_claims` compares of a claim, and where it is written.
_JUDGED: Final = frozenset(
    {
        *("group", "resource", "version", "owner"),
        *("names", "namespaces", "labels", "accepted", "origin"),
    }
)
# What lets others do something by only being there.
_GRANTING: Final = frozenset({"Policy", "Template"})
_NOWHERE: Final = Origin("")
_GRAVITY: Final = tuple(Effect)
_DIGEST_SHOWN: Final = 8


def edits(base: Loaded, head: Loaded) -> tuple[Edit, ...]:
    """Return the difference of two repositories, both as they are written."""
    found = [*_of_documents(base, head), *_of_units(base.fleet, head.fleet)]
    return tuple(
        sorted(
            found, key=lambda one: (_GRAVITY.index(one.effect), one.kind, one.name, one.clusters)
        )
    )


def _of_documents(base: Loaded, head: Loaded) -> Iterator[Edit]:
    before, after = _things(base), _things(head)
    leave = _LEAVING[head.fleet.guards.on_cluster_leave]
    for kind, name in sorted(before.keys() | after.keys()):
        old, new = before.get((kind, name)), after.get((kind, name))
        if old is None:
            assert new is not None
            effect = Effect.RIGHTS if kind in _GRANTING else Effect.ADD
            yield Edit(effect, kind, name, new[0])
        elif new is None:
            effect = {"Cluster": leave, "Policy": Effect.RIGHTS}.get(kind, Effect.REMOVE)
            yield Edit(effect, kind, name, old[0])
        elif changed := _fields(old[1], new[1]):
            yield Edit(_changed(kind, changed), kind, name, new[0], fields=changed)


def _changed(kind: str, changed: tuple[FieldChange, ...]) -> Effect:
    keys = {field.path.split("/")[1] for field in changed}
    harmless = keys and keys <= _HARMLESS.get(kind, frozenset())
    return Effect.CHANGE if harmless else Effect.RIGHTS


def _things(loaded: Loaded) -> _Things:
    """Return the documents other than Bindings, as far as the difference is about them."""
    fleet = loaded.fleet
    found = {("Fleet", ""): (fleet.origin, _of_fleet(loaded.repository.fleet))}
    for name, plane in fleet.control_planes.items():
        found["ControlPlane", name] = plane.origin, _stated(plane)
    for name, cluster in fleet.clusters.items():
        found["Cluster", name] = cluster.origin, _stated(cluster)
    for template in loaded.templates:
        found["Template", template.name] = template.origin, _spec(template.model.spec)
    for policy in loaded.policies:
        found["Policy", policy.name] = policy.origin, _spec(policy.model.spec)
    return found


def _spec(spec: StrictModel) -> Manifest:
    return spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _of_fleet(fleet: Document[FleetDocument]) -> Manifest:
    spec = fleet.model.spec.model_dump(mode="json", by_alias=True)
    of_all = {key: value for key, value in spec.items() if key not in _OF_OTHERS}
    globs = [
        include.glob + ("" if include.optional else " (required)")
        for include in fleet.model.spec.include
    ]
    return {**of_all, "name": fleet.name, "include": list[JSON](globs)}


def _stated(thing: ControlPlane | AppCluster | Unit) -> dict[str, JSON]:
    """Return all that a document states, by the keys of its fields.

    It is asked of the dataclass, so that no field which comes later is unseen by reviewers.
    """
    values = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return {
        _NAMES.get(name) or to_camel(name): (value and f"sha256 {digest(value)[:_DIGEST_SHOWN]}")
        if name == "ca"
        else _json(value)
        for name, value in values.items()
        if name not in _REPORTED_ELSEWHERE
    }


def _json(value: Any) -> JSON:
    """Return a value of a fleet as JSON, values with a text of their own as that text."""
    if isinstance(value, Mapping):
        return {str(key): _json(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_json(one) for one in value]
    if is_dataclass(value) and not isinstance(value, Access | UnitKey):
        return {to_camel(field.name): _json(getattr(value, field.name)) for field in fields(value)}
    return value if value is None or type(value) in (str, bool, int, float) else str(value)


def _of_units(base: Fleet, head: Fleet) -> Iterator[Edit]:
    """Yield the edits of units; those that differ only in their cluster come as one."""
    alike: dict[tuple[Effect, str, str, bytes], tuple[Edit, list[str]]] = {}
    for key in sorted(base.units.keys() | head.units.keys()):
        for edit in _of_unit(base.units.get(key), head.units.get(key)):
            values = [[field.path, field.before, field.after] for field in edit.fields]
            group = (edit.effect, edit.name, edit.resource, canonical(values))
            alike.setdefault(group, (edit, []))[1].append(key.cluster)
    yield from (replace(edit, clusters=tuple(clusters)) for edit, clusters in alike.values())


def _of_unit(before: Unit | None, after: Unit | None) -> Iterator[Edit]:
    """Yield the edits of one unit, which is in one of the fleets at least."""
    if after is None:
        assert before is not None
        yield _edit(_LEAVING[before.deletion_policy], before)
    elif before is None:
        yield _edit(Effect.ADD, after, _fields({"claims": {}}, {"claims": _claims(after)}))
    elif _bare(before) != _bare(after):
        yield from _of_changed(before, after)


def _of_changed(before: Unit, after: Unit) -> Iterator[Edit]:
    changed = _fields(_content(before), _content(after))
    claimed = tuple(field for field in changed if field.path.startswith("/claims"))
    others = tuple(field for field in changed if field not in claimed)
    if others or not claimed:
        replaced = any(one.path.startswith("/parameters") for one in others)
        yield _edit(Effect.REPLACE if replaced else _changed("Binding", others), after, others)
    if claimed:
        yield _edit(_claimed(before.claims, after.claims), after, claimed)


def _edit(effect: Effect, unit: Unit, changed: tuple[FieldChange, ...] = ()) -> Edit:
    return Edit(effect, "Binding", unit.binding, unit.origin, unit.key.name, (), changed)


def _bare(unit: Unit) -> Unit:
    """Return the unit without places, which move with every line above them."""
    claimed = tuple(replace(claim, origin=_NOWHERE) for claim in unit.claims)
    return replace(unit, origin=_NOWHERE, claims=claimed)


def _content(unit: Unit) -> Manifest:
    depends_on: list[JSON] = [unit_key.name for unit_key in unit.depends_on]
    return {**_stated(unit), "claims": _claims(unit), "dependsOn": depends_on}


def _claims(unit: Unit) -> Manifest:
    """Return how far the claims of each kind of object reach."""
    found: dict[str, list[str]] = {}
    for claim in unit.claims:
        kind = ".".join(filter(None, (claim.resource, claim.group)))
        of = f"{kind} {claim.version} of {claim.owner.value}"
        found.setdefault(of, []).append(_reach(claim))
    return {of: "; ".join(sorted(reaches)) for of, reaches in found.items()}


def _reach(claim: Claim) -> str:
    limits = []
    if claim.names != (permission_claims.ANY,):
        limits.append(f"names [{', '.join(claim.names)}]")
    if claim.namespaces != (permission_claims.ANY,):
        limits.append(permission_claims.places(claim.namespaces))
    labels = (",".join(f"{key}={value}" for key, value in pairs) for pairs in claim.labels)
    if claim.labels:
        limits.append(f"labels {' or '.join(labels)}")
    limits += _unjudged(claim)
    return f"{' '.join(limits) or 'all'}{'' if claim.accepted else ' rejected'}"


def _unjudged(claim: Claim) -> list[str]:
    """Return the further statements of a claim: fields that are not compared yet."""
    return [
        f"{to_camel(field.name)} {_json(getattr(claim, field.name))}"
        for field in fields(claim)
        if field.name not in _JUDGED
    ]


def _fields(before: JSON, after: JSON) -> tuple[FieldChange, ...]:
    return tuple(_differences(before, after, ()))


def _differences(before: JSON, after: JSON, steps: tuple[str, ...]) -> Iterator[FieldChange]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), (*steps, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_differences(before, after, steps)
    else:
        yield FieldChange(pointer(*steps), before, after)


def _list_differences(
    before: list[JSON], after: list[JSON], steps: tuple[str, ...]
) -> Iterator[FieldChange]:
    """Yield the differences item by item, or, where lengths differ, the items of one list alone.

    RFC 6902 compares by index: an item added in front would seem to change all others.
    """
    path = pointer(*steps)
    gone = [one for one in before if one not in after]
    more = [one for one in after if one not in before]
    if len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, (*steps, str(index)))
    elif gone or more:
        yield from (FieldChange(path, one, None) for one in gone)
        yield from (FieldChange(path, None, one) for one in more)
    else:
        yield FieldChange(path, before, after)


def _claimed(before: tuple[Claim, ...], after: tuple[Claim, ...]) -> Effect:
    than = wanted.wire_claims(before, ())
    if any(permission_claims.is_wider(claim, than) for claim in wanted.wire_claims(after, ())):
        return Effect.WIDEN
    then, now = (sorted(map(_unjudged, some)) for some in (before, after))
    return Effect.CHANGE if not any(now) or then == now else Effect.RIGHTS
