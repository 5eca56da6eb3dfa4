"""Signs in at a provider, by browser or token, and returns its grant.

The browser comes back to a server on 127.0.0.1 and ::1, for one sign-in (RFC 8252 7.3 and 8).
Anybody on this machine, and any page in its browser, can call it: what does not fit is answered
with 400, and the wait goes on (protocol-bind.md F17). The request line holds a whole kubeconfig
where the provider is an original.
"""

import asyncio
import base64
import contextlib
import errno
import hashlib
import hmac
import html
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from math import inf
from string import Template
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from klutchctl.binding import provider as api
from klutchctl.binding import response
from klutchctl.binding.progress import BadAnswer, Denied, NoConsent, Progress
from klutchctl.binding.provider import FrontDoor, Provider, with_query
from reconciler.core.errors import ConfigError, HostError
from reconciler.core.manifest import Manifest
from reconciler.core.names import base62_digest
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.kube.networks import ANYWHERE, Networks
from reconciler.oidc import grants
from reconciler.web.connections import Limits
from reconciler.web.outbound import Http
from reconciler.web.requests import Request, RequestRefused, Response
from reconciler.web.serve import Listening, served

DRY_RUN: Final = "dryrun"  # the cluster id of an app cluster without Namespace klutch-bind
_LENGTH: Final = 6
T = TypeVar("T")

_LIMITS: Final = Limits(
    line=64 * 1024, head=80 * 1024, body=1024, connections=32, rate=inf
)  # all of this machine have one address
_TRIES: Final = 20
_DONE: Final = ("Back to the command line", "It has your answer. You can close this page.")
_LOOPBACK: Final = ("127.0.0.1", "::1")
_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_PAGE: Final = resources.files(__package__).joinpath("callback.html").read_text("utf-8")
_STYLE: Final = hashlib.sha256(_PAGE.partition("<style>")[2].partition("</style>")[0].encode())
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(_STYLE.digest()).decode()}'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
_NOT_OURS: Final = "This answer is for another session. Start again from the command line."
_LONGEST: Final = 64


def cluster_id(uid: str) -> str:
    """Return the id of an app cluster, from the uid of its Namespace klutch-bind (G.2).

    Providers key binding spaces on it.
    """
    return base62_digest(uid.encode())[:_LENGTH]


def session_id(random: bytes) -> str:
    """Return the id of a session: safe in a cookie's name, 32 characters of 16 octets."""
    return random.hex()


