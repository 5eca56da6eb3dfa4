"""A partial container laid over a whole one (`konnector.overrides`, protocol-bind.md A.7, C.6).

A strategic merge patch as Kubernetes does it, down to the order of its arrays, so that the same
overrides give the same container as the original. Unlike there, false, 0 and "" can be set, a
probe with another handler replaces the one that was there, and so does a variable with another
source. A null says nothing: an API server drops it from an AppClusterBinding, too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from reconciler.core.manifest import JSON, Manifest

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
    held = dict(below) if isinstance(below, Mapping) else {}
    said = {key: value for key, value in over.items() if value is not None}
    for rivals in _EXCLUSIVE:
        if rivals & said.keys():
            held = {key: value for key, value in held.items() if key not in rivals - said.keys()}
    return held | {key: _merged(held.get(key), value) for key, value in said.items()}


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
