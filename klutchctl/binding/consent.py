"""Decides which permission claims are accepted: by flags, and by a person where those ask.

A page of the provider proposes, and narrows (trust.md law 8). Answers come from one reader, however
many questions there are (protocol-bind.md F20).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from klutchctl.binding.errors import NoConsent
from klutchctl.binding.response import Wanted
from reconciler.blueprints import consent
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, canonical, drop, get_bool
from reconciler.core.normalize import normalize_claim

_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"n", "no"})
_LONGEST: Final = 1024
_TRIES: Final = 100  # a pipe of nonsense ends
_PROPOSED: Final = "The provider says that you accepted this on its page:\n"


class Claims(StrEnum):
    """What is accepted without a word about each, but for what `openings` names."""

    ASK = "ask"
    REQUIRED = "required"
    ALL = "all"
    NONE = "none"


class Verdict(Enum):
    """What becomes of a claim."""

    ACCEPT = "accept"
    REJECT = "reject"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Answers:
    """Where answers come from.

    `accept` are what flags accept: kinds (`resource[.group]`), and openings, such as `secrets in
    kube-system`. `ask` shows text, `read` returns the next line, "" at the end. `interactive`: a
    person reads.
    """

    claims: Claims
    accept: Collection[str]
    ask: Callable[[str], None] = field(repr=False)
    read: Callable[[int], str] = field(repr=False)
    interactive: bool = False

    def of(self, wanted: Wanted, answered: Sequence[Manifest] | None = None) -> list[Manifest]:
        """Return the claims of a resource with their states; `answered` is a page's proposal.

        Raises NoConsent.
        """
        claims = wanted.claims
        agreed = {_said(one) for one in answered or () if one.get("state") == consent.ACCEPTED}
        verdicts = {
            place: self.verdict(claim, proposed=answered is None or _said(claim) in agreed)
            for place, claim in enumerate(claims)
        }
        chosen = {place for place, one in verdicts.items() if one is Verdict.ACCEPT}
        asked = [place for place, one in verdicts.items() if one is Verdict.ASK]
        # The original asks about each; a proposal is one question.
        for places in [[one] for one in asked] if answered is None else filter(None, [asked]):
            if self._asked("" if answered is None else _PROPOSED, [claims[one] for one in places]):
                chosen |= {*places}
        require_required(wanted, chosen)
        return consent.accepted(claims, chosen)

    def verdict(self, claim: Manifest, *, proposed: bool = True) -> Verdict:
        """Return what becomes of a claim; a page may take its proposal back, and no more."""
        opened = consent.openings(claim)
        named = bool(opened) and {*opened} <= {*self.accept}
        allowed = (
            consent.claim_key(claim) in self.accept
            or self.claims is Claims.ALL
            or (self.claims is Claims.REQUIRED and get_bool(claim, "required"))
        )
        if not proposed:
            return Verdict.REJECT
        if named or (allowed and not opened):
            return Verdict.ACCEPT
        asks = self.claims is Claims.ASK or (allowed and self.interactive)
        return Verdict.ASK if asks else Verdict.REJECT

    def rejected_unasked(self, claims: Sequence[Manifest]) -> list[str]:
        """Return what flags have rejected, as --accept names it: nobody has seen it."""
        if self.claims is Claims.ASK:
            return []
        rejected = [one for one in claims if one["state"] != consent.ACCEPTED]
        return [name for one in rejected for name in _names(one)]

    def _asked(self, begin: str, claims: Sequence[Manifest]) -> bool:
        question = "\n".join([*map(consent.sentences, claims), f"{consent.QUESTION}\n"])
        for _ in range(_TRIES):
            self.ask(begin + question)
            line = self.read(_LONGEST)
            if not line:
                raise NoConsent(
                    "no answer came; nothing was bound",
                    hint="Answer yes or no to each, or choose with --claims and --accept",
                )
            answer = line.strip().lower()
            if answer in _YES | _NO:
                return answer in _YES
        raise NoConsent("no answer was yes or no; nothing was bound")


def _names(claim: Manifest) -> list[str]:
    return consent.openings(claim) or [consent.claim_key(claim)]


def require_known(accept: Collection[str], wanted: Sequence[Wanted]) -> None:
    """Refuse in --accept what nothing claims. Raises ConfigError."""
    claimed_by = [claim for one in wanted for claim in one.claims]
    known = {name for one in claimed_by for name in (consent.claim_key(one), *_names(one))}
    unknown = sorted(set(accept) - known)
    if unknown:
        claimed = ", ".join(sorted(known)) or "nothing"
        message = f"no permission claim is on {', '.join(unknown)}"
        raise ConfigError(message, where="--accept", hint=f"The provider claims: {claimed}")


def require_required(wanted: Wanted, chosen: Collection[int]) -> None:
    """Refuse to go on without a required claim, before anything is written (F23).

    Raises NoConsent.
    """
    missing = consent.required_rejected(wanted.claims, chosen)
    if missing:
        raise NoConsent(
            f"{wanted.resource.name} does not work without its required claims on "
            f"{', '.join(missing)}; nothing was bound"
        )


def _said(claim: Manifest) -> bytes:
    return canonical(normalize_claim(drop(claim, "state")))
