"""Finds the entries of kubeconfig files that a context names, and reads their PEM text.

Only names are looked at first. What an entry says is read when a context uses it: a broken or
hostile entry that nobody uses does no harm, and is never acted upon. Pure: files come by `read`.

Tokens, certificates and keys are judged, and not shown. Each `..._fault` says what is wrong as the
end of a sentence ("is ..."), or "" where all is well. None of them quotes the text.
"""

import base64
import binascii
import functools
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from reconciler.core import yaml_text
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.yaml_text import Fields

ReadFile = Callable[[Path], bytes]
_ENCRYPTED_HEADER: Final = "Proc-Type: 4,ENCRYPTED"
_NAME: Final = re.compile(r"[\w.@:/+-]{1,100}")
_LONG_PART: Final = re.compile(r"[\w+=-]{24,}")
_PATH_LIMIT: Final = 255
_REMEMBERED: Final = 64
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


def token_fault(token: str) -> str:
    """Judge a bearer token: it travels in an HTTP header, so it is visible ASCII."""
    if not token:
        return "is empty"
    if any(not "!" <= character <= "~" for character in token):
        return "contains spaces, line breaks or other characters that no token has"
    return ""


def certificates_fault(pem: str) -> str:
    """Judge PEM text that must hold at least one certificate, and may hold other blocks."""
    blocks = _blocks(pem)
    if blocks is None:
        return "is not valid PEM text"
    certificates = [block for label, block in blocks if label == "CERTIFICATE"]
    if not certificates:
        return "contains no PEM block BEGIN CERTIFICATE"
    return "" if _are_readable("".join(certificates)) else "contains an unreadable certificate"


# Many clusters may share one CA, and OpenSSL takes its time. Certificates are public, so they may
# stay in memory; the rest of the text, which may be a key, does not.
@functools.lru_cache(maxsize=_REMEMBERED)
def _are_readable(certificates: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        return False
    return True


def key_fault(pem: str) -> str:
    """Judge PEM text that must hold a private key which needs no password."""
    blocks = _blocks(pem)
    if blocks is None:
        return "is not valid PEM text"
    keys = [(label, block) for label, block in blocks if label.endswith("PRIVATE KEY")]
    if not keys:
        return "contains no PEM block BEGIN PRIVATE KEY"
    if any(label.startswith("ENCRYPTED") or _ENCRYPTED_HEADER in block for label, block in keys):
        return "is protected by a password, and there is no prompt for it"
    return ""


def shown_name(name: str) -> str:
    """Quote a name from a file for a sentence, unless a token or key may have slipped in."""
    return f'"{name}"' if is_shown(name) else "(a name that is not shown)"


def is_shown(name: str) -> bool:
    """Return whether a name is one, and no credential that somebody pasted."""
    return bool(_NAME.fullmatch(name)) and not _is_token_like(name)


def shown_path(path: PurePath) -> str:
    """Return a path for a sentence, unless a token or key was written in its place."""
    text = str(path)
    if len(text) <= _PATH_LIMIT and text.isprintable() and not _is_token_like(text):
        return text
    return "(a path that is not shown)"


def _is_token_like(text: str) -> bool:
    """Return whether any part is long and mixes capitals, small letters and digits."""
    return any(
        re.search("[a-z]", part) and re.search("[A-Z]", part) and re.search("[0-9]", part)
        for part in _LONG_PART.findall(text)
    )


def _blocks(pem: str) -> list[tuple[str, str]] | None:
    """Split PEM text (RFC 7468) into labels and blocks, in one pass. None where it is broken."""
    if not pem.isascii():
        return None
    blocks: list[tuple[str, str]] = []
    label, lines = "", list[str]()
    for line in map(str.strip, pem.splitlines()):
        if line.startswith("-----BEGIN ") and line.endswith("-----"):
            if label:
                return None
            label, lines = line[11:-5], [line]
        elif label:
            lines.append(line)
            if line == f"-----END {label}-----":
                if not _is_base64("".join(part for part in lines[1:-1] if ":" not in part)):
                    return None
                blocks.append((label, "\n".join(lines) + "\n"))
                label = ""
    return None if label else blocks


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False
