"""An identity provider on loopback, which lies on cue (`lies`, see issuer_lies.py).

And tokens that prove nothing: each row of front-door.md 9.
"""

import base64
import collections
import contextlib
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from aiohttp import web

from klutchctl.sandbox import credentials
from tests.support import issuer_tokens as tokens
from tests.support.browsers import PUBLIC
from tests.support.issuer_clients import Client, Clients, Refusal
from tests.support.issuer_grants import GRANT_TYPES, Grants
from tests.support.issuer_lies import Lies, Members, unheard
from tests.support.issuer_tokens import Claims, Signing, SigningKey, signing_key, without_none
from tests.support.listener import ThreadedServer

WEB: Final = Client("door", secret="s+cr t/of:the door%")  # to be encoded by Basic
CLI: Final = Client("klutchctl")
MACHINE: Final = Client("pipeline", secret="machine-secret")
SIGNER_KEY: Final = signing_key("of-the-signer", "ES256")
SIGNER: Final = Client("signer", key=SIGNER_KEY)
CLUSTER_KEY: Final = signing_key("of-a-cluster", "ES256")  # signs for ServiceAccounts
FEDERATED: Final = Client("federated", key=CLUSTER_KEY, subject="system:serviceaccount:ci:deployer")
CLIENTS: Final = (WEB, CLI, MACHINE, SIGNER, FEDERATED)
_PROOFS: Final = ("code", "code_verifier", "device_code", "subject_token", "client_assertion")
_GUESSED: Final = 16  # characters, or fewer: no proof of a test's that could not be elsewhere


@dataclass(frozen=True, slots=True)
class User:
    """A person at the provider; `claims` are in all tokens for them."""

    subject: str
    claims: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """A request with a form."""

    headers: Mapping[str, str]
    form: Mapping[str, str]
    at: float  # monotonic