_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The grant of a provider. `consent` are claims with their states where a page asked for it."""

    grant: response.Grant
    consent: Sequence[Manifest] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """The sign-in of an app cluster at a provider.

    `cluster_name` is what people here call it: a front door of ours shows it beside the id.
    """

    http: Http
    provider: Provider
    progress: Progress
    cluster_id: str
    cluster_name: str = ""
    dry_run: bool = False
    networks: Networks = ANYWHERE

    async def by_browser(
        self,
        resource: GroupResource | None,
        *,
        port: int,
        show: Callable[[str], object] | None,
        is_first: bool = True,
    ) -> SignedIn:
        """Have a person sign in, and choose `resource`, or any. `show` opens a browser.

        But for the first, the browser is signed in already.

        Raises ConfigError, NoConsent, Denied, BadAnswer and BindEnded.
        """
        door = self.provider.door
        session = session_id(secrets.token_bytes(16))
        verifier = grants.verifier(secrets.token_bytes(32))
        expected = Expected(session, None if door is None else door.audience)
        name = "" if resource is None else resource.name
        page = partial(_last_page, name)
        async with listening(expected.accept, page, port=port) as callback:
            url = self._authorize_url(session, callback.port, verifier, resource)
            self.progress.report("visit" if is_first else "agree", url=url, name=name)
            if show is not None:
                await asyncio.to_thread(show, url)
            try:
                answer = await callback.answer(seconds=_SECONDS)
            except TimeoutError:
                raise NoConsent(f"no sign-in within {_SECONDS / 60:.0f} minutes") from None
        if answer.error:
            raise Denied(f"the sign-in was refused: {answer.error}")
        if answer.document is not None:
            signed_in = SignedIn(response.grant_of(answer.document, networks=self.networks))
        else:
            assert door is not None
            assert answer.code is not None
            granted, consent = await api.redeem(self.http, door, answer.code, verifier)
            signed_in = SignedIn(self._grant(granted), consent)
        if is_first:
            self.progress.report("signed-in", url=self.provider.url)
        return signed_in

    def _authorize_url(
        self, session: str, port: int, verifier: Secret, resource: GroupResource | None
    ) -> str:
        fields = {"s": session, "c": self.cluster_id, "p": str(port)}
        if self.provider.door is not None:
            fields |= {
                "code_challenge": grants.challenge(verifier),
                "code_challenge_method": "S256",
                "cluster_name": self.cluster_name,
            }
            if resource is not None:
                fields |= resource.wire
            if self.dry_run:
                fields["dry_run"] = "1"
        return with_query(self.provider.authorize_url, fields)

    async def by_token(self, token: Secret, resources: Sequence[GroupResource]) -> SignedIn:
        """Bind with a token; without resources, the one that it may bind.

        Raises ConfigError, Denied, BadAnswer and BindEnded.
        """
        door = front_door(self.provider)
        wanted = resources or [_the_one(await api.offered(self.http, door, token))]
        granted = await api.bind(
            self.http,
            door,
            token,
            cluster={"clusterID": self.cluster_id, "clusterName": self.cluster_name},
            resources=wanted,
            dry_run=self.dry_run,
        )
        self.progress.report("signed-in", url=self.provider.url)
        return SignedIn(self._grant(granted))

    def _grant(self, document: Manifest) -> response.Grant:
        return response.grant_of(document, dry_run=self.dry_run, networks=self.networks)


def _last_page(name: str, answer: "Answer") -> tuple[str, str]:
    """Return the page at the end of the walk: a heading, and a sentence."""
    about = f" about {name}" if name else ""
    if answer.error:
        return "Nothing is bound", f"The command line has your no{about}. You can close this page."
    return (
        "Back to the command line",
        f"The command line has your answer{about}, and continues. You can close this page.",
    )


def front_door(provider: Provider) -> FrontDoor:
    """Return the front door that takes tokens. Raises ConfigError: an original backend has none."""
    if provider.door is None:
        raise ConfigError("an original backend offers sign-in with a browser only", where="URL")
    return provider.door


def _the_one(offered: Sequence[GroupResource]) -> GroupResource:
    if len(offered) == 1:
        return offered[0]
    names = ", ".join(sorted(one.name for one in offered)) or "nothing"
    raise ConfigError(
        "which resource is to be bound?", where="--resource", hint=f"Offered: {names}"
    )


def require_asked(grant: response.Grant, asked: Sequence[GroupResource]) -> None:
    """Refuse a grant that was not asked for. Raises NoConsent."""
    granted = {one.resource for one in grant.wanted}
    if asked and granted != set(asked):
        names = ", ".join(sorted(one.name for one in granted))
        raise NoConsent(
            f"the provider answered for {names}, which --resource does not name; nothing was bound"
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a provider: a code of our door, or the BindingResponse of an original backend.

    Or the person, or the provider, said no: `error` is the code of RFC 6749 4.1.2.1.
    """

    code: Secret | None = None
    document: Manifest | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """The answer that belongs to a session. `door`: the issuer of codes, None for an original."""

    session: str
    door: str | None

    def accept(self, query: Mapping[str, str]) -> Answer:
        """Return the answer in a call. Raises Foreign."""
        return self._response(query) if self.door is None else self._code(query)

    def _code(self, query: Mapping[str, str]) -> Answer:
        if not self._is_session(query.get("state", "")):
            raise Foreign(_NOT_OURS)
        # RFC 9207: an answer of another server must not be taken for ours.
        if query.get("iss", "") != self.door:
            raise Foreign("This answer is not from the provider that was asked.")
        if error := query.get("error", ""):
            return Answer(error=error[:_LONGEST])
        code = query.get("code", "")
        if not code:
            raise Foreign("There is no code in this answer.")
        return Answer(Secret(code))

    def _response(self, query: Mapping[str, str]) -> Answer:
        try:
            document = response.document_of(query.get("response", ""))
            session = response.session_of(document)
        except BadAnswer:
            raise Foreign("This is no answer of a provider.") from None
        if not self._is_session(session):
            raise Foreign(_NOT_OURS)
        return Answer(document=document)

    def _is_session(self, found: str) -> bool:
        return hmac.compare_digest(found.encode("utf-8", "replace"), self.session.encode())


