"""Kinds as Crossplane defines them, and what somebody may try with their machinery."""

from typing import Any, Final

from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.core.manifest import Manifest, get_text, ref_of
from reconciler.core.refs import COMPOSITE_DEFINITION, CRD
from tests.support.bound_scenes import Scene, served, until
from tests.support.clusters import LiveCluster
from tests.support.definitions import definition
from tests.support.konnector_scenes import redefine

_TEXT: Final = {"type": "string"}
_NAMED: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["name"],
    "properties": dict.fromkeys(("apiVersion", "kind", "name", "namespace"), _TEXT),
}
_LABELS: Final = {"type": "object", "additionalProperties": _TEXT}
_SELECTOR: Final = {"type": "object", "properties": {"matchLabels": _LABELS}}
_BOTH: Final[dict[str, Any]] = {
    "compositionRef": _NAMED,
    "compositionSelector": _SELECTOR,
    "compositionRevisionRef": _NAMED,
    "compositionRevisionSelector": _SELECTOR,
    "compositionUpdatePolicy": {**_TEXT, "default": "Automatic"},
    "resourceRefs": {"type": "array", "items": _NAMED},
}
_OF_CLAIMS: Final[dict[str, Any]] = {
    **_BOTH,
    "claimRef": _NAMED,
    "compositeDeletePolicy": {**_TEXT, "default": "Foreground"},
    "publishConnectionDetailsTo": _NAMED,
    "resourceRef": _NAMED,
    "writeConnectionSecretToRef": _NAMED,
}
_ANOTHERS: Final = {"apiVersion": "x.example/v1", "kind": "X", "name": "anothers"}
_OF_ADMINS: Final = {"matchLabels": {"of": "admins"}}
_VALUES: Final[dict[str, Any]] = {
    "compositionSelector": _OF_ADMINS,
    "compositionRevisionSelector": _OF_ADMINS,
    "compositionUpdatePolicy": "Manual",
    "compositeDeletePolicy": "Background",
    "resourceRefs": [_ANOTHERS],
}
# Labels and annotations by which Crossplane, or a composition, finds what is composed.
MARKS: Final = (
    *(("labels", one) for one in ("claim-name", "claim-namespace", "composite")),
    *(
        ("annotations", one)
        for one in (
            "composition-resource-name",
            "external-name",
            "paused",
            "external-create-pending",
        )
    ),
)
SMALL: Final[Manifest] = {"compositionRef": {"name": "small"}}


def attempts(*, second: bool) -> dict[str, Any]:
    """Return what somebody may say in each field of the machinery, to reach what is another's."""
    fields = _BOTH if second else _OF_CLAIMS
    return {name: _VALUES.get(name, {**_ANOTHERS, "namespace": "theirs"}) for name in fields}


def placed(spec: Manifest, *, second: bool) -> dict[str, Any]:
    """Return a spec with these fields where 2.x has them, or 1.20."""
    return {"size": "1Gi", **({"crossplane": spec} if second else spec)}


def _version(*, second: bool) -> dict[str, Any]:
    fields: dict[str, Any] = _BOTH if second else _OF_CLAIMS
    rules = [{"rule": "self.compositionUpdatePolicy != 'x'"}, {"rule": "has(self.compositionRef)"}]
    here: dict[str, Any] = {
        "type": "object",
        "required": ["compositionUpdatePolicy", "compositionRef"],
        "properties": fields,
        "x-kubernetes-validations": rules,
    }
    spec: Any = {"type": "object", "properties": {"size": _TEXT, "crossplane": here}}
    if not second:
        spec = {**here, "properties": {"size": _TEXT, **fields}}
    number = {"observedGeneration": {"type": "integer"}}
    one = {"type": "object", "properties": {"type": _TEXT, "status": _TEXT, **number}}
    said = {"conditions": {"type": "array", "items": one}, "phase": _TEXT, **number}
    status = {"type": "object", "properties": said}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    path = ".spec.crossplane" if second else ".spec"
    columns = [
        {"name": name, "type": "string", "jsonPath": f"{path}.{field}.name"}
        for name, field in (("C", "compositionRef"), ("R", "compositionRevisionRef"))
    ]
    return {
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.size"}],
    }


async def compose(scene: Scene, *, second: bool = False) -> None:
    """Have the kind be one of Crossplane's, of 2.x or of 1.20."""
    await redefine(scene.plane, scene, lambda one: one.update(_version(second=second)))


async def serve_definitions(live: LiveCluster) -> None:
    """Let a control plane have the kind of Crossplane's definitions, which stays."""
    kind = COMPOSITE_DEFINITION
    await live.cluster.apply(definition(kind), CRD, manager="crossplane", force=True)
    await until(lambda: served(live, kind))


async def note_template(scene: Scene, notes: Manifest) -> None:
    plane = scene.plane.cluster
    (template,) = [
        one
        for one in (await plane.list(API_SERVICE_EXPORT_TEMPLATE)).items
        if get_text(one, "spec", "APIServiceSelector", "group") == scene.offer.group
    ]
    ref = ref_of(plane.name, API_SERVICE_EXPORT_TEMPLATE, template)
    await plane.merge_patch(ref, {"metadata": {"annotations": notes}}, manager="provider")
