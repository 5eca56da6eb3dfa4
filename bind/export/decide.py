"""Decides the answer to an export request, and the content of an export. Pure.

Requests are a state machine (protocol-bind.md C.2, mended as F3 and F24 tell): on time, and with a
condition for whatever stands in the way. What a request says about claims and versions does not
count: the template does.

Exports: protocol-bind.md C.3, mended as F22 and F25 tell. Specs are compared, not their hashes: the
export of an original, whose hash is another text for the same spec, is not written.

The claims of the template are what the export offers, whether they became fewer or more: an
app cluster accepts claims in its APIServiceBinding, and no konnector reads those of an export
(protocol-konnector.md B). So a wider claim that is written here is an offer, and nothing is synced
under it until somebody accepts it. The konnector's rights on the control plane follow the export
at once (`cluster_binding`), because only app clusters know what they accepted. Does not know
what is accepted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from bind.bounds import MOST_RESOURCES
from reconciler import api
from reconciler.blueprints import export as exports_of
from reconciler.blueprints import machinery
from reconciler.blueprints.export import Isolation, Terms, Unexportable
from reconciler.core import conditions, decision, keys, manifest, refs
from reconciler.core.conditions import Condition
from reconciler.core.decision import Create, Decision, Note, Patch, Task
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.normalize import normalize_claim
from reconciler.core.times import created, moment, people_read

# When to look again where the view of CRDs or templates may be old.
_UNSURE: Final = timedelta(minutes=1)
# Ages of a request: at the first it fails, at the second it is deleted in any case.
TIMEOUT: Final = timedelta(minutes=1)
LIFETIME: Final = timedelta(minutes=10)
_PENDING: Final = "Pending"
# Annotations that an export takes over.
_OF_TEMPLATE: Final = (keys.CARRIES, keys.ADOPT_CONTROLLED, keys.COMPOSITIONS, keys.OPEN_MACHINERY)


@dataclass(frozen=True, slots=True)
class Seen:
    """An APIServiceExport, the CRD of its name, and the template that counts for it.

    `definition` is the metadata of what Crossplane makes the CRD from.

    Each is whole, None where it is not there (`api.by_resource` picks among
    templates). `unsure` says why the view of CRDs or templates may be old, "" where it is not:
    then nothing follows from what is missing. `cluster` names the control plane in a Ref.
    """

    cluster: str
    export: Manifest = field(repr=False)
    crd: Manifest | None = field(default=None, repr=False)
    template: Manifest | None = field(default=None, repr=False)
    unsure: str = ""
    definition: Manifest | None = field(default=None, repr=False)

    @property
    def withdrawn(self) -> str | None:
        """Why the kind is going, or is gone; None while it stays, as far as anybody knows."""
        name = manifest.name_of(self.export)
        if self.crd is None:
            return f"{refs.CRD.kind} {name} is gone"
        if manifest.is_deleting(self.crd):
            return f"{refs.CRD.kind} {name} is being deleted"
        if problem := exports_of.scope_problem(self.crd, self.informer_scope):
            return problem
        if self.definition is None or not manifest.is_deleting(self.definition):
            return None
        kind = refs.COMPOSITE_DEFINITION.kind
        return f"{kind} {manifest.name_of(self.definition)} is being deleted"

    @property
    def informer_scope(self) -> str:
        """The scope of the app cluster's rights, which never changes."""
        return manifest.get_text(self.export, "spec", "informerScope")

    @property
    def opened(self) -> machinery.Opening:
        """The fields of Crossplane that app clusters may write: also once the template is gone."""
        return machinery.opening(self.export if self.template is None else self.template)


