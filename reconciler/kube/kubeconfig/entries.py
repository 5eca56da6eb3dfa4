"""Finds the entries of kubeconfig files that a context names, and reads their PEM text.

Only names are looked at first. What an entry says is read when a context uses it: a broken or
hostile entry that nobody uses does no harm, and is never acted upon. Pure: files come by `read`.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reconciler.core import yaml_text
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.yaml_text import Fields
from reconciler.kube.kubeconfig.credential_text import (
    certificates_fault,
    key_fault,
    shown_name,
    shown_path,
)

ReadFile = Callable[[Path], bytes]
"""Returns what a file holds. Raises OSError."""

_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """A named cluster, user or context. `folder` is where its relative paths start, if anywhere."""

    name: str = field(repr=False)
    fields: Fields
    folder: Path | None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A kubeconfig, or several merged into one."""

    contexts: Mapping[str, Entry]
    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]
    current_context: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Profile:
    """The meaning of a context. A context without a user acts as nobody in particular."""

    context: Entry
    cluster: Entry
    user: Entry | None


def parse(content: bytes, *, path: str, folder: Path | None) -> Kubeconfig:
    """Read one kubeconfig, YAML or JSON. `path` names it in errors. Raises ConfigError."""
    root = yaml_text.read(content, path)
    for key, wanted in (("apiVersion", "v1"), ("kind", "Config")):
        if root.text(key) not in ("", wanted):
            raise root.error(f"not a kubeconfig: {key} is not {wanted}", at=key)
    return Kubeconfig(
        contexts=_named(root, "contexts", "context", folder),
        clusters=_named(root, "clusters", "cluster", folder),
        users=_named(root, "users", "user", folder),
        current_context=root.text("current-context"),
        origin=root.at("current-context"),
    )


def merge(kubeconfigs: Sequence[Kubeconfig]) -> Kubeconfig:
    """Merge as kubectl does: the first entry of a name wins, and the first current-context.

    Needs at least one.
    """
    strongest_last = list(reversed(kubeconfigs))
    chooser = next((each for each in kubeconfigs if each.current_context), kubeconfigs[0])
    return Kubeconfig(
        contexts={name: entry for each in strongest_last for name, entry in each.contexts.items()},
        clusters={name: entry for each in strongest_last for name, entry in each.clusters.items()},
        users={name: entry for each in strongest_last for name, entry in each.users.items()},
        current_context=chooser.current_context,
        origin=chooser.origin,
    )


def profile(kubeconfig: Kubeconfig, context: str | None) -> Profile:
    """Return the entries that `context` (None: the current one) means. Raises ConfigError."""
    entry = _context(kubeconfig, context)
    cluster = _referenced(entry, "cluster", kubeconfig.clusters)
    if cluster is None:
        raise entry.fields.error("the context names no cluster")
    return Profile(entry, cluster, _referenced(entry, "user", kubeconfig.users))


def _context(kubeconfig: Kubeconfig, name: str | None) -> Entry:
    wanted = kubeconfig.current_context if name is None else name
    if wanted and wanted in kubeconfig.contexts:
        return kubeconfig.contexts[wanted]
    known = sorted(shown_name(each) for each in kubeconfig.contexts)[:_LISTED]
    hint = f"Contexts there: {', '.join(known)}" if known else "There are no contexts"
    if name is not None:
        message = f"context {shown_name(name)} does not exist"
        raise ConfigError(message, where=kubeconfig.origin.path, hint=hint)
    where = str(kubeconfig.origin)
    if not wanted:
        raise ConfigError("no current-context is set, and none was chosen", where=where, hint=hint)
    message = f"current-context {shown_name(wanted)} does not exist"
    raise ConfigError(message, where=where, hint=hint)


def _referenced(context: Entry, kind: str, entries: Mapping[str, Entry]) -> Entry | None:
    name = context.fields.text(kind)
    if name and name not in entries:
        raise context.fields.error(
            f"the context names {kind} {shown_name(name)}, which does not exist", at=kind
        )
    return entries[name] if name else None


def _named(root: Fields, plural: str, kind: str, folder: Path | None) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for item in root.sections(plural):
        name = item.text("name")
        if not name:
            raise item.error(f"this {kind} has no name")
        if name in entries:
            raise item.error(f"a second {kind} of this name", at="name")
        entries[name] = Entry(name, item.section(kind) or Fields({}, item.origin), folder)
    return entries


def pem_of(entry: Entry, key: str, read: ReadFile) -> str | None:
    """Return the checked PEM text that `key` names as a file, or `key`-data holds in base64."""
    fields, data_key = entry.fields, f"{key}-data"
    data, file = fields.text(data_key), fields.text(key)
    if data and file:
        raise fields.error(f"{key} and {data_key} exclude each other", at=key)
    if not data and not file:
        return None
    used = data_key if data else key
    pem = _decoded_pem(data) if data else _file_text(entry, key, read)
    judge = key_fault if key == "client-key" else certificates_fault
    if problem := "is not valid base64" if pem is None else judge(pem):
        raise fields.error(f"{used} {problem}", at=used)
    return pem


def _decoded_pem(data: str) -> str | None:
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return None


def _file_text(entry: Entry, key: str, read: ReadFile) -> str:
    path = path_of(entry, key)
    try:
        return read(path).decode("latin-1")
    except OSError as error:
        reason = error.strerror or "unreadable"
    shown = shown_path(path)
    raise entry.fields.error(f"{key}: {shown} cannot be read: {reason}", at=key)


def path_of(entry: Entry, key: str) -> Path:
    """Return the path at `key`, which starts where the kubeconfig is."""
    path = Path(entry.fields.text(key))
    if path.is_absolute():
        return path
    if entry.folder is None:
        raise entry.fields.error(f"{key} must be an absolute path", at=key)
    return entry.folder / path
