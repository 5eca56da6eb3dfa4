"""What is sent to change an object by server-side apply: all that we state, and nothing less.

An apply drops what its manager owned and no longer states. So fields that we own and only state
on creation are sent again as they are (mapping.md 0, Field removal). Pure.
"""

import json
from collections.abc import Mapping, Sequence

from reconciler.core import keys
from reconciler.core.manifest import (
    JSON,
    Manifest,
    covers,
    get,
    get_map,
    get_maps,
    get_text,
    put,
    resource_version_of,
    uid_of,
)
from reconciler.core.normalize import normalize

_ITSELF = "."


def applied(live: Manifest, stated: Manifest, *, whole: Manifest) -> Manifest:
    """Return the body that brings `live` to `stated`; what the object holds of others stays.

    `whole` is all that we state when we create the object: what we own of it beyond `stated`
    keeps its live value, and what we own beyond `whole` is dropped. The body carries uid and
    resourceVersion, so that it fits only this object as it was read.
    """
    settled = _settled(stated, live, normalize(stated), normalize(live))
    fields = _applied_fields(live)
    body = _kept(fields, live, whole, settled)
    assert isinstance(body, Mapping)
    metadata = {**get_map(body, "metadata"), **_identity(live)}
    typed = {"apiVersion": stated["apiVersion"], "kind": stated["kind"]}
    return put({**body, **typed}, metadata, "metadata")


def _settled(stated: JSON, live: JSON, wanted: JSON, held: JSON) -> JSON:
    """Return `stated` with what agrees already as it stands: other words would be a change.

    `wanted` and `held` are the same two, normalized.
    """
    if isinstance(stated, Mapping) and isinstance(live, Mapping):
        pairs = {key: (get(wanted, key), get(held, key)) for key in stated}
        return {
            key: _settled(value, live.get(key), *pairs[key])
            for key, value in stated.items()
            if key in live or not covers(pairs[key][1], pairs[key][0])
        }
    both = isinstance(stated, list | tuple) and isinstance(wanted, list | tuple)
    return live if both and isinstance(held, list | tuple) and covers(held, wanted) else stated


def _identity(live: Manifest) -> dict[str, JSON]:
    known = get_map(live, "metadata")
    found = {key: known[key] for key in ("name", "namespace") if key in known}
    return {**found, "uid": uid_of(live), "resourceVersion": resource_version_of(live)}


def _applied_fields(live: Manifest) -> Manifest:
    """Return the FieldsV1 that the next apply of ours starts from."""
    for entry in get_maps(live, "metadata", "managedFields"):
        ours = get_text(entry, "manager") == keys.MANAGER_CLI
        if ours and get_text(entry, "operation") == "Apply" and not get_text(entry, "subresource"):
            return get_map(entry, "fieldsV1")
    return {}


def _kept(fields: Manifest, live: JSON, whole: JSON, stated: JSON) -> JSON:
    """Return `stated` with the live values of fields that we own and `whole` states."""
    steps = {step: get_map(parts) for step, parts in fields.items() if step != _ITSELF}
    if not steps:
        return stated if stated is not None else live
    if isinstance(live, Mapping):
        return _kept_map(steps, live, get_map(whole), get_map(stated))
    if isinstance(live, list | tuple) and all(step.startswith("k:") for step in steps):
        return _kept_items(steps, live, _items(whole), _items(stated))
    return stated if stated is not None else live


def _kept_map(
    steps: Mapping[str, Manifest], live: Manifest, whole: Manifest, stated: Manifest
) -> Manifest:
    result = dict(stated)
    for step, parts in steps.items():
        name = step.removeprefix("f:")
        if name in whole and name in live:
            result[name] = _kept(parts, live[name], whole[name], stated.get(name))
    return result


def _kept_items(
    steps: Mapping[str, Manifest],
    live: Sequence[JSON],
    whole: Sequence[Manifest],
    stated: Sequence[Manifest],
) -> list[JSON]:
    result: list[JSON] = list(stated)
    for step, parts in steps.items():
        wanted: Manifest = json.loads(step.removeprefix("k:"))
        held, known = _keyed(_items(live), wanted), _keyed(whole, wanted)
        if held is None or known is None:
            continue
        said = _keyed(stated, wanted)
        merged = _kept(parts, held, known, said)
        if said is None:
            result.append(merged)
        else:
            result[result.index(said)] = merged
    return result


def _items(value: JSON) -> list[Manifest]:
    return get_maps({"items": value}, "items")


def _keyed(items: Sequence[Manifest], wanted: Manifest) -> Manifest | None:
    for item in items:
        if all(item.get(key) == value for key, value in wanted.items()):
            return item
    return None