def decide(seen: Seen, *, isolation: Isolation, grace: timedelta, now: datetime) -> Decision:
    """Return the one write that makes the export follow, and its conditions.

    An export whose CRD is missing goes `grace` after that was first told in its conditions, so a
    restart does not begin again. Its Ready is summed up by konnectors alone.
    """
    if manifest.is_deleting(seen.export):
        return decision.NOTHING
    if seen.crd is None:
        return _missing(seen, grace, now)
    target = _target(seen, seen.crd)
    change, spec_hash = dict[str, JSON](), ""
    if isinstance(target, Condition):
        synced = target
    else:
        left = exports_of.left_behind(seen.crd, target, seen.opened)
        synced = replace(conditions.true(conditions.PROVIDER_IN_SYNC), message=left)
        change = _difference(manifest.get_map(seen.export, "spec"), target, isolation)
        spec_hash = exports_of.source_hash(target) if change else ""
    tasks, notes = _written(seen, change, spec_hash)
    reported = (synced, *_offered(seen))
    again = _UNSURE if seen.unsure else None
    return Decision(tasks, reported, notes=notes, again=again, sums_up=False)


def _missing(seen: Seen, grace: timedelta, now: datetime) -> Decision:
    name = manifest.name_of(seen.export)
    if seen.unsure:
        return Decision(again=_UNSURE, sums_up=False)
    last = conditions.get(seen.export, conditions.PROVIDER_IN_SYNC)
    cause = conditions.PROVIDER_CRD_NOT_FOUND
    since = None
    if last is not None and (last.status, last.reason) == (conditions.FALSE, cause.reason):
        since = moment(last.last_transition_time)
    # A time ahead of our clock is no reason to wait longer than the grace.
    waited = max(now - (since or now), timedelta())
    if waited >= grace:
        message = f"CustomResourceDefinition {name} stayed away for {people_read(grace)}"
        going = decision.writes(
            decision.deletion(seen.cluster, api.API_SERVICE_EXPORT, seen.export)
        )
        return replace(going, notes=(Note("ExportDeleted", message, "Warning"),))
    message = (
        f"CustomResourceDefinition {name} is missing on the control plane; this export is deleted "
        f"when that lasts for {people_read(grace)}"
    )
    reported = (conditions.false(cause, message), *_offered(seen))
    tasks, _ = _written(seen, {}, "")
    return Decision(tasks, reported, again=grace - waited, sums_up=False)


def _target(seen: Seen, crd: Manifest) -> Manifest | Condition:
    """Return the spec that follows from the CRD, or the reason why the export cannot follow it."""
    if problem := exports_of.scope_problem(crd, seen.informer_scope):
        return conditions.false(conditions.PROVIDER_CRD_INVALID, problem)
    spec = exports_of.exported(crd, seen.opened)
    if isinstance(spec, Unexportable):
        return conditions.false(conditions.PROVIDER_CRD_INVALID, spec.why)
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
    isolated = live.get("clusterScopedIsolation")
    if target.get("scope") == "Cluster" and isolated is None:
        change["clusterScopedIsolation"] = isolation
    elif target.get("scope") != "Cluster" and isolated is not None:
        change["clusterScopedIsolation"] = None
    return change


def _new_offer(seen: Seen) -> Sequence[Manifest] | None:
    """Return the claims of the template where the export offers others, else None."""
    if seen.template is None:
        return None
    claims = api.permission_claims_of(seen.template)
    return None if _alike(claims) == _alike(api.permission_claims_of(seen.export)) else claims


def _annotations(seen: Seen) -> dict[str, JSON]:
    """Return the annotations that differ: those of the CRD, and those of the template.

    They are of no matter to a backend: konnectors read them.
    """
    wanted: dict[str, str | None] = {keys.WITHDRAWN: seen.withdrawn}
    if seen.crd is not None:
        wanted |= exports_of.notes_of(seen.crd, seen.opened)
    if seen.template is not None:
        taken = _of_template(seen.crd or {}, seen.template)
        wanted |= {key: taken.get(key) for key in _OF_TEMPLATE}
    noted = manifest.annotations_of(seen.export)
    return {key: value for key, value in wanted.items() if value != noted.get(key)}


def _of_template(crd: Manifest, template: Manifest) -> dict[str, str]:
    """Return the annotations that an export takes of its template.

    With kinds of a broker goes the wish to try again what it refused: its developers have it.
    """
    notes = manifest.annotations_of(template)
    taken = {key: notes[key] for key in _OF_TEMPLATE if key in notes}
    if keys.OSB_BROKER in manifest.labels_of(crd):
        carried = filter(None, (taken.get(keys.CARRIES), keys.OSB_RETRY))
        taken[keys.CARRIES] = ",".join(carried)
    return taken


