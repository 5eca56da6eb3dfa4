"""Identities of people and machines, by their provider, and the names of their spaces. Pure.

Also the refusals of the door, as one exception with a code.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from reconciler.core.errors import KlutchError
from reconciler.oidc.tokens import Claims, texts

_MOST_GROUPS: Final = 200
_LONGEST: Final = 255

Code: TypeAlias = Literal[
    "invalid_request",
    "invalid_token",
    "forbidden",
    "not_found",
    "conflict",
    "unprocessable",
    "too_many_requests",
    "bad_gateway",
    "unavailable",
]
STATUS: Final[dict[Code, int]] = {
    "invalid_request": 400,
    "invalid_token": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "unprocessable": 422,
    "too_many_requests": 429,
    "bad_gateway": 502,
    "unavailable": 503,
}


class Refused(KlutchError):
    """The door refuses. `reason` is one word for audit lines; the sentence is for the client.

    `retry_after` is in seconds.
    """

    def __init__(
        self, code: Code, sentence: str, *, reason: str = "", retry_after: float | None = None
    ) -> None:
        self.code, self.reason, self.retry_after = code, reason or code, retry_after
        super().__init__(sentence)

    @property
    def status(self) -> int:
        return STATUS[self.code]


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that a provider vouched for.

    `issuer` and `subject` say who it is; `user` and `groups` (with their prefixes) are what rules
    and the API server's authorisation know it by. `first` means that `issuer` is the provider of
    `--oidc-issuer-url`, whose identities own spaces as the original's do (protocol-bind.md B.4).
    `claims` are those that the rules of an access file ask for, and their values.
    """

    issuer: str
    subject: str
    user: str
    groups: tuple[str, ...] = ()
    first: bool = True
    claims: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Naming:
    """The claims of users and groups, and the prefix of their values."""

    user_claim: str = "sub"
    user_prefix: str = ""
    groups_claim: str = "groups"
    groups_prefix: str = ""


def identity_of(
    claims: Claims, naming: Naming, *, first: bool, keep: Collection[str] = ()
) -> Identity:
    """Return the identity that a token proves. `keep` are the claims that rules ask for.

    Raises Refused where the claim of the user is missing, or the subject could be another issuer's.
    """
    subject = claims.subject  # of another issuer, `space_identity` writes URL and subject
    if first and subject.startswith(("https://", "http://")) and "|" in subject:
        raise Refused("invalid_token", "the subject of the token contains a bar", reason="sub")
    user = claims.raw.get(naming.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= _LONGEST:
        sentence = (
            f"the token has no text {naming.user_claim} of at most {_LONGEST} characters that its"
            " provider vouches for"
        )
        raise Refused("invalid_token", sentence, reason="user")
    groups = _texts(claims.raw.get(naming.groups_claim))
    # JSON can hold lone surrogates, which UTF-8 cannot encode.
    if any("\ud800" <= one <= "\udfff" for text in (subject, user, *groups) for one in text):
        raise Refused("invalid_token", "the token has a text that is no Unicode", reason="claims")
    return Identity(
        claims.issuer,
        claims.subject,
        f"{naming.user_prefix}{user}",
        tuple(f"{naming.groups_prefix}{group}" for group in groups),
        first,
        tuple((name, texts(claims.raw.get(name))) for name in sorted(keep)),
    )


def _texts(value: object) -> Sequence[str]:
    """Return the groups of a claim, which some providers state as one text."""
    groups = [one for one in texts(value) if 0 < len(one) <= _LONGEST]
    if len(groups) > _MOST_GROUPS:
        sentence = f"the token names more than {_MOST_GROUPS} groups; have the provider filter them"
        raise Refused("forbidden", sentence, reason="groups")
    return groups


def space_identity(identity: Identity, cid: str) -> str:
    """Return the annotation `identity` of the space of an identity's app cluster."""
    return f"{owner_key(identity)}#{cid}"


def owner_key(identity: Identity) -> str:
    """Return the start of the annotations of all spaces of an identity, before `#`."""
    return identity.subject if identity.first else f"{identity.issuer}|{identity.subject}"