class Foreign(RequestRefused):
    """A call that is not the answer that is waited for. Its text is shown to the caller."""

    def __init__(self, text: str) -> None:
        super().__init__(400, text)


class Callback(Generic[T]):
    """Waits for the one call that `accept` takes; others are answered with the Foreign it raises.

    `port` is that of both addresses; `shown` has the heading and the text of the page that follows.
    """

    def __init__(
        self, accept: Callable[[Mapping[str, str]], T], shown: Callable[[T], tuple[str, str]]
    ) -> None:
        self.port = 0
        self._accept, self._shown = accept, shown
        self._answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def answer(self, *, seconds: float) -> T:
        """Return the answer that the browser brought. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._answer)

    async def serve(self, request: Request) -> Response:
        """Answer one request. Raises RequestRefused."""
        if not _is_local(request.headers.get("host", ""), self.port):
            raise Foreign("This is no request for this server.")
        if request.path != "/callback":
            raise RequestRefused(404, "There is nothing here.")
        if request.method != "GET":
            raise RequestRefused(405, "Only GET is answered.")
        if not self._answer.done():
            self._answer.set_result(self._accept(request.query))
        return _page(request, 200, *self._shown(self._answer.result()))


@contextlib.asynccontextmanager
async def listening(
    accept: Callable[[Mapping[str, str]], T],
    shown: Callable[[T], tuple[str, str]] = lambda _: _DONE,
    *,
    port: int = 0,
) -> AsyncIterator[Callback[T]]:
    """Serve on a port of this machine (0: a free one) for the length of the block.

    Raises ConfigError where the port is taken, also if by another on one of both addresses only.
    """
    callback = Callback(accept, shown)
    for _ in range(_TRIES):
        try:
            stack, callback.port = await _on_both(callback, port)
            break
        except HostError as error:
            if _number(error) != errno.EADDRINUSE:
                raise
        if port:
            hint = "Another program would get the answer; choose another port"
            raise ConfigError(f"port {port} is taken", where="--callback-port", hint=hint)
    else:
        raise HostError("no port is free on 127.0.0.1 and ::1 alike")
    async with stack:
        yield callback


async def _on_both(callback: Callback[T], port: int) -> tuple[contextlib.AsyncExitStack, int]:
    """Serve on each loopback address there is, with one port. Raises HostError."""
    async with contextlib.AsyncExitStack() as stack:
        for host in _LOOPBACK:
            listens = Listening((host, port), limits=_LIMITS)
            try:
                _, port = await stack.enter_async_context(
                    served(listens, callback.serve, refusal_page=_page)
                )
            except HostError as error:
                if host == _LOOPBACK[0] or _number(error) not in _NO_FAMILY:
                    raise
        return stack.pop_all(), port


def _number(error: HostError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def _is_local(host: str, port: int) -> bool:
    """Return whether the request does not come from a foreign page by DNS rebinding."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname in _HOSTS and parts.port == port
    except ValueError:
        return False


def _page(_request: Request, status: int, heading: str, text: str = "") -> Response:
    body = Template(_PAGE).substitute(heading=html.escape(heading), text=html.escape(text))
    return Response(status, body.encode(), "text/html; charset=utf-8", _HEADERS)