def _alike(claims: Iterable[Manifest]) -> frozenset[bytes]:
    return frozenset(manifest.canonical(normalize_claim(one)) for one in claims)


def _written(
    seen: Seen, change: Manifest, spec_hash: str
) -> tuple[tuple[Task, ...], tuple[Note, ...]]:
    """Return the one write with all differences, and the Events about it."""
    offer, annotations = _new_offer(seen), _annotations(seen)
    if not change and offer is None and not annotations:
        return (), ()
    metadata, spec = decision.preconditions_of(seen.export), dict(change)
    if spec_hash:
        annotations[keys.SOURCE_SPEC_HASH] = spec_hash
    if annotations:
        metadata["annotations"] = annotations
    notes = list[Note]()
    if offer is not None:
        spec["permissionClaims"] = list(offer) or None
        notes.append(Note("OfferChanged", _sentence(offer)))
    ref = manifest.ref_of(seen.cluster, api.API_SERVICE_EXPORT, seen.export)
    step = Patch(ref, {"metadata": metadata, **({"spec": spec} if spec else {})})
    return (Task((step,), conditions.EXPORT_UPDATE_FAILED),), tuple(notes)


def _sentence(offer: Sequence[Manifest]) -> str:
    claimed = sorted({manifest.get_text(one, "resource") for one in offer})
    text = f"claims {', '.join(claimed)}" if claimed else "claims nothing"
    return f"The template now {text}; a claim has no effect before an app cluster accepts it"


