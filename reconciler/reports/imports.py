"""Finds live bindings that no file names, as files would state them (`klutchctl import`). Pure.

A take-over changes nothing that is in force, so only what the files can say exactly as it is live
is imported. The command plans with the new files, and `settled` drops what would change.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from reconciler.blueprints.binding import parameters_digest
from reconciler.core import keys, manifest
from reconciler.core.live import Live
from reconciler.core.manifest import JSON, Manifest
from reconciler.fleet.values import Fleet, UnitKey
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.claims import ANY, title
from reconciler.planning.placement import Blocked
from reconciler.reports.unmanaged import UnnamedBinding, preflights, unnamed_bindings

FileClaim: TypeAlias = Mapping[str, JSON]  # as in a Binding's spec.claims

_METADATA = "/metadata/"


class _Unsayable(Exception):
    """A live binding cannot be expressed in files."""


@dataclass(frozen=True, slots=True)
class Import:
    """One resource that is bound alike in some clusters, sorted."""

    group: str
    resource: str
    clusters: tuple[str, ...]
    claims: tuple[FileClaim, ...]
    parameters: Manifest


@dataclass(frozen=True, slots=True)
class Imports:
    """What can be imported, in order, and what is left alone: its name and why."""

    found: tuple[Import, ...]
    left: tuple[tuple[str, str], ...] = ()


def imports(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Imports:
    """Return what is bound beside the files in all app clusters, or `only` some.

    What left the files is no binding: a plan lets it go. But files that name no unit at all have
    lost them, as a plan sees it too, which lets nothing go then (`prune.allowEmpty`).
    """
    alike: dict[tuple[str, str, bytes], list[tuple[str, Import]]] = defaultdict(list)
    left = [
        (name, site.reason)
        for name, site in preflights(fleet, live, only=only).items()
        if isinstance(site, Blocked)
    ]
    for binding in unnamed_bindings(fleet, live, only=only):
        try:
            if binding.ours and fleet.units:
                raise _Unsayable(
                    "it left the files of this fleet, and a plan lets it go; to keep it, put its"
                    " Binding back"
                )
            one = _import(binding)
        except _Unsayable as reason:
            left.append((str(binding.unit), str(reason)))
            continue
        said = manifest.canonical({"claims": list(one.claims), "parameters": one.parameters})
        alike[one.group, one.resource, said].append((binding.unit.cluster, one))
    found = (
        replace(some[0][1], clusters=tuple(sorted(name for name, _ in some)))
        for _, some in sorted(alike.items(), key=lambda item: item[0])
    )
    return Imports(tuple(found), tuple(sorted(left)))


def settled(made: Imports, plan: Plan) -> Imports:
    """Return the imports whose units the plan of their files takes over as they are.

    The others are left alone. Equal to `made` where all are.
    """
    lines: dict[UnitKey, list[Change]] = defaultdict(list)
    for change in plan.changes:
        if change.unit is not None:
            lines[change.unit].append(change)
    kept, left = [], list(made.left)
    for entry in made.found:
        staying = []
        for cluster in entry.clusters:
            unit = UnitKey(cluster, entry.group, entry.resource)
            reason = _change_of(lines[unit])
            if reason:
                left.append((str(unit), reason))
            else:
                staying.append(cluster)
        if staying:
            kept.append(replace(entry, clusters=tuple(staying)))
    return Imports(tuple(kept), tuple(sorted(left)))


def _change_of(lines: Sequence[Change]) -> str:
    """Return what would change of a unit beside its marks, or ""."""
    for line in lines:
        touched = [field.path for field in line.fields if not field.path.startswith(_METADATA)]
        if line.action is Action.UPDATE and touched:
            return f"taking it over would change {', '.join(touched)}"
        if line.action in (Action.CREATE, Action.REPLACE):
            return f"taking it over would {line.action.value} {line.ref.kind.kind}: {line.reason}"
        if line.action in (Action.BLOCKED, Action.UNKNOWN):
            return line.reason
    return ""


def _import(unnamed: UnnamedBinding) -> Import:
    unit, binding = unnamed.unit, unnamed.binding
    if unnamed.elsewhere:
        raise _Unsayable(
            f"its kubeconfig leads to {unnamed.elsewhere}, not to the binding space of its cluster"
        )
    if binding is None:
        raise _Unsayable("the backend has not made its APIServiceBinding yet")
    claims = [_claim(claim) for claim in manifest.get_maps(binding, "spec", "permissionClaims")]
    return Import(
        group=unit.group,
        resource=unit.resource,
        clusters=(unit.cluster,),
        claims=tuple(sorted(claims, key=manifest.canonical)),
        parameters=_parameters(binding, unnamed.request),
    )


def _parameters(binding: Manifest, request: Manifest | None) -> Manifest:
    """Return those of the request, where the binding says that they are in force.

    Others stay with their request: to state them would replace it.
    """
    parameters = manifest.get_map(request or {}, "spec", "parameters")
    known = manifest.annotations_of(binding).get(keys.PARAMETERS, "")
    if known and known != parameters_digest(parameters):
        raise _Unsayable("its parameters are known by their digest only")
    return parameters if known else {}


def _claim(wire: Manifest) -> FileClaim:
    """Return a claim of an APIServiceBinding as the files say it."""
    owner, state = manifest.get_text(wire, "selector", "owner"), manifest.get_text(wire, "state")
    if not owner:
        raise _Unsayable(f"its claim on {title(wire)} names no owner, and one in files has to")
    if state not in ("Accepted", "Rejected"):
        raise _Unsayable(f"its claim on {title(wire)} is neither accepted nor rejected")
    return dict(_fields(wire, owner, state))


def _fields(wire: Manifest, owner: str, state: str) -> Iterator[tuple[str, JSON]]:
    for key in ("group", "resource", "version"):
        yield key, manifest.get_text(wire, key)
    yield "owner", owner
    for key in ("names", "namespaces"):
        listed = manifest.get_texts(wire, "selector", key)
        yield key, sorted(listed) if listed else [ANY]
    labels = [
        manifest.get_text_map(selector)
        for selector in manifest.get_maps(wire, "selector", "labelSelectors")
    ]
    if labels:
        yield "labels", sorted(labels, key=manifest.canonical)
    yield "state", state
