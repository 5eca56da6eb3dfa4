"""Asks which permission claims are accepted: a person, a pipe, or flags.

Answers come from one reader, however many questions there are (protocol-bind.md F20).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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


class Claims(StrEnum):
    """What is accepted without a word about each."""

    ASK = "ask"
    REQUIRED = "required"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Answers:
    """Where answers come from.

    `accept` are kinds (`resource[.group]`) that flags accept. `ask` shows text, `read` returns the
    next line, "" at the end.
    """

    claims: Claims
    accept: Collection[str]
    ask: Callable[[str], None] = field(repr=False)
    read: Callable[[int], str] = field(repr=False)

    def of(self, wanted: Wanted) -> list[Manifest]:
        """Return the claims of a resource with their states. Raises NoConsent."""
        chosen = {place for place, claim in enumerate(wanted.claims) if self._accepts(claim)}
        require_required(wanted, chosen)
        return consent.accepted(wanted.claims, chosen)

    def rejected_unasked(self, claims: Sequence[Manifest]) -> list[str]:
        """Return what claims are on that a flag has rejected: nobody has seen them."""
        if self.claims is Claims.ASK:
            return []
        return [consent.claim_key(one) for one in claims if one["state"] != consent.ACCEPTED]

    def _accepts(self, claim: Manifest) -> bool:
        if consent.claim_key(claim) in self.accept or self.claims is Claims.ALL:
            return True
        if self.claims is Claims.REQUIRED:
            return get_bool(claim, "required")
        return self.claims is Claims.ASK and self._asked(claim)

    def _asked(self, claim: Manifest) -> bool:
        question = f"{consent.sentences(claim)}\n{consent.QUESTION}\n"
        for _ in range(_TRIES):
            self.ask(question)
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


def require_known(accept: Collection[str], wanted: Sequence[Wanted]) -> None:
    """Refuse kinds in --accept that nothing claims. Raises ConfigError."""
    known = {consent.claim_key(claim) for one in wanted for claim in one.claims}
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


def of_page(wanted: Wanted, answered: Sequence[Manifest]) -> list[Manifest]:
    """Return the claims of a resource as a page was answered. Raises NoConsent.

    A claim that the page did not show is rejected.
    """
    agreed = {_said(claim) for claim in answered if claim.get("state") == consent.ACCEPTED}
    chosen = {place for place, claim in enumerate(wanted.claims) if _said(claim) in agreed}
    require_required(wanted, chosen)
    return consent.accepted(wanted.claims, chosen)


def _said(claim: Manifest) -> bytes:
    return canonical(normalize_claim(drop(claim, "state")))
