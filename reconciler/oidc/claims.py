"""What a token says, and what all of it has to be before it counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.oidc.errors import TokenRefused

LEEWAY: Final = 30.0  # seconds that two clocks may differ
_LONGEST_SUBJECT: Final = 255


@dataclass(frozen=True, slots=True)
class Claims:
    """What a checked token says."""

    issuer: str
    subject: str
    raw: Mapping[str, object] = field(repr=False)
    expires_at: float


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a text or a list; truth values and whole numbers as JSON writes them."""
    match value:
        case str():
            return (value,)
        case bool():
            return ("true" if value else "false",)
        case int():
            return (str(value),)
        case list():
            return tuple(item for item in value if isinstance(item, str))
        case _:
            return ()


def vouched(raw: Mapping[str, object]) -> Mapping[str, object]:
    """Return the claims without an address that its user may have made up, as Kubernetes does."""
    if raw.get("email_verified", True) is True:
        return raw
    return {name: value for name, value in raw.items() if name != "email"}


def require_issuer(raw: Mapping[str, object], issuer: str) -> None:
    """Compare the issuer, character by character. Raises TokenRefused."""
    if not issuer or raw.get("iss") != issuer:
        raise TokenRefused("issuer", "the token is of another issuer")


def subject(raw: Mapping[str, object]) -> str:
    """Return the subject. Raises TokenRefused: none, no text, empty, or longer than 255."""
    value = raw.get("sub")
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_SUBJECT:
        raise TokenRefused("subject", "the token has no subject of 1 to 255 characters")
    return value


def audiences(raw: Mapping[str, object]) -> Sequence[str]:
    """Return whom the token is for. Raises TokenRefused: nobody, or no texts."""
    value = raw.get("aud")
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(a, str) for a in found):
        raise TokenRefused("audience", "the token has no audience")
    return found


def moment(raw: Mapping[str, object], name: str) -> float | None:
    """Return a claim that is a time. Raises TokenRefused: there, and no number."""
    if name not in raw:
        return None
    value = raw[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRefused("times", f"`{name}` of the token is no time")
    return float(value)


def required_moment(raw: Mapping[str, object], name: str) -> float:
    """Return a time that has to be there. Raises TokenRefused."""
    value = moment(raw, name)
    if value is None:
        raise TokenRefused("times", f"the token has no `{name}`")
    return value


def require_valid_at(raw: Mapping[str, object], now: float) -> float:
    """Return when the token expires. Raises TokenRefused: never, before, or not valid yet."""
    expires_at = required_moment(raw, "exp")
    if expires_at <= now - LEEWAY:
        raise TokenRefused("expired", "the token has expired")
    for name in ("nbf", "iat"):
        value = moment(raw, name)
        if value is not None and value > now + LEEWAY:
            raise TokenRefused("early", f"`{name}` of the token is in the future: compare clocks")
    return expires_at
