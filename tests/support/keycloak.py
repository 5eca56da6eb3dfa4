"""A real Keycloak, as `klutchctl sandbox up --oidc` runs it, and a person at its pages.

It takes half a minute to start, and 400 MB: see fixture `keycloak`.
"""

import html
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from yarl import URL

from klutchctl import files
from klutchctl.sandbox import lifecycle, processes, startup
from klutchctl.sandbox.keycloak import distribution, realm, server, starting
from klutchctl.sandbox.keycloak.realm import Purpose
from klutchctl.sandbox.keycloak.server import KEY_FILE, KeycloakKit
from klutchctl.sandbox.state import KeycloakPorts, Layout, layout_of
from reconciler.core.errors import HostError
from reconciler.core.secret import Secret
from reconciler.oidc.grants import Client
from tests.support.quiet import Quiet

_MOST_PAGES: Final = 20
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
        return realm.issuer(self.ports.http)

    @property
    def door(self) -> str:
        return server.door_url(self.ports)

    @property
    def web(self) -> Client:
        return Client(realm.DOOR_CLIENT, secret=self.secret(Purpose.DOOR))

    @property
    def cli(self) -> Client:
        return Client(realm.CLI_CLIENT)

    @property
    def machine(self) -> Client:
        return Client(realm.MACHINE, secret=self.secret(Purpose.MACHINE))

    @property
    def keyed_machine(self) -> Client:
        key = (self.layout.keycloak / KEY_FILE).read_text()
        return Client(realm.KEYED_MACHINE, key=Secret(key))

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
        starting.ensure_files(layout, chosen, kit.distribution)
        wanted = server.server(layout, chosen, kit)
        startup.ensure_running(layout, [wanted], {}, progress=Quiet())
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
    """Open a page as a browser does, sign in, agree to all, and return where that ends.

    That is the first address that is not Keycloak's, which is not opened, or a last page.
    """
    origin = URL(keycloak.issuer).origin()
    # As browsers do: cookies of an IP address, and secure ones of loopback without TLS.
    jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=origin)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        page = await browser.get(url)
        for _ in range(_MOST_PAGES):
            if 300 <= page.status < 400:
                target = str(page.url.join(URL(page.headers["Location"])))
                if URL(target).origin() != origin:
                    return target
                page = await browser.get(target, allow_redirects=False)
                continue
            text = await page.text()
            form = _FORM.search(text)
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


def _fields(form: str) -> dict[str, str]:
    found = (dict(_ATTRIBUTE.findall(field)) for field in _HIDDEN.findall(form))
    return {one["name"]: html.unescape(one.get("value", "")) for one in found if "name" in one}
