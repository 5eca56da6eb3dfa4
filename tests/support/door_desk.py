"""The handlers of a front door, on stand-ins for the provider and the control plane."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from bind.door.audit import Audit
from bind.door.catalogue import Offer
from bind.door.handlers.services import Services
from bind.door.identity import Identity, Refused
from bind.door.keyring import KeyRing
from bind.door.provisioning import Space
from bind.door.sessions import Keys
from bind.door.settings import DoorSettings
from reconciler.core.manifest import JSON
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.oidc.provider import Provider
from reconciler.web.outbound import Answer
from reconciler.web.requests import Request, Response
from tests.support.fake_clock import FakeClock

T = TypeVar("T")

ISSUER: Final = "https://idp.example.org"
ALICE: Final = Identity(ISSUER, "alice", "oidc:alice", ("oidc:team-a",))
SECRETS: Final[dict[str, JSON]] = {
    "resource": "secrets",
    "version": "v1",
    "required": True,
    "selector": {"owner": "Provider", "names": ["*"], "namespaces": ["*"]},
}
CONFIG: Final[dict[str, JSON]] = {**SECRETS, "resource": "configmaps", "required": False}
CACHES: Final = Offer(
    "shop",
    "caches",
    GroupResource("shop.example", "caches"),
    "Cache",
    "cache",
    "Namespaced",
    "A cache",
    claims=(SECRETS, CONFIG),
)
SETTINGS: Final = DoorSettings(
    issuer=ISSUER,
    client_id="door",
    client_secret=Secret("s3cret"),
    callback="https://bind.example.org/callback",
    public="https://bind.example.org",
    authorize="https://bind.example.org/authorize",
)
PROVIDER: Final = Provider(ISSUER, f"{ISSUER}/auth", f"{ISSUER}/token", f"{ISSUER}/keys")
SID: Final = "s" * 22
HOST: Final = {"host": "bind.example.org"}
OURS: Final = {
    "origin": "https://bind.example.org",
    "content-type": "application/x-www-form-urlencoded",
}


@dataclass
class Provided:
    """A provider, and who its tokens stand for; an exception is raised in place of an answer."""

    identity: Identity | Exception = ALICE
    says: Provider | Exception = PROVIDER
    token: Answer | Exception = field(
        default_factory=lambda: Answer(
            200, b'{"access_token":"a","id_token":"i","token_type":"Bearer"}', {}, ""
        )
    )
    sent: int = 0

    async def first(self) -> "Provided":
        return self

    async def provider(self) -> Provider:
        return _answered(self.says)

    async def signed_in(self, check: object) -> Identity:
        return _answered(self.identity)

    async def identity_of(self, token: Secret) -> Identity:
        return _answered(self.identity)

    async def send(self, form: object) -> Answer:
        self.sent += 1
        return _answered(self.token)


def _answered(one: T | Exception) -> T:
    if isinstance(one, Exception):
        raise one
    return one


@dataclass
class Plane:
    """What is offered, who may bind it, and the spaces that were made."""

    offers_now: list[Offer] = field(default_factory=lambda: [CACHES])
    allowed: bool | Exception = True
    space: Space | Exception = field(default_factory=lambda: Space("cluster-1", b"kubeconfig"))
    made: list[tuple[str, str, str]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    reads: int = 0

    async def offers(self) -> list[Offer]:
        self.reads += 1
        return self.offers_now

    async def offer(self, group: str, resource: str) -> Offer:
        self.reads += 1
        for one in self.offers_now:
            if one.resource == GroupResource(group, resource):
                return one
        raise Refused("not_found", "not offered")

    async def may_bind(self, identity: Identity, offer: Offer) -> bool:
        return _answered(self.allowed)

    async def may_see_all(self, identity: Identity) -> bool:
        return False

    async def provide(self, identity: Identity, cid: str, offer: Offer, *, name: str = "") -> Space:
        space: Space = _answered(self.space)
        self.made.append((identity.subject, cid, offer.resource.name))
        self.labels.append(name)
        return space


@dataclass
class Lines:
    """The audit lines."""

    text: str = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


class Desk:
    """The services of one replica, and a browser that keeps its cookies."""

    def __init__(self, settings: DoorSettings = SETTINGS) -> None:
        self.provider, self.plane, self.lines = Provided(), Plane(), Lines()
        self.time, self.cookies = 1_800_000_000.0, dict[str, str]()
        clock = FakeClock()
        self.ring = KeyRing(cast("Any", self), "klutch-bind", clock=clock, given=b"k" * 32)
        issuers = cast("Any", _Issuers(self.provider))
        self.services = Services(
            settings=settings,
            http=cast("Any", self.provider),
            issuers=issuers,
            ring=self.ring,
            views=lambda: cast("Any", self.plane),
            spaces=cast("Any", self.plane),
            authorizer=self.plane,
            audit=Audit(clock, cast("Any", self.lines)),
            now=lambda: self.time,
        )

    name = "control-plane"

    async def keys(self) -> Keys:
        return await self.ring.keys()

    async def ask(
        self,
        handler: Callable[[Request], Any],
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] = HOST,
        body: bytes = b"",
    ) -> Response:
        """Send a request as a browser does, and keep what cookies it is given."""
        request = Request(
            "GET",
            f"/{handler.__name__}",
            query=query or {},
            headers=headers,
            cookies=dict(self.cookies),
            body=body,
            address="192.0.2.1",
            id="1",
        )
        answer: Response = await handler(request)
        for cookie in answer.cookies:
            self.cookies.pop(cookie.name, None)
            if cookie.age:
                self.cookies[cookie.name] = cookie.value
        return answer


@dataclass
class _Issuers:
    provider: Provided

    async def first(self) -> Provided:
        return self.provider

    async def signed_in(self, check: object) -> Identity:
        return await self.provider.signed_in(check)

    async def identity(self, token: Secret) -> Identity:
        return await self.provider.identity_of(token)


def location(answer: Response) -> str:
    return dict(answer.headers).get("Location", "")


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def csrf_of(answer: Response) -> str:
    found = re.search(rb'name="csrf" value="([0-9a-f]+)"', answer.body)
    assert found
    return found[1].decode()


def asking(**claims: JSON) -> Offer:
    """Return the offer, with another claim in place of its second."""
    return replace(CACHES, claims=(SECRETS, {**CONFIG, **claims}))
