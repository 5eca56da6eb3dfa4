"""Hides secret texts, and reduces a Secret object to its harmless part.

Of an object: its keys, and a digest per value. Does not know where anything is rendered.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from reconciler.core import manifest as m
from reconciler.core.manifest import KNOWN_AFTER_APPLY, Manifest

HIDDEN: Final = "<redacted>"
_SHORTEST: Final = 4  # characters; less would hide words
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Secret:
    """A token, password or key. `str`, `repr` and `format` show only that it is there.

    Comparable and hashable by value, so that a rotated credential can be noticed.
    `reveal` is the one way to the text; call it where the bytes leave the process.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not written to files or pipes")


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with every occurrence of each secret (of 4 characters or more) hidden.

    Also as others repeat it: on one line, in base64, in a URL, in JSON. The longest goes first, so
    that a secret inside another leaves no rest behind.
    """
    for form in sorted(_forms(secrets), key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _forms(secrets: Iterable[str]) -> set[str]:
    """Return the texts by which secrets can be recognised."""
    found = {
        form
        for secret in secrets
        if len(secret) >= _SHORTEST
        for form in (
            secret,
            " ".join(secret.split()),
            quote(secret, safe="", errors="replace"),
            base64.b64encode(secret.encode(errors="replace")).decode(),
            *(json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (True, False)),
        )
    }
    return {form for form in found if len(form) >= _SHORTEST}


def redact(manifest: Manifest, *, uid: str = "") -> Manifest:
    """Return the manifest fit to be shown or stored; only Secrets, whole or in part, change.

    Each value of data and stringData becomes `value_digest`; equal values of one object have
    equal digests, whether they are in data or in stringData. Annotations that repeat a value
    (kubectl's last-applied-configuration and its like) become a digest as a whole.
    `uid` is that of the live object which a manifest without a uid is to become. A value that is
    known only after an apply stays as it is: it says nothing.
    """
    annotations = m.get_map(manifest, "metadata", "annotations")
    is_secret = manifest.get("apiVersion") == "v1" and manifest.get("kind") == "Secret"
    # A PartialObjectMetadata does not say that it is of a Secret; this annotation does.
    if not is_secret and '"Secret"' not in m.get_text(annotations, LAST_APPLIED):
        return manifest
    salt = m.uid_of(manifest) or uid
    shown = dict(manifest)
    values = _values(manifest)
    for field in ("data", "stringData"):
        if manifest.get(field) is not None:
            present = m.get_map(manifest, field)
            shown[field] = {
                key: value_digest(salt, data) if present[key] != KNOWN_AFTER_APPLY else present[key]
                for where, key, data in values
                if where == field
            }
    if not annotations:
        return shown
    needles = _forms(
        text
        for _, _, data in values
        if len(data) >= _SHORTEST
        for text in (data.decode(errors="ignore"), base64.b64encode(data).decode())
    )
    return m.put(
        shown,
        {
            key: value_digest(salt, m.canonical(value))
            if key == LAST_APPLIED
            or (isinstance(value, str) and any(needle in value for needle in needles))
            else value
            for key, value in annotations.items()
        },
        "metadata",
        "annotations",
    )


def value_digest(uid: str, data: bytes) -> str:
    """Return 16 hex digits that are equal for equal values of one object.

    The object's uid is mixed in, so that equal values of two objects look different.
    """
    text = base64.b64encode(data).decode()
    return hashlib.sha256(b"klutchctl/v1" + uid.encode() + m.canonical(text)).hexdigest()[:16]


def _values(manifest: Manifest) -> list[tuple[str, str, bytes]]:
    """Return (field, key, bytes) of every value; text that is not base64 stands for itself."""
    values = []
    for field in ("data", "stringData"):
        for key, value in m.get_map(manifest, field).items():
            text = value.encode() if isinstance(value, str) else m.canonical(value)
            values.append((field, key, _decoded(text) if field == "data" else text))
    return values


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text