class FakeProvider(ThreadedServer):
    """An issuer with its clients, its users and its keys.

    `requests` counts by route (discovery, jwks, authorize, token, device), `received` holds the
    forms, `issued` the tokens. `audience` is whom access tokens are for, unless the request says
    so. `waits` are the answers to polls of the device grant before the one that counts, such as
    "slow_down". `algorithm` is that of keys to come. With `user` None, people refuse to sign in.
    """

    def __init__(self, clients: tuple[Client, ...], *, path: str, folder: Path | None) -> None:
        super().__init__()
        self.ca_file: Path | None = None
        if folder is not None:
            self._tls, self.ca_file = _certified(folder)
        self.origin = f"{'http' if folder is None else 'https'}://127.0.0.1:{self.port}"
        self.issuer = self.origin + path
        self.clients = Clients(clients, issuer=self.issuer)
        self.lies = Lies()
        self.user: User | None = None
        self.sign_in_as("alice", email="alice@example.org", groups=["team-a"])
        self.audience = self.issuer
        self.interval = 5
        self.waits: collections.deque[str] = collections.deque()
        self.keys = (signing_key(),)
        self.requests: collections.Counter[str] = collections.Counter()
        self.received: dict[str, list[Received]] = collections.defaultdict(list)
        self.issued: list[str] = []
        self._grants = Grants(self)
        self._path = path

    # What tests do.

    def sign_in_as(self, subject: str, **claims: Any) -> None:
        """Have this user before the browser, and before the device's page."""
        self.user = User(subject, claims)

    def rotate(self, algorithm: str = "RS256", *, keep: bool = False) -> SigningKey:
        """Sign by a new key from now on; the old one is taken from the key set unless kept."""
        new = signing_key(f"key-{len(self.keys) + 1}-{self.keys[0].kid}", algorithm)
        self.keys = (new, *(self.keys if keep else ()))
        return new

    def id_token(self, *, header: Members | None = None, **claims: Any) -> str:
        """Return an ID token for the web client; a claim of None is left out."""
        known = self._times(300) | {"sub": "alice", "aud": WEB.id}
        return tokens.signed(header or {}, {**known, **claims}, self.keys[0])

    def bearer(self, *, header: Members | None = None, **claims: Any) -> str:
        """Return a token for `audience`; a claim of None is left out."""
        known = self._times(300) | {"sub": "alice", "aud": self.audience}
        return tokens.signed(header or {}, {**known, **claims}, self.keys[0])

    @property
    def key_set(self) -> Members:
        """The public keys, as published."""
        return {"keys": [key.jwk() for key in self.keys], **self.lies.jwks}

    @property
    def proofs(self) -> set[str]:
        """What was given out or redeemed, and proves something: no log may hold one."""
        forms = [one.form for one in self.received["token"]]
        sent = {form[name] for form in forms for name in _PROOFS if name in form}
        return {one for one in (*self.issued, *sent) if len(one) > _GUESSED}

    # What the grants issue: with the lies in it.

    def issued_access_token(self, subject: str, **claims: Any) -> str:
        known = self._times(300) | {"sub": subject, "aud": self.audience} | claims
        return self._issued({**known, **self.lies.access_token})

    def issued_id_token(self, subject: str, access_token: str, **claims: Any) -> str:
        known = self._times(300) | {"sub": subject, "at_hash": tokens.at_hash(access_token)}
        return self._issued({**known, **claims, **self.lies.id_token})

    def _issued(self, claims: Members) -> str:
        self.issued.append(self.lies.signing(self.lies.header, claims, self.keys[0]))
        return self.issued[-1]

    def _times(self, life: int) -> Members:
        now = int(time.time())
        return {"iss": self.issuer, "iat": now, "exp": now + life, "jti": str(time.time_ns())}

    # The server.

    def _runner(self) -> web.AppRunner:
        app = web.Application()
        routes: tuple[tuple[str, str, str, Callable[[web.Request], Any]], ...] = (
            ("GET", "/.well-known/openid-configuration", "discovery", self._discovery),
            ("GET", "/jwks", "jwks", self._jwks),
            ("GET", "/authorize", "authorize", self._authorize),
            ("POST", "/token", "token", self._token),
            ("POST", "/device", "device", self._device),
            ("GET", "/activate", "activate", self._activate),
        )
        for method, path, name, handler in routes:
            app.router.add_route(method, self._path + path, self._counted(name, handler))
        return web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    def _counted(self, name: str, handler: Callable[[web.Request], Any]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.requests[name] += 1
            assert request.transport is not None
            self._connections.add(request.transport)
            if request.method == "POST":
                form = {key: str(value) for key, value in (await request.post()).items()}
                self.received[name].append(Received(request.headers, form, time.monotonic()))
            if reply := self.lies.replies.get(name):
                return await unheard(reply, request)
            try:
                answer: web.StreamResponse = await handler(request)
            except Refusal as refusal:
                members = {"error": refusal.error, "error_description": refusal.why}
                return web.json_response(members, status=refusal.status)
            return answer

        return handle

    async def _discovery(self, request: web.Request) -> web.Response:
        del request
        ways = ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "device_authorization_endpoint": f"{self.issuer}/device",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({k.algorithm for k in self.keys}),
            "token_endpoint_auth_methods_supported": ways,
            "token_endpoint_auth_signing_alg_values_supported": ["RS256", "PS256", "ES256"],
            "grant_types_supported": list(GRANT_TYPES),
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return web.json_response(without_none({**document, **self.lies.discovery}))

    async def _jwks(self, request: web.Request) -> web.Response:
        del request
        return web.json_response(self.key_set)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        target = query.get("redirect_uri", "")
        client = self.clients.known.get(query.get("client_id", ""))
        if client is None or not target or target not in (client.redirect_uris or (target,)):
            return web.Response(status=400, text="unknown client or redirect_uri")
        answer = self._grants.authorized(client, query)
        answer |= {"state": query.get("state"), "iss": self.issuer}
        fields = urlencode(without_none({**answer, **self.lies.redirect}))
        joint = "&" if "?" in target else "?"
        return web.Response(status=302, headers={"Location": f"{target}{joint}{fields}"})

    async def _token(self, request: web.Request) -> web.Response:
        last = self.received["token"][-1]
        client = self.clients.authenticated(last.headers.get("Authorization", ""), last.form)
        answer = self._grants.granted(client, last.form)
        headers = {"Cache-Control": "no-store"}
        return web.json_response(without_none({**answer, **self.lies.token}), headers=headers)

    async def _device(self, request: web.Request) -> web.Response:
        last = self.received["device"][-1]
        client = self.clients.authenticated(last.headers.get("Authorization", ""), last.form)
        answer = self._grants.device(client, last.form, f"{self.issuer}/activate")
        return web.json_response(without_none({**answer, **self.lies.device}))

    async def _activate(self, request: web.Request) -> web.Response:
        return web.Response(text=f"The device {request.query.get('user_code', '')} may go on.")


def _certified(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return a server's TLS, and the file of the authority that certified it."""
    now = datetime.now(UTC)
    authority = credentials.authority("provider", now=now)
    pair = credentials.issue(authority, "provider", use=credentials.Use.SERVER, now=now)
    ca_file, chain = folder / "provider-ca.pem", folder / "provider.pem"
    ca_file.write_bytes(authority.certificate_pem)
    chain.write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    return context, ca_file


@contextlib.contextmanager
def issuing(*clients: Client, path: str = "", tls: Path | None = None) -> Iterator[FakeProvider]:
    """Run a provider with these clients, or CLIENTS; with `tls`, certified below that folder."""
    provider = FakeProvider(clients or CLIENTS, path=path, folder=tls)
    try:
        provider.start()
        yield provider
    finally:
        provider.close()


MALLORY: Final = signing_key("of-mallory")


def signed_by(key: SigningKey, **header: Any) -> Signing:
    """Return how a token is signed by another key than the provider's own."""

    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        del own
        return tokens.signed({**given, **header}, claims, key)

    return sign


def _padded(characters: int) -> Signing:
    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        return tokens.signed(given, {**claims, "padding": "x" * characters}, own)

    return sign


SIGNED_WRONG: Final[Mapping[str, Signing]] = {
    "by another key": tokens.by_another_key,
    "none": tokens.unsigned,
    "17 KiB": _padded(17 * 1024),
}
# By the name of a row: claims that replace those of a good token. Of each claim that the door
# compares with words of its own there is a row; tests/unit/oidc has the others.
Row: TypeAlias = Callable[[], Mapping[str, Any]]
_EACH: Final[Mapping[str, Row]] = {
    "iss other": lambda: {"iss": "https://idp.example"},
    "aud other": lambda: {"aud": "https://other.example.org"},
    "exp past": lambda: {"exp": int(time.time()) - 60},
    "sub like that of another issuer": lambda: {"sub": "https://idp.example|alice"},
}
WRONG_ID: Final[Mapping[str, Row]] = {
    **_EACH,
    "azp other": lambda: {"azp": "somebody"},
    "nonce other": lambda: {"nonce": secrets.token_hex(16)},
    "at_hash other": lambda: {"at_hash": base64.urlsafe_b64encode(bytes(16)).decode()[:22]},
}
WRONG_BEARER: Final[Mapping[str, Row]] = {
    **_EACH,
    "aud of the web client": lambda: {"aud": WEB.id},
    "aud of the client of CLIs": lambda: {"aud": CLI.id, "azp": CLI.id},
    "aud of the client of CLIs and another door": lambda: {"aud": [CLI.id, "https://b.example"]},
}


def good(provider: FakeProvider, **claims: Any) -> dict[str, Any]:
    """Return the claims of a bearer token that is taken."""
    now = int(time.time())
    known = {"iss": provider.issuer, "sub": "machine", "aud": PUBLIC, "groups": ["team-a"]}
    return {**known, "iat": now, "exp": now + 300, "jti": secrets.token_hex(8), **claims}


def bearer(provider: FakeProvider, sign: Signing = tokens.signed, **claims: Any) -> str:
    """Return a bearer token that `sign` made; None leaves a claim out."""
    return sign({}, good(provider, **claims), provider.keys[0])