def _offered(seen: Seen) -> Sequence[Condition]:
    """Report a template that is gone; a condition of ours, so not before there is one."""
    if seen.template is not None:
        return conditions.mended(seen.export, conditions.OFFERED)
    if seen.unsure:
        return []
    message = (
        f"No APIServiceExportTemplate offers {manifest.name_of(seen.export)} any more; "
        "this export and its claims stay as they are"
    )
    return [conditions.false(conditions.OFFER_WITHDRAWN, message)]


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request, and the present objects by the names that `resources` returns.

    `exports` are those in the request's namespace; `templates` the one that counts of each
    resource (`api.by_resource`). `offered` are the resources of all templates,
    for the message that one is missing. `listed` are the resources that the AppClusterBinding of
    the space lists, None where it never had one: then `bound` counts, what was bound there at a
    front door that asks for the right. With None of both, whatever is offered may be had. `cluster`
    names the control plane in a Ref.
    """

    cluster: str
    request: Manifest = field(repr=False)
    crds: Mapping[str, Manifest] = field(default_factory=dict, repr=False)
    exports: Mapping[str, Manifest] = field(default_factory=dict, repr=False)
    templates: Mapping[str, Manifest] = field(default_factory=dict, repr=False)
    offered: Sequence[str] = ()
    listed: frozenset[str] | None = None
    bound: frozenset[str] | None = None


def resources(request: Manifest) -> Sequence[str]:
    """Return the names of the CRDs, exports and templates that a request is about, in its order.

    With a dot at the end for the core group, whose resources have no CRD (C.2).
    """
    wanted = manifest.get_maps(request, "spec", "resources")
    return list(
        dict.fromkeys(
            f"{manifest.get_text(one, 'resource')}.{manifest.get_text(one, 'group')}"
            for one in wanted
        )
    )


def answer(seen: RequestView, *, terms: Terms, now: datetime) -> Decision:
    """Return the exports that are to be made, and the answer once there is one.

    A request has succeeded when all its exports are seen, not when they were sent. `again` is when
    it fails or goes.
    """
    request = seen.request
    if manifest.is_deleting(request):
        return decision.NOTHING
    age = max(now - (created(request) or now), timedelta())
    if (manifest.get_text(request, "status", "phase") or _PENDING) != _PENDING:
        ended = decision.deletion(seen.cluster, api.API_SERVICE_EXPORT_REQUEST, request)
        return Decision(again=LIFETIME - age) if age < LIFETIME else decision.writes(ended)
    steps = list[Create]()
    if len(resources(request)) > MOST_RESOURCES:
        message = f"It requests more than {MOST_RESOURCES} resources: request them one by one"
        return _unanswered(seen, steps, conditions.false(conditions.TOO_MANY, message), age)
    for name in resources(request):
        step = _export(seen, name, terms)
        if isinstance(step, Condition):
            return _unanswered(seen, steps, step, age)
        if step is not None:
            steps.append(step)
    if steps:
        return _unanswered(seen, steps, _refusal(seen), age)
    done = (conditions.true(conditions.EXPORTS_READY),)
    fields: dict[str, JSON] = {"phase": "Succeeded"}
    return Decision(conditions=done, fields=fields, again=_until(LIFETIME, age))


def _unanswered(
    seen: RequestView, steps: Sequence[Create], problem: Condition | None, age: timedelta
) -> Decision:
    if problem is not None and age >= TIMEOUT:
        fields: dict[str, JSON] = {"phase": "Failed", "terminalMessage": problem.message}
        return Decision(conditions=(problem,), fields=fields, again=_until(LIFETIME, age))
    return Decision(
        tasks=tuple(Task((step,), conditions.EXPORT_CREATE_FAILED) for step in steps),
        conditions=() if problem is None else (problem,),
        again=_until(TIMEOUT, age),
    )


def _until(end: timedelta, age: timedelta) -> timedelta | None:
    return end - age if age < end else None


def _export(seen: RequestView, name: str, terms: Terms) -> Create | Condition | None:
    """Return the creation of an export, why there is none, or None where it is there already."""
    crd, live = seen.crds.get(name), seen.exports.get(name)
    if crd is None:
        message = f"CustomResourceDefinition {name} in the service provider cluster not found"
        return conditions.false(conditions.CRD_NOT_FOUND, message)
    if live is not None and not manifest.is_deleting(live):
        return None  # also if somebody else created it: claims and spec are not compared here
    if live is not None:
        message = f"APIServiceExport {name} is being deleted; it is made again when it is gone"
        return conditions.false(conditions.EXPORT_CREATE_FAILED, message)
    if message := _withheld(seen, name):
        return conditions.false(conditions.NOT_LISTED, message)
    template = seen.templates.get(name)
    if template is None:
        offered = ", ".join(sorted(set(seen.offered))) or "nothing"
        message = f"No APIServiceExportTemplate offers {name}; offered: {offered}"
        return conditions.false(conditions.TEMPLATE_NOT_FOUND, message)
    return _new_export(seen, crd, template, terms)


def _withheld(seen: RequestView, name: str) -> str:
    """Return the reason why a space does not get an offer that others get, or ""."""
    if seen.listed is not None:
        if name in seen.listed:
            return ""
        return f"No AppClusterBinding of this app cluster lists {name} in apiExports"
    if seen.bound is None or name in seen.bound:
        return ""
    return (
        f"{name} was not bound for this app cluster at the front door, which asks for the right; "
        "bind it there (klutchctl bind, kubectl bind)"
    )


def _new_export(
    seen: RequestView, crd: Manifest, template: Manifest, terms: Terms
) -> Create | Condition:
    if problem := exports_of.scope_problem(crd, terms.informer_scope):
        return conditions.false(conditions.SCOPE_NOT_SUPPORTED, problem)
    opened = machinery.opening(template)
    spec = exports_of.exported(crd, opened)
    if isinstance(spec, Unexportable):
        return conditions.false(conditions.CRD_INVALID, spec.why)
    space, claims = manifest.namespace_of(seen.request), api.permission_claims_of(template)
    made = exports_of.new_export(space, spec, claims, terms=terms, crd=crd, opened=opened)
    taken = {**_of_template(crd, template), **manifest.annotations_of(made)}
    return Create(api.API_SERVICE_EXPORT, manifest.put(made, taken, "metadata", "annotations"))


def _refusal(seen: RequestView) -> Condition | None:
    """Return the failure of the last try to create an export, if it failed."""
    last = conditions.get(seen.request, conditions.EXPORTS_READY)
    cause = conditions.EXPORT_CREATE_FAILED
    if last is None or (last.status, last.reason) != (conditions.FALSE, cause.reason):
        return None
    return conditions.false(cause, last.message)
