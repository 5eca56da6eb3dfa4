"""The tools of the door's handlers."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bind.door import sessions
from bind.door.audit import Audit
from bind.door.authorizer import Authorizer
from bind.door.catalogue import Offer
from bind.door.handlers import answers
from bind.door.identity import Identity, Refused, owner_key
from bind.door.issuers import Issuers
from bind.door.keyring import KeyRing
from bind.door.pages.views import Frame
from bind.door.sessions import Code, Session, Visit
from bind.door.settings import DoorSettings
from bind.door.spaces import Spaces
from bind.door.views import Views
from reconciler.core.refs import GroupResource
from reconciler.web.outbound import Http
from reconciler.web.requests import Buckets, Cookie, Request

S = TypeVar("S", bound=Session)

_SESSION: Final = "klutch-bind-"  # protocol-bind.md B.3
UI_COOKIE: Final = "klutch-ui"
_BINDS: Final = (1.0, 10)  # a second, and at once, of one subject
_LOOKS: Final = (1.0, 10)  # and at the catalogue, which costs a review for each offer
_BAD_TOKENS: Final = (5 / 60, 5)  # of one address
_MOST_USED: Final = 100_000
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME: Final = re.compile(r"[a-z0-9.-]{0,253}")
_LONGEST_LABEL: Final = 80


class UsedOnce:
    """Remembers used codes, for as long as they could be used again."""

    def __init__(self, age: float) -> None:
        self._age = age
        self._until: dict[str, float] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._until)

    def take(self, text: str, now: float) -> bool:
        """Use a text, and return whether it was not used before."""
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now and len(self._until) < _MOST_USED:
                break
            del self._until[oldest]
        if text in self._until:
            return False
        self._until[text] = now + self._age
        return True

    def give_back(self, text: str) -> None:
        """Let a text be used again, of whose use nothing came."""
        self._until.pop(text, None)


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that handlers share. Times of `now` are seconds since the epoch."""

    settings: DoorSettings
    http: Http
    issuers: Issuers
    ring: KeyRing
    views: Callable[[], Views]
    spaces: Spaces
    authorizer: Authorizer
    audit: Audit
    now: Callable[[], float] = time.time
    binds: Buckets = field(default_factory=lambda: Buckets(*_BINDS))
    looks: Buckets = field(default_factory=lambda: Buckets(*_LOOKS))
    bad_tokens: Buckets = field(default_factory=lambda: Buckets(*_BAD_TOKENS))
    states: UsedOnce = field(default_factory=lambda: UsedOnce(sessions.LOGIN.age))
    codes: UsedOnce = field(default_factory=lambda: UsedOnce(sessions.CODE.age))

    @property
    def secure(self) -> bool:
        """Whether browsers reach the door over TLS."""
        return self.settings.callback.startswith("https://")

    async def chosen(self, identity: Identity, resource: GroupResource) -> Offer:
        """Return an offer that an identity may bind. Raises Refused."""
        found = await self.views().offer(resource.group, resource.plural)
        if not await self.authorizer.may_bind(identity, found):
            sentence = (
                f"{identity.user} may not bind {resource.name}. Ask the operator of this backend "
                f"for the verb bind on template {found.namespace}/{found.name}"
            )
            raise Refused("forbidden", sentence, reason="authorization")
        return found

    def count_bind(self, identity: Identity) -> None:
        """Count one wish to bind. Raises Refused where there were too many."""
        self._count(self.binds, identity)

    def count_look(self, identity: Identity) -> None:
        """Count one look at a page that costs something. Raises Refused after too many."""
        self._count(self.looks, identity)

    def _count(self, buckets: Buckets, identity: Identity) -> None:
        wait = buckets.take(f"{identity.issuer}|{owner_key(identity)}", self.now())
        if wait:
            sentence = "Too many requests of yours at once. Try again in a moment"
            raise Refused("too_many_requests", sentence, retry_after=wait)

    async def is_form_token(self, given: str, subject: str) -> bool:
        """Return whether a form came from a page of ours, of whichever replica. Raises Refused."""
        known = await self.ring.opened(lambda keys: keys.is_form_token(given, subject) or None)
        return known is not None

    async def session(self, request: Request, sid: str) -> Session:
        """Return the session of a browser. Raises Refused where it is missing, or another's."""
        text = request.cookies.get(f"{_SESSION}{sid}", "")
        session = await self._opened(Session, sessions.SESSION, text)
        if session is None or session.wish.sid != sid:
            sentence = "You are not signed in, or your session has ended"
            raise Refused("invalid_token", sentence, reason="session")
        return session

    def session_cookie(self, sid: str, text: str) -> Cookie:
        return Cookie(f"{_SESSION}{sid}", text, sessions.SESSION.age, self.secure)

    async def visit(self, request: Request) -> Visit | None:
        """Return the session of a person at `/ui/`, or None. Raises Refused."""
        return await self._opened(
            Visit, sessions.UI, request.cookies.get(self.ui_cookie("").name, "")
        )

    def ui_cookie(self, text: str) -> Cookie:
        """Return the cookie of a person at `/ui/`; the empty text ends it."""
        name = f"__Host-{UI_COOKIE}" if self.secure else UI_COOKIE
        return Cookie(name, text, sessions.UI.age if text else 0, self.secure)

    def is_own(self, request: Request) -> bool:
        """Return whether a form was sent by one of our pages."""
        own = {answers.origin(self.settings.callback), answers.origin(self.settings.public)}
        return request.headers.get("origin", "").lower() in own

    @property
    def frame(self) -> Frame:
        """The frame of this door's pages."""
        return Frame(self.settings.pretty_name, ui=self.settings.ui)

    async def code(self, text: str) -> Code:
        """Return the content of a code. Raises Refused."""
        found = await self._opened(Code, sessions.CODE, text)
        if found is None:
            raise Refused("invalid_request", "The code is not one of ours, or too old")
        return found

    async def _opened(self, kind: type[S], purpose: sessions.Purpose, text: str) -> S | None:
        """Return the content of a text that this door has sealed. Raises Refused."""
        if not text:
            return None
        return await self.ring.opened(lambda keys: kind.opened(keys, purpose, text, self.now()))


def is_session_cookie(name: str) -> bool:
    return name.startswith(_SESSION) and is_id(name.removeprefix(_SESSION))


def claims_digest(offer: Offer) -> str:
    """Return a digest of an offer's claims, by which a change after the reading shows."""
    return hashlib.sha256(json.dumps(list(offer.claims), sort_keys=True).encode()).hexdigest()[:16]


def resource_of(values: Mapping[str, str]) -> GroupResource:
    """Return the resource that a query or a document names. Raises Refused."""
    plural, group = values.get("resource", ""), values.get("group", "")
    if not plural:
        raise Refused("invalid_request", "resource is missing", reason="missing")
    if not is_name(plural) or not is_name(group):
        raise Refused("invalid_request", "resource or group is malformed", reason="malformed")
    return GroupResource(group, plural)


def is_name(text: str) -> bool:
    """Return whether a text could name a group or a resource; "" is the core group."""
    return _NAME.fullmatch(text) is not None


def label_of(text: str) -> str:
    """Return the printable part of an app cluster's name, as somebody sent it."""
    return "".join(filter(str.isprintable, text))[:_LONGEST_LABEL]


def is_id(text: str) -> bool:
    """Return whether a text is one that names sessions and clusters, and that cookies may bear."""
    return _ID.fullmatch(text) is not None
