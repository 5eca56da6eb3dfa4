"""PEM text that an entry of a kubeconfig holds, or names as a file. Pure: files come by `read`."""

import base64
import binascii
from collections.abc import Callable
from pathlib import Path

from reconciler.kube.kubeconfig import credential_text
from reconciler.kube.kubeconfig.entries import Entry

ReadFile = Callable[[Path], bytes]
"""Returns what a file holds. Raises OSError."""


def text_of(entry: Entry, key: str, read: ReadFile) -> str | None:
    """Return the checked PEM text that `key` names as a file, or `key`-data holds in base64."""
    fields, data_key = entry.fields, f"{key}-data"
    data, file = fields.text(data_key), fields.text(key)
    if data and file:
        raise fields.error(f"{key} and {data_key} exclude each other", at=key)
    if not data and not file:
        return None
    used = data_key if data else key
    pem = _decoded(data) if data else _file(entry, key, read)
    judge = credential_text.key_fault if key == "client-key" else credential_text.certificates_fault
    if problem := "is not valid base64" if pem is None else judge(pem):
        raise fields.error(f"{used} {problem}", at=used)
    return pem


def _decoded(data: str) -> str | None:
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return None


def _file(entry: Entry, key: str, read: ReadFile) -> str:
    path = path_of(entry, key)
    try:
        return read(path).decode("latin-1")
    except OSError as error:
        reason = error.strerror or "unreadable"
    shown = credential_text.shown_path(path)
    raise entry.fields.error(f"{key}: {shown} cannot be read: {reason}", at=key)


def path_of(entry: Entry, key: str) -> Path:
    """Return the path at `key`, which starts where the kubeconfig is."""
    path = Path(entry.fields.text(key))
    if path.is_absolute():
        return path
    if entry.folder is None:
        raise entry.fields.error(f"{key} must be an absolute path", at=key)
    return entry.folder / path
