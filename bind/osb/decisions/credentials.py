"""Builds the Secret of a binding from a broker's credentials, and compares it.

A Provisioned Service (servicebinding.io). Whose Secret it is, its owner says; a name that somebody
else has is left alone. What the Secret holds is never told in a text.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from bind.osb.decisions.record import Record, digest_of
from bind.osb.decisions.view import BindingView
from reconciler.core import keys, manifest
from reconciler.core.decision import Create, Delete, Patch, deletion, merge_diff, modification
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret

State: TypeAlias = Literal["Unread", "Absent", "Taken", "Edited", "Kept"]

UNREAD: Final = "Unread"
ABSENT: Final = "Absent"
TAKEN: Final = "Taken"  # somebody else's
EDITED: Final = "Edited"
KEPT: Final = "Kept"

MOST_OCTETS: Final = 1024 * 1024  # that an API server takes in the values of a Secret
_LONGEST_KEY: Final = 253
_NO_KEY: Final = re.compile(r"[^-._a-zA-Z0-9]")


def name_of(claim: Manifest) -> str:
    """Return the name of a binding's Secret."""
    named = manifest.get_text(claim, "spec", "secretName")
    return named or f"{manifest.name_of(claim)}-creds"


def secret_of(binding: BindingView, record: Record, credentials: Secret) -> Manifest | None:
    """Return the Secret of a binding that is there; None for credentials that fit into none."""
    assert binding.live is not None
    values = _values(json.loads(credentials.reveal()))
    values = {"type": binding.kind.stem, "provider": binding.kind.broker} | values
    data = {key: _octets(value) for key, value in values.items()}
    if sum(map(len, data.values())) > MOST_OCTETS:
        return None
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": _metadata(binding, binding.live, record.id),
        "type": _type(binding),
        "data": {key: base64.b64encode(value).decode() for key, value in sorted(data.items())},
    }


def _type(binding: BindingView) -> str:
    return f"servicebinding.io/{binding.kind.stem}"


def _metadata(binding: BindingView, claim: Manifest, binding_id: str) -> dict[str, JSON]:
    owner = manifest.controller_to(binding.kind.kind, claim)
    return {
        "namespace": manifest.namespace_of(claim),
        "name": name_of(claim),
        "labels": {
            keys.OSB_BROKER: binding.kind.broker,
            keys.OSB_SERVICE: binding.kind.service,
        },
        "annotations": {keys.OSB_BINDING: binding_id},
        "ownerReferences": [owner],
    }


def _values(credentials: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return credentials by keys that a Secret may have; those that are fit stay as they are."""
    values = {key: value for key, value in credentials.items() if _cleaned(key) == key}
    for key in sorted(credentials.keys() - values.keys()):
        values[_unlike(_cleaned(key), values)] = credentials[key]
    return values


def _cleaned(key: str) -> str:
    cleaned = _NO_KEY.sub("_", key)[:_LONGEST_KEY] or "_"
    return f"_{cleaned[1:]}" if cleaned == "." or cleaned.startswith("..") else cleaned


def _unlike(key: str, taken: Mapping[str, JSON]) -> str:
    number, free = 2, key
    while free in taken:
        suffix = f"_{number}"
        number, free = number + 1, key[: _LONGEST_KEY - len(suffix)] + suffix
    return free


def _octets(value: JSON) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return manifest.canonical(value)


def digest(claim: Manifest, secret: Manifest) -> str:
    """Return the digest of what a Secret holds, for the record of its binding."""
    return digest_of(manifest.uid_of(claim), manifest.get_map(secret, "data"))


def state(binding: BindingView, current: Record | None) -> State:
    """Return what became of the Secret that was written for a binding."""
    if binding.secret is None or binding.live is None:
        return UNREAD
    live = binding.secret.live
    if live is None:
        return ABSENT
    if not _is_ours(binding, live):
        return TAKEN
    if current is None or current.sent is None:
        return EDITED
    is_kept = _named(live) == current.id and digest(binding.live, live) == current.sent.secret
    return KEPT if is_kept else EDITED


def may_hold(binding: BindingView, record: Record) -> bool:
    """Tell whether the Secret may have credentials of this binding: then it is not to be undone."""
    if binding.secret is None:
        return binding.live is not None
    live = binding.secret.live
    if live is None or binding.live is None or not _is_ours(binding, live):
        return False
    if _named(live) == record.id:
        return True
    return record.sent is not None and digest(binding.live, live) == record.sent.secret


def is_named(binding: BindingView, record: Record) -> bool:
    live = binding.secret.live if binding.secret is not None else None
    return live is not None and _is_ours(binding, live) and _named(live) == record.id


def _named(live: Manifest) -> str:
    return manifest.annotations_of(live).get(keys.OSB_BINDING, "")


def _is_ours(binding: BindingView, live: Manifest) -> bool:
    """Tell whether a Secret is of this very claim. Its type cannot be changed."""
    assert binding.live is not None
    uid = manifest.uid_of(binding.live)
    owners = manifest.get_maps(live, "metadata", "ownerReferences")
    is_owned = any(manifest.get_text(owner, "uid") == uid for owner in owners)
    return is_owned and manifest.get_text(live, "type") == _type(binding)


def written(binding: BindingView, wanted: Manifest) -> Create | Patch | None:
    """Return the step after which the Secret holds this; None if it does. It is not taken."""
    live = binding.secret.live if binding.secret is not None else None
    if live is None:
        return Create(SECRET, wanted)
    data = merge_diff(manifest.get_map(live, "data"), manifest.get_map(wanted, "data"))
    return _modified(binding, live, manifest.get_map(wanted, "metadata"), data)


def repaired(binding: BindingView, current: Record) -> Patch | None:
    """Return the step that gives a Secret back the marks by which it is found; None if it has."""
    live = binding.secret.live if binding.secret is not None else None
    if live is None or binding.live is None:
        return None
    return _modified(binding, live, _metadata(binding, binding.live, current.id), {})


def _modified(
    binding: BindingView, live: Manifest, metadata: Manifest, data: dict[str, JSON]
) -> Patch | None:
    marks: dict[str, JSON] = {}
    for part in ("labels", "annotations"):
        held, wanted = manifest.get_map(live, "metadata", part), manifest.get_map(metadata, part)
        if not manifest.covers(held, wanted):
            marks[part] = wanted
    if not marks and not data:
        return None
    parts: dict[str, JSON] = {"data": data} if data else {}
    return modification(binding.cluster, SECRET, live, metadata=marks, **parts)


def removed(binding: BindingView) -> Delete | None:
    """Return the step that deletes the Secret, exactly as it was read; None if it is not ours."""
    live = binding.secret.live if binding.secret is not None else None
    if live is None or not _is_ours(binding, live):
        return None
    return deletion(binding.cluster, SECRET, live)
