"""Builds the Secret of a binding from a broker's credentials, and compares it.

Decides when a binding gets new credentials, and when the old ones end.

A Provisioned Service (servicebinding.io). Whose Secret it is, its owner says; a name that somebody
else has is left alone. What the Secret holds is in no text.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from bind.osb.decisions.record import Record, digest_of
from bind.osb.decisions.view import BindingView
from reconciler.core import keys, manifest
from reconciler.core.decision import Create, Delete, Patch, deletion, merge_diff, modification
from reconciler.core.manifest import JSON, Manifest, get_text
from reconciler.core.refs import SECRET, ObjectKey
from reconciler.core.secret import Secret
from reconciler.core.times import span

State: TypeAlias = Literal["Unread", "Absent", "Taken", "Edited", "Kept"]

UNREAD: Final = "Unread"
ABSENT: Final = "Absent"
TAKEN: Final = "Taken"  # somebody else's
EDITED: Final = "Edited"
KEPT: Final = "Kept"

MOST_OCTETS: Final = 1024 * 1024  # that an API server takes in the values of a Secret
_LONGEST_KEY: Final = 253
NO_KEY: Final = re.compile(r"[^-._a-zA-Z0-9]")
OVERLAP: Final = timedelta(hours=1)
_LEAST_EVERY: Final = timedelta(minutes=1)
_LEAST_MARGIN: Final = timedelta(minutes=10)
_MARGINS: Final = 10  # in a life
_BACKWARDS: Final = timedelta(hours=1)  # between rotations, where a life ends before it begins


def name_of(claim: Manifest) -> str:
    """Return the name of a binding's Secret."""
    return manifest.get_text(claim, "spec", "secretName") or f"{manifest.name_of(claim)}-creds"


def secret_of(binding: BindingView, record: Record, credentials: Secret) -> Manifest | None:
    """Return the Secret of a binding that is there; None for credentials that fit into none."""
    assert binding.live is not None
    values: Mapping[str, JSON] = {"binding": record.id}  # where none is wanted, no two are equal
    if binding.form is not None and binding.form.place is not None:
        values = binding.form.texts(credentials)
    elif binding.form is None:
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
    return f"servicebinding.io/{binding.kind.stem}" if binding.form is None else binding.form.type


def _metadata(binding: BindingView, claim: Manifest, binding_id: str) -> dict[str, JSON]:
    labels: dict[str, JSON] = {}
    place = ObjectKey(manifest.namespace_of(claim), name_of(claim))
    if binding.form is None:
        labels = {keys.OSB_BROKER: binding.kind.broker, keys.OSB_SERVICE: binding.kind.service}
    elif binding.form.place is not None:
        place = binding.form.place
    return {
        "namespace": place.namespace,
        "name": place.name,
        "labels": labels,
        "annotations": {keys.OSB_BINDING: binding_id},
        "ownerReferences": [manifest.controller_to(binding.kind.kind, claim)],
    }


