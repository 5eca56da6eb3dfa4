"""Browsers, CLIs and machines before a front door, as a test wants them: also those that lie."""

import base64
import hashlib
import itertools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

HOST: Final = "bind.example.org"
PUBLIC: Final = f"https://{HOST}"
CALLBACK: Final = f"{PUBLIC}/callback"
_ADDRESSES: Final = itertools.count(1)  # each client has one of its own, and audit lines say it


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    cookies: Mapping[str, str]  # that it set; "" for one that it took back

    @property
    def location(self) -> str:
        return self.headers.get("Location", "")

    def lines(self, name: str) -> list[str]:
        return list(self.headers.getall(name, []))

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.location).query))

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Cli:
    """A CLI that waits at `port` for the answer to session `s`; ours has a `verifier`."""

    s: str = field(default_factory=lambda: secrets.token_hex(16))
    c: str = field(default_factory=lambda: f"cluster-{secrets.token_hex(8)}")
    port: int = 40123
    verifier: str = ""

    @classmethod
    def ours(cls, **more: Any) -> "Cli":
        return cls(verifier=secrets.token_urlsafe(32), **more)

    @property
    def target(self) -> str:
        return f"http://localhost:{self.port}/callback"

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    @property
    def query(self) -> dict[str, str]:
        """What the URL says that it prints."""
        proof = {"code_challenge": self.challenge, "code_challenge_method": "S256"}
        known = {"s": self.s, "c": self.c, "p": str(self.port)}
        return {**known, **(proof if self.verifier else {})}


class Client:
    """Sends requests to doors by their ports, each from an address of its own.

    The address is in X-Forwarded-For, as a proxy would write it that the doors trust.
    """

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        number = next(_ADDRESSES)
        self.address = f"198.18.{number // 250}.{number % 250 + 1}"
        self.cookies: dict[str, str] = {}

    async def get(
        self, port: int, path: str, query: Mapping[str, str] = {}, **headers: str
    ) -> Reply:
        return await self.send(
            "GET", port, f"{path}?{urlencode(query)}" if query else path, headers
        )

    async def post(
        self, port: int, path: str, *, form: Mapping[str, str] | None = None, **more: Any
    ) -> Reply:
        """Send a form, or else `document`, with more headers."""
        body = json.dumps(more.pop("document", {})) if form is None else urlencode(form)
        kind = "json" if form is None else "x-www-form-urlencoded"
        headers = {"Content-Type": f"application/{kind}", **more}
        return await self.send("POST", port, path, headers, body.encode())

    async def send(
        self, method: str, port: int, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Reply:
        """Send a request to the letter; `_` in the name of a header is `-`."""
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        known = {"Host": HOST, "X-Forwarded-For": self.address}
        if self.cookies:
            known["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        url = URL(f"http://127.0.0.1:{port}{target}", encoded=True)
        async with self.http.request(
            method, url, headers={**known, **said}, data=body or None, allow_redirects=False
        ) as answer:
            reply = Reply(answer.status, answer.headers, await answer.read(), _cookies(answer))
        self.cookies = {k: v for k, v in {**self.cookies, **reply.cookies}.items() if v}
        return reply

    # The steps of a sign-in.

    async def begun(self, port: int, cli: Cli, **more: str) -> str:
        """Open the URL that a CLI prints, and return where the provider is asked."""
        reply = await self.get(port, "/authorize", {**cli.query, **more})
        assert reply.status == 302, (reply.status, reply.body)
        return reply.location

    async def agreed(self, url: str) -> dict[str, str]:
        """Sign in at the provider, and return what it gives for the callback."""
        async with self.http.get(URL(url, encoded=True), allow_redirects=False) as answer:
            assert answer.status == 302, await answer.text()
            location = answer.headers["Location"]
        assert location.startswith(f"{CALLBACK}?")
        return dict(parse_qsl(urlsplit(location).query))

    async def signed_in(self, port: int, cli: Cli, **more: str) -> Reply:
        """Do all of it, and return the door's answer to the callback."""
        back = await self.agreed(await self.begun(port, cli, **more))
        return await self.get(port, "/callback", back)

    async def binds(
        self, port: int, cli: Cli, resource: Mapping[str, str], **headers: str
    ) -> Reply:
        return await self.get(port, "/bind", {"s": cli.s, **resource}, **headers)


def _cookies(answer: aiohttp.ClientResponse) -> dict[str, str]:
    held: dict[str, str] = {}
    for line in answer.headers.getall("Set-Cookie", []):
        for name, morsel in SimpleCookie(line).items():
            held[name] = "" if morsel["max-age"] == "0" else morsel.value
    return held
