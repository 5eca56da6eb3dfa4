"""Seals the state of a browser or CLI into cookies and codes: the door stores none.

Each replica with the keys can read a sealed text, for one purpose and a limited time. Pure: keys,
time and randomness are arguments.
"""

import base64
import dataclasses
import hashlib
import hmac
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bind.door.identity import Identity

T = TypeVar("T")

KEY_BYTES: Final = 32
MOST: Final = 3_800  # characters of a sealed text: browsers drop cookies of more than 4,096 bytes
_MOST_OPENED: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of a sealed text, and the seconds until it ends."""

    name: str
    age: int


LOGIN: Final = Purpose("login", 600)
SESSION: Final = Purpose("session", 3_600)
CODE: Final = Purpose("code", 60)
UI: Final = Purpose("ui", 8 * 3_600)
_IDLE: Final = 3_600  # seconds without a page, after which a person signs in again


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets that everything is sealed with: the present one, and those before it."""

    present: bytes = dataclasses.field(repr=False)
    former: tuple[bytes, ...] = dataclasses.field(default=(), repr=False)

    def seal(self, purpose: Purpose, value: dict[str, Any], now: float) -> str:
        """Return a value as a text that only these keys open, and for this purpose."""
        plain = zlib.compress(json.dumps(value, separators=(",", ":")).encode())
        return _fernet(self.present, purpose).encrypt_at_time(plain, int(now)).decode()

    def open(self, purpose: Purpose, text: str, now: float) -> dict[str, Any] | None:
        """Return the value; None for one that is too old, cut, or sealed with another key."""
        for key in (self.present, *self.former):
            try:
                plain = _fernet(key, purpose).decrypt_at_time(text, purpose.age, int(now))
            except (InvalidToken, ValueError):
                continue
            opened: dict[str, Any] = json.loads(
                zlib.decompressobj().decompress(plain, _MOST_OPENED)
            )
            return opened
        return None

    def form_token(self, subject: str) -> str:
        """Return the token of a session's forms on one page, which no other site can send."""
        return _form_token(self.present, subject)

    def is_form_token(self, given: str, subject: str) -> bool:
        return any(
            hmac.compare_digest(given.encode(), _form_token(key, subject).encode())
            for key in (self.present, *self.former)
        )


def _fernet(key: bytes, purpose: Purpose) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(_derived(key, purpose.name)))


def _derived(key: bytes, purpose: str) -> bytes:
    info = f"klutch-bind door {purpose}".encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)


def _form_token(key: bytes, subject: str) -> str:
    return hmac.new(_derived(key, "form"), subject.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Wish:
    """The purpose of a sign-in, as its start stated it.

    `target` is where the answer goes, "" for a browser that only looks around. `sid` and `cid` are
    the CLI's session and the app cluster, which its user calls `name`. With `challenge`, the answer
    is a code that only the CLI redeems; only then, `resource` and `group` name what is to be bound,
    and `dry_run` asks for an answer that makes nothing.
    """

    target: str = ""
    sid: str = ""
    cid: str = ""
    challenge: str = ""
    dry_run: bool = False
    resource: str = ""
    group: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """A sign-in that went to the provider, in a cookie of the browser that began it."""

    state: str
    nonce: str
    verifier: str = dataclasses.field(repr=False)
    wish: Wish
    at: float

    def sealed(self, keys: Keys) -> str:
        return keys.seal(LOGIN, dataclasses.asdict(self), self.at)

    @classmethod
    def opened(cls, keys: Keys, text: str, now: float) -> Self | None:
        """Return the content of a cookie, or None."""
        return _made(
            keys.open(LOGIN, text, now), lambda kept: cls(**{**kept, "wish": Wish(**kept["wish"])})
        )


def login_id(state: str) -> str:
    """Return the part of a login cookie's name that separates several logins."""
    return hashlib.sha256(state.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in identity, and its purpose."""

    identity: Identity
    wish: Wish
    at: float

    def sealed(self, keys: Keys, purpose: Purpose) -> str:
        """Return the text of the cookie, or of a code."""
        return keys.seal(purpose, dataclasses.asdict(self), self.at)

    @classmethod
    def opened(cls, keys: Keys, purpose: Purpose, text: str, now: float) -> Self | None:
        """Return the content of a cookie or a code, or None."""
        return _made(keys.open(purpose, text, now), lambda kept: cls(**_session_fields(kept)))


@dataclass(frozen=True, slots=True)
class Code(Session):
    """The code of a CLI: the identity, the offer, and the consent.

    `consent` are the places of accepted permission claims of the offer; None leaves the question to
    the CLI. `id` tells one code from another; `claims` is the digest of what was agreed to.
    """

    id: str
    consent: tuple[int, ...] | None
    claims: str = ""


@dataclass(frozen=True, slots=True)
class Visit(Session):
    """A signed-in person at `/ui/`; `used` is the time of the last page, about."""

    used: float = 0.0

    @classmethod
    def opened(cls, keys: Keys, purpose: Purpose, text: str, now: float) -> Self | None:
        """Return the content of a cookie; None also where it was not used for an hour."""
        visit = super(Visit, cls).opened(keys, purpose, text, now)
        return None if visit is None or now - visit.seen > _IDLE else visit

    @property
    def seen(self) -> float:
        return max(self.used, self.at)


def _made(kept: dict[str, Any] | None, make: Callable[[dict[str, Any]], T]) -> T | None:
    """Return the sealed value; None for nothing, and for a value of another version."""
    try:
        return None if kept is None else make(kept)
    except (KeyError, TypeError):
        return None


def _session_fields(kept: dict[str, Any]) -> dict[str, Any]:
    identity = kept["identity"]
    claims = tuple((name, tuple(values)) for name, values in identity.get("claims", ()))
    known = {**identity, "groups": tuple(identity["groups"]), "claims": claims}
    own = {name: tuple(one) if isinstance(one, list) else one for name, one in kept.items()}
    return {**own, "identity": Identity(**known), "wish": Wish(**kept["wish"])}
