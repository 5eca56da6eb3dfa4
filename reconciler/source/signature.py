"""The state of the signature of the commit in use, and the effect if it is missing.

Parses signed commits and annotated tags of Git from the bytes that their ids hash. Git's libraries
are not asked for parents: at the edge of a shallow clone they name none, so a cut history would
look complete.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from reconciler.core.errors import KlutchError

_SHOWN: Final = 80  # characters
_IDENTITY: Final = re.compile(rb"[^<>]*<([^<>]{0,254})> ([0-9]{1,12}) [+-][0-9]{4}")
_ARMORS: Final = (b"-----BEGIN SSH SIGNATURE-----", b"-----BEGIN PGP SIGNATURE-----")
_ID: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


class VerificationMode(StrEnum):
    """The part of a source that has to be signed; the values are those of `--verify`."""

    OFF = "off"
    HEAD = "head"  # the commit
    TAG = "tag"  # an annotated tag that leads to it
    HISTORY = "history"  # every commit since the last one that was accepted


@dataclass(frozen=True, slots=True)
class Signature:
    """An accepted signature. `kind` is ssh or gpg, `signer` a principal or a fingerprint.

    If Flux verified the source, `kind` is flux, and `signer` is the source.

    `first`: with `history`, there was no earlier commit, so only this one was verified.
    """

    mode: VerificationMode
    kind: str
    signer: str
    first: bool = False


class Refused(Exception):
    """A signature, or a list of keys, is not accepted: `why` continues its name.

    It never repeats more of a foreign text than a short, printable piece.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Unverified(KlutchError):
    """A commit is not verified, so its files count as unreadable. `revision` is its id, or ""."""

    def __init__(self, message: str, *, revision: str) -> None:
        self.revision = revision
        commit = f"commit {revision[:12]}" if revision else "the newest commit"
        fault = f"{commit} is not verified: {message}"
        super().__init__(f"{fault}; see `klutchctl explain SourceUnverified`")


def shown(text: bytes | str) -> str:
    """Return a foreign text for a sentence: quoted, printable, and not long."""
    readable = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return ascii(readable if len(readable) <= _SHOWN else f"{readable[:_SHOWN]}...")


@dataclass(frozen=True, slots=True)
class SignedObject:
    """A signed object and its stated signer. `signature` is in its armor, b"" without one.

    `email` and `time` are those of the committer or tagger. `targets` are the parents of a commit,
    or what a tag leads to.
    """

    targets: tuple[str, ...]
    email: str
    time: datetime
    payload: bytes
    signature: bytes


def is_id(text: str) -> bool:
    """Decide whether a text is a whole id of an object."""
    return _ID.fullmatch(text) is not None


def commit(raw: bytes) -> SignedObject:
    """Read a commit. Raises Refused, also for one with two signatures."""
    head, blank, message = raw.partition(b"\n\n")
    fields = _fields(head)
    signed = [(name, value, whole) for name, value, whole in fields if name.startswith(b"gpgsig")]
    if len(signed) > 1:
        raise Refused("it has more than one signature")
    if signed and signed[0][0] != b"gpgsig":
        raise Refused("its signature is for a repository with SHA-256")
    rest = b"\n".join(whole for name, _, whole in fields if not name.startswith(b"gpgsig"))
    email, time = _identity(fields, b"committer")
    return SignedObject(
        tuple(_id(value) for name, value, _ in fields if name == b"parent"),
        email,
        time,
        rest + blank + message,
        signed[0][1] + b"\n" if signed else b"",
    )


def tag(raw: bytes) -> tuple[str, SignedObject]:
    """Read an annotated tag of a commit: its name, and the rest. Raises Refused."""
    fields = _fields(raw.partition(b"\n\n")[0])
    values = {name: value for name, value, _ in fields}
    if values.get(b"type") != b"commit" or b"object" not in values:
        raise Refused("it leads to something else than a commit")
    starts = [at for armor in _ARMORS if (at := raw.find(b"\n" + armor)) >= 0]
    start = min(starts, default=len(raw) - 1) + 1
    email, time = _identity(fields, b"tagger")
    found = SignedObject((_id(values[b"object"]),), email, time, raw[:start], raw[start:])
    return values.get(b"tag", b"").decode("utf-8", "replace"), found


def _fields(head: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return name, value and whole text of each field: a line that begins with a blank goes on."""
    found: list[tuple[bytes, bytes, bytes]] = []
    for whole in re.split(rb"\n(?! )", head):
        name, _, value = whole.partition(b" ")
        found.append((name, value.replace(b"\n ", b"\n"), whole))
    return found


def _identity(fields: list[tuple[bytes, bytes, bytes]], name: bytes) -> tuple[str, datetime]:
    values = [value for found, value, _ in fields if found == name]
    parts = _IDENTITY.fullmatch(values[0]) if len(values) == 1 else None
    if parts is None:
        raise Refused(f"its {name.decode()} is not a name, <address> and time")
    try:
        return parts[1].decode("utf-8"), datetime.fromtimestamp(int(parts[2]), UTC)
    except (UnicodeDecodeError, ValueError, OverflowError, OSError):
        raise Refused(f"its {name.decode()} has no readable address or time") from None


def _id(value: bytes) -> str:
    name = value.decode("ascii", "replace")
    if not is_id(name):
        raise Refused("it names a parent or target by no id")
    return name
