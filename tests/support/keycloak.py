"""A real Keycloak, as `klutchctl sandbox up --oidc` runs it, and a person at its pages."""

import asyncio
import html
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from yarl import URL

from klutchctl import files
from klutchctl.sandbox import lifecycle, processes
from klutchctl.sandbox.addons import keycloak as addon
from klutchctl.sandbox.addons import keycloak_distribution as distribution
from klutchctl.sandbox.addons.addon import Run
from klutchctl.sandbox.addons.keycloak import KEY_FILE, KeycloakKit, Purpose
from klutchctl.sandbox.state import KeycloakPorts, Layout, State, layout_of
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from reconciler.core.secret import Secret
from reconciler.oidc.grants import Client
from tests.support.quiet import Quiet

_MOST_PAGES: Final = 20
_FEDERATED: Final = "machine-in-cluster"
_FORM: Final = re.compile(r'<form[^>]*\baction="([^"]+)"[^>]*>(.*?)</form>', re.DOTALL)
_HIDDEN: Final = re.compile(r'<input[^>]*type="hidden"[^>]*>')
_ATTRIBUTE: Final = re.compile(r'\b(name|value)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Keycloak:
    """A Keycloak that runs. `door` is the audience of its machines' tokens."""

    layout: Layout
    ports: KeycloakPorts

    @property
    def issuer(self) -> str:
        return addon.issuer(self.ports.http)

    @property
    def door(self) -> str:
        return addon.door_url(self.ports)

    @property
    def web(self) -> Client:
        return Client(addon.DOOR_CLIENT, secret=self.secret(Purpose.DOOR))

    @property
    def cli(self) -> Client:
        return Client(addon.CLI_CLIENT)

    @property
    def machine(self) -> Client:
        return Client(addon.MACHINE, secret=self.secret(Purpose.MACHINE))

    @property
    def keyed_machine(self) -> Client:
        key = (self.layout.keycloak / KEY_FILE).read_text()
        return Client(addon.KEYED_MACHINE, key=Secret(key))

    def subject(self, name: str) -> str:
        return addon.subject(str(self.layout.root), name)

    def secret(self, purpose: Purpose) -> Secret:
        """Return a secret of the realm, such as the password of a person."""
        return Secret((self.layout.keycloak / purpose).read_text())


@contextmanager
def served(state_home: Path) -> Iterator[Keycloak]:
    """Run a Keycloak for the length of the block; it leaves nothing behind."""
    layout = layout_of("keycloak", state_home=state_home)
    kit = _found()
    for folder in (layout.root.parent, layout.root, layout.logs):
        files.private_folder(folder)
    within = processes.port_range(os.environ.get(processes.PORTS_VARIABLE, ""))
    chosen = KeycloakPorts(*processes.free_ports(3, within=within))
    try:
        addon.start(Run(layout, State(1, 2, (), keycloak=chosen), Quiet()), kit)
        yield Keycloak(layout, chosen)
    finally:
        lifecycle.down(layout, delete=True, progress=Quiet())


def _found() -> KeycloakKit:
    """Return what to run. Without it a test is skipped, but never in CI."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        java = distribution.find_java(os.environ)
        folder = distribution.provide(cache_home, java, environ=os.environ, progress=Quiet())
    except HostError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return KeycloakKit(java, folder)


async def signs_in(keycloak: Keycloak, url: str, name: str, password: Purpose) -> str:
    """Do as `signs_in_with`, with a new browser."""
    async with browsing(keycloak) as browser:
        return await signs_in_with(browser, keycloak, url, name, password)


def browsing(keycloak: Keycloak) -> aiohttp.ClientSession:
    """Return a browser with its cookies: of IP addresses, secure ones of loopback without TLS."""
    jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=URL(keycloak.issuer).origin())
    limit = 1 << 17  # of what comes back to a CLI
    return aiohttp.ClientSession(cookie_jar=jar, max_line_size=limit, max_field_size=limit)


async def signs_in_with(
    browser: aiohttp.ClientSession, keycloak: Keycloak, url: str, name: str, password: Purpose
) -> str:
    """Open a page as a browser does, sign in, agree to all, and return where that ends.

    That is the first address that is not Keycloak's, which is not opened, or a last page.
    """
    origin = URL(keycloak.issuer).origin()
    page = await browser.get(url)
    for _ in range(_MOST_PAGES):
        if 300 <= page.status < 400:
            target = str(page.url.join(URL(page.headers["Location"])))
            if URL(target).origin() != origin:
                return target
            page = await browser.get(target, allow_redirects=False)
            continue
        form = _FORM.search(await page.text())
        if form is None:
            return str(page.url)
        fields = _fields(form[2])
        if 'name="password"' in form[2]:
            fields |= {"username": name, "password": keycloak.secret(password).reveal()}
        if 'name="accept"' in form[2]:
            fields["accept"] = "Yes"
        action = str(page.url.join(URL(html.unescape(form[1]), encoded=True)))
        page = await browser.post(action, data=fields, allow_redirects=False)
    raise AssertionError(f"after {_MOST_PAGES} pages there is another one: {page.url}")


async def federate(keycloak: Keycloak, *, issuer: str, key: str, subject: str) -> str:
    """Let a machine that `issuer` calls `subject` sign in, and return the id of its client.

    `key` is the public key of the issuer, as PEM, so that Keycloak need not reach it. This is done
    as the realm's administrator does it.
    """
    provider = {
        "alias": _FEDERATED,
        "providerId": "oidc",
        "enabled": True,
        "hideOnLogin": True,
        "config": {
            "issuer": issuer,
            "clientId": "not-used",
            "authorizationUrl": f"{issuer}/authorize",
            "tokenUrl": f"{issuer}/token",
            "validateSignature": "true",
            "useJwksUrl": "false",
            "publicKeySignatureVerifier": key,
            "supportsClientAssertions": "true",
            "federatedClientAssertionMaxExpiration": "3600",  # the API server's least is 600
        },
    }
    audience = {"included.client.audience": keycloak.door, "access.token.claim": "true"}
    mapper = {
        "name": "door",
        "protocol": "openid-connect",
        "protocolMapper": "oidc-audience-mapper",
        "config": audience,
    }
    client = {
        "clientId": _FEDERATED,
        "serviceAccountsEnabled": True,
        "standardFlowEnabled": False,
        "clientAuthenticatorType": "federated-jwt",
        "attributes": {"jwt.credential.issuer": _FEDERATED, "jwt.credential.sub": subject},
        "protocolMappers": [mapper],
    }
    async with aiohttp.ClientSession(raise_for_status=True) as http:
        token = await _administration(http, keycloak)
        base = keycloak.issuer.replace("/realms/", "/admin/realms/")
        headers = {"Authorization": f"Bearer {token}"}
        for path, body in (("identity-provider/instances", provider), ("clients", client)):
            await http.post(f"{base}/{path}", json=body, headers=headers)
    return _FEDERATED


async def _administration(http: aiohttp.ClientSession, keycloak: Keycloak) -> str:
    form = {
        "grant_type": "password",
        "client_id": "admin-cli",
        "username": addon.ADMINISTRATOR,
        "password": keycloak.secret(Purpose.ADMIN).reveal(),
    }
    url = f"{keycloak.issuer}/protocol/openid-connect/token"
    async with http.post(url, data=form) as answer:
        return str((await answer.json())["access_token"])


def _fields(form: str) -> dict[str, str]:
    found = (dict(_ATTRIBUTE.findall(field)) for field in _HIDDEN.findall(form))
    return {one["name"]: html.unescape(one.get("value", "")) for one in found if "name" in one}


async def visit(keycloak: Keycloak, url: str) -> None:
    """Open what a CLI prints, sign in, and end where the CLI waits."""
    door = URL(keycloak.door)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(url, allow_redirects=False) as begun:
            assert begun.status == 302, await begun.text()
            asked = begun.headers["Location"]
        back = await signs_in(keycloak, asked, "alice", Purpose.ALICE)
        async with browser.get(URL(back, encoded=True)) as answer:
            place, page = answer.url, await answer.text()
        token = re.search(r'name="csrf" value="([^"]*)"', page)
        assert place.path == "/consent", page
        assert token is not None, page
        claims = [("claim", one) for one in re.findall(r'name="claim"[^>]*value="(\d+)"', page)]
        form = [("csrf", html.unescape(token[1])), *claims]
        headers = {"Origin": str(door.origin())}
        async with browser.post(place, data=form, headers=headers) as end:
            assert end.status == 200, await end.text()


def main() -> None:
    name, url = sys.argv[1:]
    layout = layout_of(name, state_home=Settings(os.environ).state_home)
    state = lifecycle.load(layout)
    assert state is not None
    assert state.keycloak is not None
    asyncio.run(visit(Keycloak(layout, state.keycloak), url))


if __name__ == "__main__":
    main()
