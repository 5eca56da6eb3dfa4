"""Holds what is known of the signature of the commit that is in use, and what it means without."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconciler.core.errors import KlutchError

_SHOWN: Final = 80  # characters


class VerificationMode(StrEnum):
    """The part of a source that has to be signed; the values are those of `--verify`."""

    OFF = "off"
    HEAD = "head"  # the commit
    TAG = "tag"  # an annotated tag that leads to it
    HISTORY = "history"  # every commit since the last one that was accepted


@dataclass(frozen=True, slots=True)
class Signature:
    """An accepted signature. `kind` is ssh or gpg, `signer` a principal or a fingerprint.

    Where Flux has verified it, `kind` is flux, and `signer` the source.

    `first`: with `history`, there was no commit to begin from, so only this one was looked at.
    """

    mode: VerificationMode
    kind: str
    signer: str
    first: bool = False


class Refused(Exception):
    """A signature, or a list of keys, is not accepted: `why` goes on from what it is about.

    It never repeats more of a stranger's text than a short, printable piece.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Unverified(KlutchError):
    """A commit is not verified, so its files count as unreadable. `revision` is its id, or ""."""

    def __init__(self, message: str, *, revision: str) -> None:
        self.revision = revision
        commit = f"commit {revision[:12]}" if revision else "the newest commit"
        super().__init__(f"{commit} is not verified: {message}")


def shown(text: bytes | str) -> str:
    """Return a stranger's text for a sentence: quoted, printable, and not long."""
    readable = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return ascii(readable if len(readable) <= _SHOWN else f"{readable[:_SHOWN]}...")
