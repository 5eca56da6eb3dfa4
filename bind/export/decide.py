"""How an export follows the provider's CRD and template. Pure.

protocol-bind.md C.3, mended as F22 and F25 tell. Specs are compared, not their hashes: the export
of an original, whose hash is another text for the same spec, is not written.

The claims of the template are what the export offers, whether they became fewer or more: an
app cluster accepts claims in its APIServiceBinding, and no konnector reads those of an export
(protocol-konnector.md B). So a wider claim that is written here is an offer, and nothing is synced
under it until somebody accepts it. The konnector's rights on the control plane follow the export
at once (`cluster_binding`), because only app clusters know what they accepted. Refuses to know
what is accepted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from reconciler.api.exports import API_SERVICE_EXPORT, permission_claims_of
from reconciler.blueprints import export as exports_of
from reconciler.blueprints.export import Isolation, Unexportable
from reconciler.core import conditions, keys, manifest, reasons
from reconciler.core.conditions import Condition
from reconciler.core.decision import (
    NOTHING,
    Decision,
    Note,
    Patch,
    Task,
    deletion,
    preconditions_of,
)
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.normalize import normalize_claim
from reconciler.core.times import format_duration, moment

# When to look again where the view of CRDs or templates may be old.
_UNSURE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Seen:
    """One APIServiceExport, the CRD of its name, and the template that counts for it.

    Each is whole, None where it is not there (`api.export_template.by_resource` picks among
    templates). `unsure` says why the view of CRDs or templates may be old, "" where it is not:
    then nothing follows from what is missing. `cluster` names the control plane in a Ref.
    """

    cluster: str
    export: Manifest = field(repr=False)
    crd: Manifest | None = field(default=None, repr=False)
    template: Manifest | None = field(default=None, repr=False)
    unsure: str = ""


def decide(seen: Seen, *, isolation: Isolation, grace: timedelta, now: datetime) -> Decision:
    """Return the one write that makes the export follow, and its conditions.

    An export whose CRD is missing goes `grace` after that was first told in its conditions, so a
    restart does not begin anew. Its Ready is for konnectors to sum up: the original's backend
    never does.
    """
    if manifest.is_deleting(seen.export):
        return NOTHING
    if seen.crd is None:
        return _missing(seen, grace, now)
    target = _target(seen.export, seen.crd)
    change, spec_hash = dict[str, JSON](), ""
    if isinstance(target, Condition):
        synced = target
    else:
        synced = conditions.true(reasons.PROVIDER_IN_SYNC)
        change = _difference(manifest.get_map(seen.export, "spec"), target, isolation)
        spec_hash = exports_of.source_hash(target) if change else ""
    tasks, notes = _written(seen, change, spec_hash)
    said = (synced, *_offered(seen))
    again = _UNSURE if seen.unsure else None
    return Decision(tasks, said, notes=notes, again=again, sums_up=False)


def _missing(seen: Seen, grace: timedelta, now: datetime) -> Decision:
    name = manifest.name_of(seen.export)
    if seen.unsure:
        return Decision(again=_UNSURE, sums_up=False)
    present = conditions.parse(manifest.get_list(seen.export, "status", "conditions"))
    last = conditions.find(present, reasons.PROVIDER_IN_SYNC)
    cause = reasons.PROVIDER_CRD_NOT_FOUND
    since = None
    if last is not None and (last.status, last.reason) == (conditions.FALSE, cause.reason):
        since = moment(last.last_transition_time)
    # A time ahead of our clock is no reason to wait longer than the grace.
    waited = max(now - (since or now), timedelta())
    if waited >= grace:
        step = deletion(seen.cluster, API_SERVICE_EXPORT, seen.export)
        message = f"CustomResourceDefinition {name} stayed away for {format_duration(grace)}"
        return Decision(tasks=(Task((step,)),), notes=(Note("ExportDeleted", message, "Warning"),))
    message = (
        f"CustomResourceDefinition {name} is missing on the control plane; this export is deleted "
        f"when that lasts for {format_duration(grace)}"
    )
    synced = conditions.false(cause, message)
    said_now = (synced, *_offered(seen))
    return Decision(conditions=said_now, again=grace - waited, sums_up=False)


def _target(export: Manifest, crd: Manifest) -> Manifest | Condition:
    """Return what of the spec follows from the CRD, or why the export cannot follow it."""
    scope = manifest.get_text(export, "spec", "informerScope")  # immutable
    if problem := exports_of.scope_problem(crd, scope):
        return conditions.false(reasons.PROVIDER_CRD_INVALID, problem)
    spec = exports_of.exported(crd)
    if isinstance(spec, Unexportable):
        return conditions.false(reasons.PROVIDER_CRD_INVALID, spec.why)
    return spec


def _difference(live: Manifest, target: Manifest, isolation: Isolation) -> dict[str, JSON]:
    """Return the merge patch that makes a live spec equal to the target; {} where it is."""
    change = {key: value for key, value in target.items() if live.get(key) != value}
    if "names" in change:
        # A merge patch leaves a name that it does not take away.
        gone = dict.fromkeys(
            manifest.get_map(live, "names").keys() - manifest.get_map(target, "names").keys()
        )
        change["names"] = {**gone, **manifest.get_map(target, "names")}
    held = live.get("clusterScopedIsolation")
    if target.get("scope") == "Cluster" and held is None:
        change["clusterScopedIsolation"] = isolation
    elif target.get("scope") != "Cluster" and held is not None:
        change["clusterScopedIsolation"] = None
    return change


def _new_offer(seen: Seen) -> Sequence[Manifest] | None:
    """Return the claims of the template where the export offers others, else None."""
    if seen.template is None:
        return None
    claims = permission_claims_of(seen.template)
    held = permission_claims_of(seen.export)
    return None if _alike(claims) == _alike(held) else claims


def _carries(seen: Seen) -> dict[str, JSON]:
    """Return the annotation by which the export names what the template lets go up, if it differs.

    It is of no matter to a backend: konnectors read it.
    """
    if seen.template is None:
        return {}
    wanted = manifest.annotations_of(seen.template).get(keys.CARRIES)
    held = manifest.annotations_of(seen.export).get(keys.CARRIES)
    return {} if wanted == held else {keys.CARRIES: wanted}


def _alike(claims: Iterable[Manifest]) -> frozenset[bytes]:
    return frozenset(manifest.canonical(normalize_claim(one)) for one in claims)


def _written(
    seen: Seen, change: Manifest, spec_hash: str
) -> tuple[tuple[Task, ...], tuple[Note, ...]]:
    """Return the one write with all that differs, and what is told of it."""
    offer, annotations = _new_offer(seen), _carries(seen)
    if not change and offer is None and not annotations:
        return (), ()
    metadata, spec = preconditions_of(seen.export), dict(change)
    if spec_hash:
        annotations[keys.SOURCE_SPEC_HASH] = spec_hash
    if annotations:
        metadata["annotations"] = annotations
    notes = list[Note]()
    if offer is not None:
        spec["permissionClaims"] = list(offer) or None
        notes.append(Note("OfferChanged", _sentence(offer)))
    ref = manifest.ref_of(seen.cluster, API_SERVICE_EXPORT, seen.export)
    step = Patch(ref, {"metadata": metadata, **({"spec": spec} if spec else {})})
    return (Task((step,), reasons.EXPORT_UPDATE_FAILED),), tuple(notes)


def _sentence(offer: Sequence[Manifest]) -> str:
    claimed = sorted({manifest.get_text(one, "resource") for one in offer})
    what = f"claims {', '.join(claimed)}" if claimed else "claims nothing"
    return f"The template now {what}; what an app cluster has not accepted has no effect there"


def _offered(seen: Seen) -> Sequence[Condition]:
    """Tell of a template that is gone; a condition of ours, so not before there is something."""
    present = conditions.parse(manifest.get_list(seen.export, "status", "conditions"))
    if seen.template is not None:
        was_said = conditions.find(present, reasons.OFFERED) is not None
        return [conditions.true(reasons.OFFERED)] if was_said else []
    if seen.unsure:
        return []
    message = (
        f"No APIServiceExportTemplate offers {manifest.name_of(seen.export)} any more; "
        "this export and its claims stay as they are"
    )
    return [conditions.false(reasons.OFFER_WITHDRAWN, message)]
