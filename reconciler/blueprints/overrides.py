"""The overrides of a konnector's container: how they are laid over it, and which are allowed.

They are a strategic merge patch as Kubernetes does it (protocol-bind.md A.7, C.6), down to the
order of its arrays, so that the same overrides give the same container as the original. Unlike
there, false, 0 and "" can be set, a probe with another handler replaces the one that was there, and
so does a variable with another source. A null says nothing: an API server drops it from an
AppClusterBinding, too.

On the control plane not all are allowed (trust.md T5): a user who may create an AppClusterBinding
is not always one who may run any container there. An image with its arguments is as far as it goes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from reconciler.core import names
from reconciler.core.manifest import JSON, Manifest, get_map, get_maps, get_text

_KEYED: Final = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
# How a probe asks, or what a hook does.
HANDLERS: Final = frozenset({"exec", "grpc", "httpGet", "sleep", "tcpSocket"})
# Of these fields of one object there can be only one.
_EXCLUSIVE: Final = (
    HANDLERS,
    frozenset({"value", "valueFrom"}),
)

ALLOWED: Final = "image, imagePullPolicy, args, env, resources and probes"

_PLAIN: Final = frozenset({"image", "imagePullPolicy", "args"})
_PROBES: Final = frozenset({"livenessProbe", "readinessProbe", "startupProbe"})
_RESOURCES: Final = frozenset({"limits", "requests"})
_VARIABLE: Final = frozenset({"name", "value", "valueFrom"})
# Nothing of these is beyond the Pod and its namespace; a Secret is looked at by name.
_SOURCES: Final = frozenset({"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"})
# From where a probe is sent, others than the Pod can be reached.
_AIMS: Final = ("httpGet", "tcpSocket")


def merged(container: Manifest, overrides: Manifest) -> Manifest:
    """Return the container with everything that `overrides` say."""
    result = dict(container)
    for field, value in overrides.items():
        key = _KEYED.get(field)
        below = container.get(field)
        if value is None:
            continue
        if key and isinstance(value, list | tuple) and isinstance(below, list | tuple):
            result[field] = _merged_items(below, value, key)
        else:
            result[field] = _merged(below, value)
    return result


def _merged(below: JSON, over: JSON) -> JSON:
    if not isinstance(over, Mapping):
        return over
    kept = dict(below) if isinstance(below, Mapping) else {}
    said = {key: value for key, value in over.items() if value is not None}
    for rivals in _EXCLUSIVE:
        if rivals & said.keys():
            kept = {key: value for key, value in kept.items() if key not in rivals - said.keys()}
    return kept | {key: _merged(kept.get(key), value) for key, value in said.items()}


def _merged_items(below: Sequence[JSON], over: Sequence[JSON], key: str) -> list[JSON]:
    """Merge by key. What `over` adds goes before what it leaves alone, as Kubernetes has it."""
    places = {_key(item, key): place for place, item in enumerate(below)}
    said = {_key(item, key) for item in over}
    patched = [
        (places.get(_key(item, key), -1), _merged(_item(below, places, _key(item, key)), item))
        for item in over
    ]
    rest = [(place, item) for place, item in enumerate(below) if _key(item, key) not in said]
    items: list[JSON] = []
    while patched and rest:
        first = patched if patched[0][0] < rest[0][0] else rest
        items.append(first.pop(0)[1])
    return [*items, *(item for _, item in [*patched, *rest])]


def _item(items: Sequence[JSON], places: Mapping[JSON, int], key: JSON) -> JSON:
    return items[places[key]] if key in places else None


def _key(item: JSON, key: str) -> JSON:
    return item.get(key) if isinstance(item, Mapping) else None


def refused(overrides: Manifest, secret: str) -> Iterator[str]:
    """Yield the path of each field that is not allowed.

    `secret` is the one Secret that variables may read: the konnector's own kubeconfig.
    """
    for field, value in sorted(overrides.items()):
        if value is None or field in _PLAIN:
            continue
        if field == "name":
            if value != names.KONNECTOR:
                yield field
        elif field == "env":
            yield from _variables(overrides, secret)
        elif field == "resources":
            yield from _others(get_map(overrides, field), _RESOURCES, field)
        elif field in _PROBES:
            yield from _aimed(get_map(overrides, field), field)
        else:
            yield field


def _variables(overrides: Manifest, secret: str) -> Iterator[str]:
    for place, variable in enumerate(get_maps(overrides, "env")):
        path = f"env[{place}]"
        yield from _others(variable, _VARIABLE, path)
        source = get_map(variable, "valueFrom")
        yield from _others(source, _SOURCES, f"{path}.valueFrom")
        if (
            source.get("secretKeyRef") is not None
            and get_text(source, "secretKeyRef", "name") != secret
        ):
            yield f"{path}.valueFrom.secretKeyRef"


def _aimed(probe: Manifest, path: str) -> Iterator[str]:
    for aim in _AIMS:
        if get_text(probe, aim, "host"):
            yield f"{path}.{aim}.host"


def _others(found: Manifest, known: frozenset[str], path: str) -> Iterator[str]:
    for field, value in sorted(found.items()):
        if value is not None and field not in known:
            yield f"{path}.{field}"
