"""`klutchctl bind` at a front door of `klutch-bind`, which runs as it does in a cluster."""

import asyncio
import html
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from reconciler import api
from reconciler.blueprints.objects import namespace as namespace_of
from reconciler.core import keys, names, refs
from reconciler.core.manifest import Manifest, annotations_of, name_of
from tests.support import original_provider, removal
from tests.support.bound_scenes import read, remove
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.offers import CREDENTIALS, Offer, offered
from tests.support.original_provider import Ended
from tests.support.replicas import Replica, replicas
from tests.support.watching import fetch

D = TypeVar("D", bound="BindDoor")

_SETTLED = "/settled?within=4"  # seconds

BIND = names.KLUTCH_NAMESPACE
CLAIMS: list[Manifest] = [
    CREDENTIALS,
    {**CREDENTIALS, "resource": "configmaps", "required": False, "selector": {"owner": "Consumer"}},
]


@dataclass
class BindDoor:
    """A door with one offer, and the app cluster that is to be bound."""

    url: str
    replica: Replica
    app: LiveCluster
    plane: LiveCluster
    offer: Offer
    home: Path

    async def run(self, *arguments: str, program: str = "klutchctl", **more: Any) -> Ended:
        command = ["bind"] if program == "klutchctl" else []
        where = ["--kubeconfig", str(self.app.kubeconfig), "--context", self.app.context]
        environ = {**os.environ, "HOME": str(self.home), **more.pop("environ", {})}
        for name in ("DISPLAY", "BROWSER", "WAYLAND_DISPLAY"):
            environ.pop(name, None)
        usual = {"environ": environ, "visit": self.consented, **more}
        return await original_provider.run(
            program, *command, self.url, *arguments, *where, "--skip-konnector", **usual
        )

    async def consented(self, url: str, *, chosen: tuple[str, ...] = ("0",)) -> list[int]:
        """Sign in, choose the offer and accept claims, as a person does on the pages."""
        async with self.browser() as browser:
            page = await self.signed_in(browser, url)
            link = re.search(r'href="(/consent\?[^"]*)"', page)
            assert link is not None, page
            place = html.unescape(link[1])
            async with browser.get(f"{self.url}{place}") as answer:
                page = await answer.text()
            token = re.search(r'name="csrf" value="([^"]*)"', page)
            assert token is not None, page
            form = [("csrf", html.unescape(token[1])), *(("claim", one) for one in chosen)]
            headers = {"Origin": self.url}
            target = f"{self.url}{place}"
            async with browser.post(target, data=form, headers=headers) as answer:
                return [*(one.status for one in answer.history), answer.status]

    def browser(self) -> aiohttp.ClientSession:
        """Return a browser of a person."""
        return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def signed_in(self, browser: aiohttp.ClientSession, url: str) -> str:
        """Sign in, and return the page of the door to which that leads."""
        async with browser.get(url) as answer:
            return await answer.text()

    async def binding(self) -> Any:
        return await read(self.app, api.API_SERVICE_BINDING, BIND, self.offer.name)

    async def states(self) -> list[str]:
        claims = (await self.binding())["spec"]["permissionClaims"]
        return [claim["state"] for claim in claims]

    async def spaces(self) -> list[Any]:
        listed = (await self.plane.cluster.list(refs.NAMESPACE)).items
        return [one for one in listed if keys.IDENTITY in annotations_of(one)
                and name_of(one).startswith(self.prefix)]  # fmt: skip

    @property
    def prefix(self) -> str:
        return f"bind-{self.offer.group.partition('.')[0][:8]}-"

    @asynccontextmanager
    async def nothing_written(self) -> AsyncIterator[None]:
        """Prove by the audit logs that nobody writes anything in either cluster in the block."""
        await eventually(self._is_settled)
        marks = [(live.audit, live.audit.mark()) for live in (self.app, self.plane)]
        yield
        written = [one for audit, mark in marks for one in audit.writes_since(mark)]
        assert [one for one in written if one.resource != "leases"] == []

    async def _is_settled(self) -> bool:
        return (await self.replica.ask(_SETTLED))[0] == 200

    async def unbound(self) -> None:
        """Take away what was made in the app cluster."""
        await remove(self.app, api.API_SERVICE_BINDING, BIND, self.offer.name)
        for one in (await self.app.cluster.list(refs.SECRET, namespace=BIND)).items:
            if name_of(one).startswith("kubeconfig-"):
                await remove(self.app, refs.SECRET, BIND, name_of(one))


@asynccontextmanager
async def opened(
    made: Callable[..., D],
    plane: LiveCluster,
    app: LiveCluster,
    *,
    url: str,
    folder: Path,
    flags: Sequence[str],
) -> AsyncIterator[D]:
    """Open a door with these flags, as `made` of what a BindDoor has; all it wrote goes then."""
    namespace = f"test-bind-{secrets.token_hex(4)}"
    await plane.cluster.create(namespace_of(namespace), refs.NAMESPACE, manager="tests")
    command = (sys.executable, "-m", "bind")
    async with (
        offered(plane.cluster, app.cluster, namespace=namespace, claims=CLAIMS) as offer,
        replicas(plane, namespace, folder, command=command) as started,
    ):
        door = made(url, None, app, plane, offer, folder)
        door.replica = await started.start(
            f"--namespace-prefix={door.prefix}", f"--template-namespace={namespace}", *flags
        )
        await eventually(lambda: _serves(door))
        yield door
        await door.unbound()
        for space in await door.spaces():
            await removal.remove_manifest(plane.cluster, refs.NAMESPACE, space)
    await remove(plane, refs.NAMESPACE, "", namespace)


async def _serves(door: BindDoor) -> bool:
    assert door.replica.process.returncode is None, door.replica.log.read_text()
    try:
        status, _ = await asyncio.to_thread(fetch, f"{door.url}/healthz")
    except OSError:
        return False
    return status == 200 and (await door.replica.ask("/readyz"))[0] == 200
