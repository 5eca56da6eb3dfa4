"""Holds what is known of the signature of the commit that is in use."""

from dataclasses import dataclass
from enum import StrEnum


class VerificationMode(StrEnum):
    """What of a source has to be signed; the values are those of `--verify`."""

    OFF = "off"
    HEAD = "head"  # the commit
    TAG = "tag"  # an annotated tag that leads to it
    HISTORY = "history"  # every commit since the last one that was accepted


@dataclass(frozen=True, slots=True)
class Signature:
    """Whose signature was accepted. `kind` is ssh or gpg, `signer` a principal or a fingerprint.

    `first`: with `history`, there was no commit to begin from, so only this one was looked at.
    """

    mode: VerificationMode
    kind: str
    signer: str
    first: bool = False
