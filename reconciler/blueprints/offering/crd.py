"""Builds the CRDs of an offering: for its instances, and for bindings if a plan is bindable.

They hold what every API server takes without a warning. Does not know what was there before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.blueprints.objects import Marks, build
from reconciler.blueprints.offering import kinds, parameters
from reconciler.blueprints.offering.catalogue import CatalogueFault, Offering, Plan
from reconciler.blueprints.offering.kinds import VERSION, Known, Named
from reconciler.blueprints.offering.outcomes import line, names
from reconciler.blueprints.offering.parameters import FREE, Parameters
from reconciler.core import keys
from reconciler.core.manifest import JSON, Manifest, canonical
from reconciler.core.names import MAX_LABEL, MAX_SUBDOMAIN
from reconciler.core.refs import CRD, Kind

MOST_OCTETS: Final = 400 * 1024
_MOST_NOTED: Final = 200 * 1024  # octets of annotations; 256 KiB is what there may be
LONGEST_BINDING: Final = MAX_SUBDOMAIN - len("-creds")

_DURATION: Final[Manifest] = {
    "type": "string",
    "maxLength": 64,
    "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
}
_TEXT: Final[Manifest] = {"type": "string"}
_TIME: Final[Manifest] = {"type": "string", "format": "date-time"}


@dataclass(frozen=True, slots=True)
class Made:
    """A CRD, and the warnings that it leaves."""

    crd: Manifest
    warnings: tuple[str, ...] = ()


def of_instances(offering: Offering, named: Named) -> Made:
    """Return the CRD of an offering's instances. Raises CatalogueFault where it is too large."""
    plans = sorted(offering.plans, key=lambda plan: plan.name)
    fixed = [plan.name for plan in plans if not plan.plan_updateable]
    rule = parameters.fixed_plans(fixed, [plan.name for plan in plans])

    def crd(found: Parameters) -> Manifest:
        spec = _instance_spec(plans, found, rule)
        schema = _schema(_words(offering), spec, _INSTANCE_STATUS, MAX_LABEL)
        return _crd(named.instances, _marks(offering, named, plans), schema, _INSTANCE_COLUMNS)

    return _fitting(offering, parameters.of_instances(plans), crd)


def of_bindings(offering: Offering, named: Named) -> Made | None:
    """Return the CRD of an offering's bindings; None where no plan has any.

    Raises CatalogueFault where it is too large.
    """
    plans = [plan for plan in sorted(offering.plans, key=lambda plan: plan.name) if plan.bindable]
    if not plans:
        return None

    def crd(found: Parameters) -> Manifest:
        words = f"Credentials for {named.instances.kind}: {_words(offering)}"
        marks = _marks(offering, named, plans, instances=named.instances.plural)
        spec = _binding_spec(named, found)
        schema = _schema(words, spec, _BINDING_STATUS, LONGEST_BINDING)
        return _crd(named.bindings, marks, schema, _BINDING_COLUMNS)

    made = _fitting(offering, parameters.of_bindings(plans), crd)
    return Made(made.crd, tuple(f"bindings: {warning}" for warning in made.warnings))


def _fitting(offering: Offering, found: Parameters, crd: Callable[[Parameters], Manifest]) -> Made:
    """Return the CRD; where it is too large, with any object for parameters."""
    made = crd(found)
    warnings = found.warnings
    if len(canonical(made)) > MOST_OCTETS:
        made = crd(Parameters(FREE))
        size = f"more than {MOST_OCTETS // 1024} KiB"
        of = f"plan {names([plan.name for plan in offering.plans])}: parameters"
        warnings = (*warnings, f"{of}: {size}: klutch-osb alone checks them")
    if len(canonical(made)) > MOST_OCTETS or len(canonical(made["metadata"])) > _MOST_NOTED:
        many = f"{len(offering.plans)} plans are too many for a kind: name some of them in `plans`"
        raise CatalogueFault([f"offering {offering.name}: {many}"])
    return Made(made, warnings)


def _marks(
    offering: Offering, named: Named, plans: Sequence[Plan], *, instances: str = ""
) -> Marks:
    ids = {plan.name: plan.id for plan in plans}
    noted = {keys.OSB_OFFERING: offering.id, keys.OSB_PLANS: canonical(ids).decode()}
    if instances:
        noted[keys.OSB_INSTANCES] = instances
    else:
        noted[keys.OSB_OFFERED] = kinds.noted(Known(named.stem, offering))
    return Marks({keys.OSB_BROKER: named.broker}, noted)


def _words(offering: Offering) -> str:
    return line(offering.description) or line(offering.name)


def _schema(words: str, spec: Manifest, status: Manifest, longest: int) -> Manifest:
    """Return the schema of a kind with names of so many characters at most."""
    size = f"self.metadata.name.size() <= {longest}"
    name = parameters.rule(size, f"a name has {longest} characters at most")
    return {
        "description": words,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [name],
    }


def _crd(kind: Kind, marks: Marks, schema: Manifest, columns: Sequence[Manifest]) -> Manifest:
    version: dict[str, JSON] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
    }
    spec: dict[str, JSON] = {
        "group": kind.group,
        "names": names,
        "scope": "Namespaced",
        "versions": [version],
    }
    return build(CRD, kind.resource, marks=marks, spec=spec)