def _values(credentials: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return credentials by keys that a Secret may have; those that are fit stay as they are."""
    values = {key: value for key, value in credentials.items() if _cleaned(key) == key}
    for key in sorted(credentials.keys() - values.keys()):
        values[_unlike(_cleaned(key), values)] = credentials[key]
    return values


def _cleaned(key: str) -> str:
    cleaned = NO_KEY.sub("_", key)[:_LONGEST_KEY] or "_"
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
    """Return the digest of a Secret's content, for the record of its binding."""
    return digest_of(manifest.uid_of(claim), manifest.get_map(secret, "data"))


def state(binding: BindingView, current: Record | None) -> State:
    """Return the state of the Secret that was written for a binding."""
    if binding.secret is None or binding.live is None:
        return UNREAD
    live = binding.secret.live
    if live is None:
        return ABSENT
    if not _is_ours(binding, live):
        return TAKEN
    if current is None or current.sent is None:
        return EDITED
    is_kept = named(live) == current.id and digest(binding.live, live) == current.sent.secret
    return KEPT if is_kept else EDITED


def may_contain(binding: BindingView, record: Record) -> bool:
    """Return whether the Secret may have credentials of this binding: then it must stay."""
    if binding.secret is None:
        return binding.live is not None
    live = binding.secret.live
    if live is None or binding.live is None or not _is_ours(binding, live):
        return False
    is_kept = record.sent is not None and digest(binding.live, live) == record.sent.secret
    return is_kept or named(live) == record.id


def is_named(binding: BindingView, record: Record) -> bool:
    live = binding.secret.live if binding.secret is not None else None
    return live is not None and _is_ours(binding, live) and named(live) == record.id


def named(live: Manifest) -> str:
    return manifest.annotations_of(live).get(keys.OSB_BINDING, "")


def _is_ours(binding: BindingView, live: Manifest) -> bool:
    """Return whether a Secret is of this very claim. Its type cannot be changed.

    Crossplane takes one over that has its type and no controller.
    """
    assert binding.live is not None
    uid = manifest.uid_of(binding.live)
    owners = manifest.get_maps(live, "metadata", "ownerReferences")
    is_owned = any(manifest.get_text(owner, "uid") == uid for owner in owners)
    is_free = binding.form is not None and not manifest.controller_of(live)
    return (is_owned or is_free) and manifest.get_text(live, "type") == _type(binding)


def written(binding: BindingView, wanted: Manifest) -> Create | Patch | None:
    """Return the step after which the Secret holds this; None if it does. It is not taken."""
    if binding.form is not None and binding.form.place is None:
        return None
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
        present, wanted = manifest.get_map(live, "metadata", part), manifest.get_map(metadata, part)
        if not manifest.covers(present, wanted):
            marks[part] = wanted
    if data and not manifest.get_maps(live, "metadata", "ownerReferences"):
        marks["ownerReferences"] = metadata["ownerReferences"]
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


@dataclass(frozen=True, slots=True)
class Terms:
    """A claim's terms of rotation. Without `every` it is due by request and expiry alone."""

    every: timedelta | None
    overlap: timedelta
    request: str


def terms(claim: Manifest) -> Terms:
    """Return a claim's terms of rotation; a text that is no time counts as absent."""
    every = span(get_text(claim, "spec", "rotation", "every"))
    overlap = span(get_text(claim, "spec", "rotation", "overlap"))
    return Terms(
        max(every, _LEAST_EVERY) if every else None,
        OVERLAP if overlap is None else overlap,
        get_text(claim, "spec", "rotation", "request"),
    )


def due_at(
    claim: Manifest, current: Record, older: Iterable[Record], now: datetime, *, is_same: bool
) -> datetime | None:
    """Return when the next number is due; None where nothing asks for one.

    By `every`, not before the credentials of the last rotation are gone: a third pair at a broker
    is for those who ask for it, and for what expires.
    """
    wanted = terms(claim)
    if wanted.request and wanted.request != current.asked:
        return now
    if current.made_at is None or is_same:
        return None
    times = [_before_end(current, current.made_at)]
    if wanted.every is not None:
        leaving = [one.leave_at for one in older if one.leave_at is not None]
        times.append(max([current.made_at + wanted.every, *leaving]))
    return min((time for time in times if time is not None), default=None)


def are_same(one: Record | None, other: Record) -> bool:
    """Return whether two bindings have the same credentials."""
    secret = one.sent.secret if one is not None and one.sent is not None else ""
    return bool(secret) and other.sent is not None and other.sent.secret == secret


def _before_end(current: Record, made_at: datetime) -> datetime | None:
    """Return a tenth of a life before its end, 10 minutes at least; half of a very short one."""
    ends_at = current.renew_before or current.expires_at
    if ends_at is None:
        return None
    life = ends_at - made_at
    if life <= timedelta():
        return made_at + _BACKWARDS
    return ends_at - min(max(life / _MARGINS, _LEAST_MARGIN), life / 2)


def leaves_at(claim: Manifest, old: Record, since: datetime) -> datetime:
    """Return when credentials go that were replaced then."""
    end = since + terms(claim).overlap
    return end if old.expires_at is None else max(min(end, old.expires_at), since)
