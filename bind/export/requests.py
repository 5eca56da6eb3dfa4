"""How a request for exports is answered. Pure.

The state machine of protocol-bind.md C.2, mended as F3 and F24 tell: on time, and with a
condition for whatever stands in the way. What a request says about claims and versions does not
count: the template does. Refuses to know what becomes of an export afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from bind.bounds import MOST_RESOURCES
from reconciler.api.exports import (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    permission_claims_of,
)
from reconciler.blueprints import export as exports_of
from reconciler.blueprints.export import Terms, Unexportable
from reconciler.core import conditions, manifest, reasons
from reconciler.core.conditions import Condition
from reconciler.core.decision import NOTHING, Create, Decision, Task, deletion
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.times import created

# Since the creation of the request: then it fails, and then it goes, whatever the answer.
TIMEOUT: Final = timedelta(minutes=1)
LIFETIME: Final = timedelta(minutes=10)
_PENDING: Final = "Pending"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request, and what there is by the names that `resources` returns; what is not, is left out.

    `exports` are those in the request's namespace; `templates` the one that counts of each
    resource (`api.export_template.by_resource`). `offered` are the resources of all templates,
    for the message that one is missing. `listed` are the resources that the AppClusterBinding of
    the space lists, None where it never had one: then whatever is offered may be had. `cluster`
    names the control plane in a Ref.
    """

    cluster: str
    request: Manifest = field(repr=False)
    crds: Mapping[str, Manifest] = field(default_factory=dict, repr=False)
    exports: Mapping[str, Manifest] = field(default_factory=dict, repr=False)
    templates: Mapping[str, Manifest] = field(default_factory=dict, repr=False)
    offered: Sequence[str] = ()
    listed: frozenset[str] | None = None


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


def decide(seen: Seen, *, terms: Terms, now: datetime) -> Decision:
    """Return the exports that are to be made, and the answer once there is one.

    A request has succeeded when all its exports are seen, not when they were sent. `again` is when
    it fails or goes.
    """
    request = seen.request
    if manifest.is_deleting(request):
        return NOTHING
    age = max(now - (created(request) or now), timedelta())
    if (manifest.get_text(request, "status", "phase") or _PENDING) != _PENDING:
        return _answered(seen, age)
    steps = list[Create]()
    if len(resources(request)) > MOST_RESOURCES:
        message = f"It asks for more than {MOST_RESOURCES} resources: ask for them one by one"
        return _unanswered(seen, steps, conditions.false(reasons.TOO_MANY, message), age)
    for name in resources(request):
        step = _export(seen, name, terms)
        if isinstance(step, Condition):
            return _unanswered(seen, steps, step, age)
        if step is not None:
            steps.append(step)
    if steps:
        return _unanswered(seen, steps, _refusal(seen), age)
    done = (conditions.true(reasons.EXPORTS_READY),)
    fields: dict[str, JSON] = {"phase": "Succeeded"}
    return Decision(conditions=done, fields=fields, again=_until(LIFETIME, age))


def _answered(seen: Seen, age: timedelta) -> Decision:
    if age < LIFETIME:
        return Decision(again=LIFETIME - age)
    step = deletion(seen.cluster, API_SERVICE_EXPORT_REQUEST, seen.request)
    return Decision(tasks=(Task((step,)),))


def _unanswered(
    seen: Seen, steps: Sequence[Create], problem: Condition | None, age: timedelta
) -> Decision:
    if problem is not None and age >= TIMEOUT:
        fields: dict[str, JSON] = {"phase": "Failed", "terminalMessage": problem.message}
        return Decision(conditions=(problem,), fields=fields, again=_until(LIFETIME, age))
    return Decision(
        tasks=tuple(Task((step,), reasons.EXPORT_CREATE_FAILED) for step in steps),
        conditions=() if problem is None else (problem,),
        again=_until(TIMEOUT, age),
    )


def _until(end: timedelta, age: timedelta) -> timedelta | None:
    return end - age if age < end else None


def _export(seen: Seen, name: str, terms: Terms) -> Create | Condition | None:
    """Return the creation of an export, why there is none, or None where it is there already."""
    crd, live = seen.crds.get(name), seen.exports.get(name)
    if crd is None:
        message = f"CustomResourceDefinition {name} in the service provider cluster not found"
        return conditions.false(reasons.CRD_NOT_FOUND, message)
    if live is not None and not manifest.is_deleting(live):
        return None  # whoever made it: neither its claims nor its spec are compared here
    if live is not None:
        message = f"APIServiceExport {name} is being deleted; it is made anew when it is gone"
        return conditions.false(reasons.EXPORT_CREATE_FAILED, message)
    if seen.listed is not None and name not in seen.listed:
        message = f"No AppClusterBinding of this app cluster lists {name} in apiExports"
        return conditions.false(reasons.NOT_LISTED, message)
    template = seen.templates.get(name)
    if template is None:
        return conditions.false(reasons.TEMPLATE_NOT_FOUND, _not_offered(name, seen.offered))
    return _new_export(seen, crd, template, terms)


def _new_export(seen: Seen, crd: Manifest, template: Manifest, terms: Terms) -> Create | Condition:
    if problem := exports_of.scope_problem(crd, terms.informer_scope):
        return conditions.false(reasons.SCOPE_NOT_SUPPORTED, problem)
    spec = exports_of.exported(crd)
    if isinstance(spec, Unexportable):
        return conditions.false(reasons.CRD_INVALID, spec.why)
    space, claims = manifest.namespace_of(seen.request), permission_claims_of(template)
    return Create(API_SERVICE_EXPORT, exports_of.new_export(space, spec, claims, terms=terms))


def _not_offered(name: str, offered: Sequence[str]) -> str:
    what = ", ".join(sorted(set(offered))) or "nothing"
    return f"No APIServiceExportTemplate offers {name}; offered: {what}"


def _refusal(seen: Seen) -> Condition | None:
    """Return what the last try to create an export came to, if it came to nothing."""
    present = conditions.parse(manifest.get_list(seen.request, "status", "conditions"))
    last = conditions.find(present, reasons.EXPORTS_READY)
    cause = reasons.EXPORT_CREATE_FAILED
    if last is None or (last.status, last.reason) != (conditions.FALSE, cause.reason):
        return None
    return conditions.false(cause, last.message)