def _instance_spec(plans: Sequence[Plan], found: Parameters, fixed: Manifest | None) -> Manifest:
    listed = [plan.name for plan in plans]
    plan: dict[str, JSON] = {
        "description": line(f"One of: {'; '.join(map(_plan_words, plans))}"),
        "type": "string",
        "enum": listed,
        "maxLength": max(map(len, listed)),
    }
    if len(listed) == 1:
        plan["default"] = listed[0]
    if fixed is not None:
        plan["x-kubernetes-validations"] = [fixed]
    properties: dict[str, JSON] = {
        "plan": plan,
        "parameters": _parameters(found, "Parameters for the broker, besides the plan."),
        "deletionPolicy": {
            "description": "When the instance is deleted with this object. WhenUnbound: after its"
            " last binding. Immediate: at once, with its bindings. Retain: never.",
            "type": "string",
            "enum": ["WhenUnbound", "Immediate", "Retain"],
            "default": "WhenUnbound",
        },
        "maintenanceVersion": {
            "description": "Version to update to: status.maintenance.available.",
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
        },
    }
    required = [*(["plan"] if len(listed) > 1 else []), *found.required]
    return _spec("Desired state.", properties, required, ())


def _plan_words(plan: Plan) -> str:
    words = line(plan.description, longest=120)
    return f"{plan.name} ({words})" if words else plan.name


def _binding_spec(named: Named, found: Parameters) -> Manifest:
    reference = parameters.rule("self == oldSelf", "instanceRef is immutable")
    properties: dict[str, JSON] = {
        "instanceRef": {
            "description": f"Name of the {named.instances.kind} in this namespace.",
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_LABEL,
            "x-kubernetes-validations": [reference],
        },
        "parameters": _parameters(found, "Parameters for the broker, for new credentials."),
        "secretName": {
            "description": "Name of the Secret with the credentials. Default: this object's name,"
            " followed by -creds.",
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_SUBDOMAIN,
            "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        },
        "rotation": {
            "description": "Rotation of the credentials.",
            "type": "object",
            "properties": {
                "every": {"description": "Interval between two rotations.", **_DURATION},
                "overlap": {
                    "description": "Time that old credentials stay valid. Default: 1h.",
                    **_DURATION,
                },
                "request": {
                    "description": "Any new text requests one rotation.",
                    "type": "string",
                    "maxLength": 256,
                },
            },
        },
    }
    rules = [parameters.immutable("secretName"), parameters.immutable("parameters")]
    return _spec("Desired state.", properties, ["instanceRef", *found.required], rules)


def _parameters(found: Parameters, words: str) -> Manifest:
    return {"description": f"{words} {found.words}".strip(), **found.form}


def _spec(
    words: str, properties: Mapping[str, JSON], required: Sequence[str], rules: Sequence[Manifest]
) -> Manifest:
    spec: dict[str, JSON] = {"description": words, "type": "object", "properties": properties}
    if required:
        spec["required"] = sorted(required)
    if rules:
        spec["x-kubernetes-validations"] = rules
    return spec


def _column(name: str, path: str, kind: str = "string") -> dict[str, JSON]:
    return {"name": name, "type": kind, "jsonPath": path}


_READY: Final = _column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_AGE: Final = _column("Age", ".metadata.creationTimestamp", "date")
_INSTANCE_COLUMNS: Final = (_column("Plan", ".spec.plan"), _READY, _AGE)
_BINDING_COLUMNS: Final = (_column("Instance", ".spec.instanceRef"), _READY, _AGE)


def _object(words: str = "", **properties: JSON) -> dict[str, JSON]:
    described: dict[str, JSON] = {"description": words} if words else {}
    return {**described, "type": "object", "properties": properties}


_CONDITION: Final[Manifest] = {
    **_object(
        type={"description": "Name of the condition.", **_TEXT},
        status={"description": "True, False or Unknown.", **_TEXT},
        severity={
            "description": "Error, Warning or Info if the status is False. Otherwise empty.",
            **_TEXT,
        },
        lastTransitionTime={"description": "Time of the condition's last change.", **_TIME},
        reason={"description": "Reason in one word, for programs.", **_TEXT},
        message={"description": "Details, for people.", **_TEXT},
    ),
    "required": ["lastTransitionTime", "status", "type"],
}
_CONDITIONS: Final[Manifest] = {
    "description": "Conditions of this object.",
    "type": "array",
    "items": _CONDITION,
}
_INSTANCE_STATUS: Final = _object(
    "Observed state.",
    phase={"description": "Pending, Provisioning, Ready, Updating, Deleting or Failed.", **_TEXT},
    instanceID={"description": "Id of the instance at the broker.", **_TEXT},
    plan={"description": "Current plan of the instance.", **_TEXT},
    dashboardURL={"description": "URL of the broker's dashboard for the instance.", **_TEXT},
    operation=_object(
        "Running operation at the broker.",
        verb=_TEXT,
        description={"description": "Description from the broker.", **_TEXT},
        since=_TIME,
    ),
    maintenance=_object(
        "Version of the instance, and version of its plan.",
        installed=_TEXT,
        available=_TEXT,
        description=_TEXT,
    ),
    conditions=_CONDITIONS,
)
_BINDING_STATUS: Final = _object(
    "Observed state.",
    phase={"description": "Pending, Binding, Ready, Rotating, Deleting or Failed.", **_TEXT},
    bindingID={"description": "Id of the binding at the broker.", **_TEXT},
    binding=_object("The Secret with the credentials.", name=_TEXT),
    endpoints={
        "description": "Addresses of the service.",
        "type": "array",
        "items": _object(host=_TEXT, ports={"type": "array", "items": _TEXT}, protocol=_TEXT),
    },
    expiresAt={"description": "Time when the credentials expire.", **_TIME},
    renewBefore={"description": "Time when a rotation is due.", **_TIME},
    rotatedAt={"description": "Time of the last rotation.", **_TIME},
    previous=_object("Credentials that are still valid.", bindingID=_TEXT, until=_TIME),
    conditions=_CONDITIONS,
)
