"""Which kinds the model of an API server serves, and what it knows of their objects."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from jsonschema import Draft4Validator

from reconciler.core import refs
from tests.kit.typed import ATOMIC, DEDUCED, Type, copied

_OWNERS: Final = Type(keys=("uid",), item=ATOMIC)
_METADATA: Final = Type(
    fields={
        "name": DEDUCED,
        "namespace": DEDUCED,
        "labels": Type(element=DEDUCED),
        "annotations": Type(element=DEDUCED),
        "finalizers": Type(is_set=True, item=DEDUCED),
        "ownerReferences": _OWNERS,
        "generation": DEDUCED,
        "deletionTimestamp": DEDUCED,
        "deletionGracePeriodSeconds": DEDUCED,
    }
)
_CONDITIONS: Final = Type(fields={"conditions": Type(keys=("type",), item=Type(element=DEDUCED))})
_NAMED: Final = Type(keys=("name",), item=DEDUCED)
_CONTAINER: Final = Type(fields={"env": _NAMED, "volumeMounts": DEDUCED}, element=DEDUCED)
_POD: Final = Type(
    fields={
        "containers": Type(keys=("name",), item=_CONTAINER),
        "initContainers": Type(keys=("name",), item=_CONTAINER),
        "volumes": _NAMED,
    },
    element=DEDUCED,
)
_TEMPLATE: Final = Type(fields={"metadata": _METADATA, "spec": _POD})
_FREE: Final = Type(element=DEDUCED)
_BUILT_IN: Final[Mapping[refs.Kind, Mapping[str, Type]]] = {
    refs.NAMESPACE: {"spec": Type(fields={"finalizers": DEDUCED}), "status": _CONDITIONS},
    refs.SECRET: {"data": _FREE, "type": DEDUCED, "immutable": DEDUCED},
    refs.CONFIG_MAP: {"data": _FREE, "binaryData": _FREE, "immutable": DEDUCED},
    refs.SERVICE_ACCOUNT: {"secrets": _NAMED, "automountServiceAccountToken": DEDUCED},
    refs.RESOURCE_QUOTA: {},
    refs.LIMIT_RANGE: {},
    refs.NETWORK_POLICY: {},
    refs.EVENT: {},
    refs.LEASE: {"spec": Type(fields={}, element=DEDUCED)},
    refs.ROLE: {"rules": DEDUCED},
    refs.ROLE_BINDING: {"roleRef": ATOMIC, "subjects": DEDUCED},
    refs.CLUSTER_ROLE: {"rules": DEDUCED},
    refs.CLUSTER_ROLE_BINDING: {"roleRef": ATOMIC, "subjects": DEDUCED},
    refs.ADMISSION_POLICY: {},  # is stored, and holds nobody
    refs.ADMISSION_POLICY_BINDING: {},
    refs.DEPLOYMENT: {
        "spec": Type(fields={"template": _TEMPLATE, "selector": ATOMIC}, element=DEDUCED)
    },
    refs.CRD: {
        "spec": Type(fields={"names": _FREE, "versions": DEDUCED, "group": DEDUCED}, element=_FREE),
        "status": _CONDITIONS,
    },
}
_WITH_STATUS: Final = frozenset({refs.NAMESPACE, refs.DEPLOYMENT, refs.CRD, refs.RESOURCE_QUOTA})
_WITH_GENERATION: Final = frozenset({refs.DEPLOYMENT, refs.CRD})


@dataclass(frozen=True)
class Served:
    """One version of a kind; `schema` is a CRD's, None for kinds that clusters come with."""

    kind: refs.Kind
    type: Type
    has_status: bool
    has_generation: bool
    schema: Mapping[str, Any] | None = None
    singular: str = field(default="", compare=False)

    @property
    def resource(self) -> tuple[str, str]:
        return self.kind.group, self.kind.plural

    @functools.cached_property
    def _validator(self) -> Draft4Validator | None:
        return None if self.schema is None else Draft4Validator(self.schema)

    def completed(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Prune what a CRD's schema does not know, and default what is missing."""
        if self.schema is None:
            default = _DEFAULTS.get(self.kind)
            return manifest if default is None else default(manifest)
        kept = {key: manifest[key] for key in ("apiVersion", "kind", "metadata") if key in manifest}
        rest = {key: value for key, value in manifest.items() if key not in kept}
        return {**kept, **_defaulted(self.schema, _pruned(self.schema, rest))}

    def mistakes(self, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the fields that a CRD's schema refuses, and why."""
        if self._validator is None:
            return []
        found = self._validator.iter_errors(manifest)
        return [(".".join(map(str, one.absolute_path)), one.message) for one in found]


def _named_crd(crd: dict[str, Any]) -> dict[str, Any]:
    spec = crd["spec"]
    kind = spec["names"]["kind"]
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **spec["names"]}
    return {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


def _named_namespace(namespace: dict[str, Any]) -> dict[str, Any]:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {**namespace, "metadata": {**metadata, "labels": labels}}


_DEFAULTS: Final[Mapping[refs.Kind, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    refs.NAMESPACE: _named_namespace,
    refs.SECRET: lambda secret: {"type": "Opaque", **secret},
    refs.CRD: _named_crd,
}


def built_in() -> Iterator[Served]:
    for kind, fields in _BUILT_IN.items():
        of = Type(fields={**_HEAD, **fields}, element=DEDUCED)
        yield Served(kind, of, kind in _WITH_STATUS, kind in _WITH_GENERATION)


_HEAD: Final = {"apiVersion": DEDUCED, "kind": DEDUCED, "metadata": _METADATA}


def of_crd(crd: Mapping[str, Any]) -> Iterator[Served]:
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if version.get("served"):
            namespaced = spec["scope"] == "Namespaced"
            schema = (version.get("schema") or {}).get("openAPIV3Schema", {"type": "object"})
            kind = refs.Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                namespaced=namespaced,
            )
            of = _type_of(schema, keeps=False)
            made = replace(of, fields={**of.fields, **_HEAD})
            has_status = "status" in (version.get("subresources") or {})
            yield Served(kind, made, has_status, True, _strict(schema), names.get("singular", ""))


def _type_of(schema: Mapping[str, Any], *, keeps: bool) -> Type:
    keeps = keeps or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties = schema.get("properties", {})
    if "items" in schema:
        keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        item = schema["items"].get("properties", {})
        defaults = {key: item[key]["default"] for key in keys if "default" in item.get(key, {})}
        return Type(
            item=_type_of(schema["items"], keeps=keeps),
            keys=keys,
            is_set=schema.get("x-kubernetes-list-type") == "set",
            key_defaults=defaults,
        )
    if schema.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    fields = {key: _type_of(below, keeps=keeps) for key, below in properties.items()}
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        return Type(fields=fields, element=_type_of(more, keeps=keeps))
    if schema.get("type") == "object" and (keeps or not properties):
        return Type(fields=fields, element=DEDUCED)
    return Type(fields=fields, is_closed=schema.get("type") == "object")


def _pruned(schema: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-int-or-string"):
        return value
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    made = {}
    for key, item in value.items():
        if key in known:
            made[key] = _pruned(known[key], item)
        elif isinstance(more, Mapping):
            made[key] = _pruned(more, item)
        elif keeps or more is True:
            made[key] = item
    return made


def _defaulted(schema: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    made, more = dict(value), schema.get("additionalProperties")
    for key, below in schema.get("properties", {}).items():
        if (
            "default" in below
            and made.get(key) is None
            and not (key in made and below.get("nullable"))
        ):
            made[key] = copied(below["default"])
        if key in made:
            made[key] = _defaulted(below, made[key])
    if isinstance(more, Mapping):
        known = schema.get("properties", {})
        made = {k: v if k in known else _defaulted(more, v) for k, v in made.items()}
    return made


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(schema)
    if schema.get("nullable") and "type" in schema:
        made["type"] = [schema["type"], "null"]
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    made.pop("format", None)
    if "properties" in schema:
        made["properties"] = {key: _strict(below) for key, below in schema["properties"].items()}
    for key in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(key), Mapping):
            made[key] = _strict(schema[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in schema:
            made[key] = [_strict(below) for below in schema[key]]
    return made
