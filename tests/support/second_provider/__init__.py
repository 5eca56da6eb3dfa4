"""An identity provider that is not ours: `oidc-provider` of npm, on loopback, in Node.js.

It made the captures of default mode. What `tests.support.issuer` grants is what we understand of
the standards; what this one grants is what others do.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from yarl import URL

from klutchctl.sandbox.binaries import Cache, ensured
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from tests.support.issuer_clients import Client
from tests.support.quiet import Quiet

_HERE: Final = Path(__file__).parent
_FILES: Final = ("package.json", "package-lock.json", "server.mjs")
_GRANTS: Final = {
    "code": "authorization_code",
    "device": "urn:ietf:params:oauth:grant-type:device_code",
    "machine": "client_credentials",
}
AUDIENCE: Final = "https://bind.example.org"


class SecondProvider:
    """One that runs. Access tokens that machines get for themselves are for `audience`."""

    def __init__(self, process: subprocess.Popen[str], clients: Sequence[dict[str, Any]]) -> None:
        self._process = process
        self.audience = AUDIENCE
        self.issuer: str = self._asked({"clients": clients, "audience": AUDIENCE})["issuer"]

    def sign_in_as(self, subject: str, **claims: Any) -> None:
        """Have this user sign in from now on; browsers that are signed in remain so."""
        self._asked({"sub": subject, **claims})

    def _asked(self, line: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(line), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the second provider has ended: {self._process.wait(10)}"
        answered: dict[str, Any] = json.loads(answer)
        return answered


async def way_back(browser: aiohttp.ClientSession, url: str, callback: str) -> URL:
    """Follow redirects from `url` to the callback, and return that with its query."""
    while not url.startswith(callback):
        async with browser.get(url, allow_redirects=False) as answer:
            assert answer.status in {302, 303}, await answer.text()
            url = str(answer.url.join(URL(answer.headers["Location"])))
    return URL(url)


@contextmanager
def second_provider(*clients: Client) -> Iterator[SecondProvider]:
    """Run the provider with these clients, for as long as the block lasts."""
    folder = _installed()
    process = subprocess.Popen(
        ("node", "server.mjs"),
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            yield SecondProvider(process, [_metadata(client) for client in clients])
        finally:
            process.kill()


def _metadata(client: Client) -> dict[str, Any]:
    """Return a client as the library wants it. One without redirect URI may use the others."""
    kinds = {
        "code": bool(client.redirect_uris),
        "device": client.is_public,
        "machine": not client.is_public and not client.redirect_uris,
    }
    way = "private_key_jwt" if client.key else "client_secret_basic" if client.secret else "none"
    known: dict[str, Any] = {
        "client_id": client.id,
        "redirect_uris": client.redirect_uris,
        "response_types": ["code"] if kinds["code"] else [],
        "grant_types": [_GRANTS[kind] for kind, wanted in kinds.items() if wanted],
        "token_endpoint_auth_method": way,
    }
    if client.secret:
        known["client_secret"] = client.secret
    if client.key is not None:
        known["jwks"] = {"keys": [client.key.jwk()]}
    return known


def _installed() -> Path:
    """Return the folder in our cache that holds server and libraries, made now if need be.

    Where that is not possible a test is skipped, but never in CI.
    """
    home = Settings(os.environ).cache_home
    cache = Cache(home / "klutchctl" / "provider", "the second provider")
    contents = b"".join((_HERE / name).read_bytes() for name in _FILES)
    name = f"oidc-provider-{hashlib.sha256(contents).hexdigest()[:8]}"
    try:
        if missing := [one for one in ("node", "npm") if shutil.which(one) is None]:
            raise HostError(f"{' and '.join(missing)} not on PATH")
        return ensured(cache, name, _install, Quiet())
    except HostError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def _install(into: Path) -> None:
    for file in _FILES:
        shutil.copy(_HERE / file, into)
    command = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-bin-links")
    ended = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise HostError(f"npm: {ended.stderr[-400:]}")
