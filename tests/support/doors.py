"""The front door as real `klutch-bind` processes on a real control plane, and who asks there.

`klutchctl bind` and browsers among them.
"""

import asyncio
import base64
import html
import json
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import yaml

from bind.door import sessions
from klutchctl.sandbox import processes
from reconciler import api
from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints.objects import build
from reconciler.blueprints.objects import namespace as namespace_of
from reconciler.core import keys, names, refs
from reconciler.core.errors import HostError
from reconciler.core.manifest import Manifest, annotations_of, get_text, name_of
from reconciler.core.refs import Kind, Ref
from tests.support import original_provider, removal
from tests.support.bound_scenes import read, remove
from tests.support.browsers import CALLBACK, PUBLIC, Cli, Client, Reply
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.issuer import CLI, WEB, FakeProvider
from tests.support.offers import CREDENTIALS, Offer, offered
from tests.support.original_provider import Ended
from tests.support.replicas import MANAGER, Replica, Replicas, replicas
from tests.support.web import fetch

MOST_SPACES: Final = 3  # of a subject
TEAM: Final = "team-a"  # may bind what is offered
_COMMAND: Final = (sys.executable, "-m", "bind")
_SETTLED: Final = "/settled?within=4"  # seconds


@dataclass(frozen=True, slots=True)
class Door:
    """One replica, and its port."""

    replica: Replica
    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def audited(self, client: Client) -> list[dict[str, Any]]:
        lines = self.replica.out.read_text().splitlines()
        audited = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in audited if line["from"] == client.address]


@dataclass
class Doors:
    """Replicas of one backend, before one provider and beside `other`, whose tokens count too.

    Members of TEAM may bind what is offered; templates are in `namespace`.
    """

    plane: LiveCluster
    namespace: str
    provider: FakeProvider
    other: FakeProvider
    processes: Replicas
    http: aiohttp.ClientSession
    prefix: str
    started: list[Door] = field(default_factory=list)
    resting: bool = False

    async def start(self, *more: str, issuer: str = "", reachable: bool = False) -> Door:
        """Start a replica, and wait until it serves.

        One that is `reachable` by browsers has its callback where it listens.
        """
        folder, (port,) = self.processes.folder, processes.free_ports(1)
        callback = f"http://127.0.0.1:{port}/callback" if reachable else CALLBACK
        replica = await self.processes.start(
            f"--oidc-issuer-url={issuer or self.provider.issuer}",
            f"--oidc-issuer-client-id={WEB.id}",
            f"--oidc-client-secret-file={folder / 'client-secret'}",
            f"--oidc-callback-url={callback}",
            f"--cli-client-id={CLI.id}",
            f"--access-file={folder / 'access.yaml'}",
            f"--max-spaces-per-subject={MOST_SPACES}",
            f"--namespace-prefix={self.prefix}",
            f"--template-namespace={self.namespace}",
            f"--listen-address=127.0.0.1:{port}",
            "--trusted-proxies=127.0.0.1/32",
            "--authorization=SubjectAccessReview",
            *more,
        )
        door = Door(replica, port)
        self.started.append(door)
        await eventually(lambda: self._serves(door))
        self.resting = False
        return door

    async def start_plain(self, flags: Mapping[str, str]) -> Door:
        """Start a replica with the original's flags alone, and wait until it serves."""
        (port,) = processes.free_ports(1)
        own = {
            "--oidc-issuer-url": self.provider.issuer,
            "--oidc-issuer-client-id": WEB.id,
            "--oidc-callback-url": CALLBACK,
            "--namespace-prefix": self.prefix,
            "--listen-address": f"127.0.0.1:{port}",
            "--trusted-proxies": "127.0.0.1/32",
            **flags,
        }
        replica = await self.processes.start(*(f"{name}={value}" for name, value in own.items()))
        door = Door(replica, port)
        self.started.append(door)
        await eventually(lambda: self._serves(door))
        self.resting = False
        return door

    async def _serves(self, door: Door) -> bool:
        if door.replica.process.returncode is not None:
            raise HostError(door.replica.log.read_text())
        try:
            healthy = (await self.client().get(door.port, "/healthz")).status == 200
        except aiohttp.ClientError:
            return False
        return healthy and (await door.replica.ask("/readyz"))[0] == 200

    def client(self) -> Client:
        """Return a new browser, CLI or machine."""
        return Client(self.http)

    async def bound(self, door: Door, offer: Offer, cli: Cli) -> Reply:
        """Sign in and bind as people do, and return the answer that leads to the CLI."""
        browser, self.resting = self.client(), False
        assert (await browser.signed_in(door.port, cli)).status == 302
        reply = await browser.binds(door.port, cli, wire(offer))
        assert reply.status == 302, (reply.status, reply.body)
        return reply

    async def spaces(self, owner: str) -> list[str]:
        """Return the spaces whose identity begins so."""
        listed = (await self.plane.cluster.list(refs.NAMESPACE)).items
        return [
            name_of(one)
            for one in listed
            if name_of(one).startswith(self.prefix)
            and annotations_of(one).get(keys.IDENTITY, "").startswith(owner)
        ]

    @asynccontextmanager
    async def nothing_written(self) -> AsyncIterator[None]:
        """Prove by the API server's audit log that the block has the backend write nothing."""
        if not self.resting:
            await eventually(self._is_settled)
            self.resting = True
        mark = self.plane.audit.mark()
        yield
        assert not any(one.writes_since(mark) for one in self.processes.started)

    async def _is_settled(self) -> bool:
        """Return whether the replica that leads has nothing left to do; no other writes unasked."""
        for replica in self.processes.started:
            if replica.process.returncode is None and await replica.leads():
                return (await replica.ask(_SETTLED))[0] == 200
        return False

    async def aged(self, text: str, purpose: sessions.Purpose, seconds: int) -> str:
        """Return a sealed text as it would be, were it older."""
        held = await self.opened(text, purpose)
        then = {**held, "at": held["at"] - seconds}
        return (await self.keys()).seal(purpose, then, time.time() - seconds)

    async def opened(self, text: str, purpose: sessions.Purpose) -> dict[str, Any]:
        held = (await self.keys()).open(purpose, text, time.time())
        assert held is not None
        return held

    async def keys(self) -> sessions.Keys:
        ref = Ref(self.plane.name, refs.SECRET, self.namespace, "klutch-bind-door")
        live = await self.plane.cluster.get(ref)
        return sessions.Keys(base64.b64decode(get_text(live, "data", "present")))


def wire(offer: Offer) -> dict[str, str]:
    return {"resource": offer.resource.plural, "group": offer.group}


@asynccontextmanager
async def doors(
    plane: LiveCluster, folder: Path, provider: FakeProvider, other: FakeProvider
) -> AsyncIterator[Doors]:
    """Prepare all that replicas need, and take away what they have made at the end."""
    mark = secrets.token_hex(4)
    namespace, prefix = f"test-door-{mark}", f"door-{mark}-"
    for kind, made in _prepared(namespace):
        await plane.cluster.create(made, kind, manager=MANAGER)
    (folder / "client-secret").write_text(WEB.secret)
    (folder / "access.yaml").write_text(yaml.safe_dump(_access(other)))
    fresh = aiohttp.TCPConnector(force_close=True)  # a POST fails on one that a door has ended
    try:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), connector=fresh) as http,
            replicas(plane, namespace, folder, command=_COMMAND) as started,
        ):
            yield Doors(plane, namespace, provider, other, started, http, prefix)
    finally:
        for kind in (refs.NAMESPACE, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING):
            for one in (await plane.cluster.list(kind)).items:
                if prefix in name_of(one) or name_of(one) == namespace:
                    await removal.remove_manifest(plane.cluster, kind, one)


def _prepared(namespace: str) -> list[tuple[Kind, Manifest]]:
    kind = API_SERVICE_EXPORT_TEMPLATE
    rule = {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["bind"]}
    to = {"apiGroup": refs.ROLE.group, "kind": refs.ROLE.kind, "name": TEAM}
    group = {"apiGroup": refs.ROLE.group, "kind": "Group", "name": f"oidc:{TEAM}"}
    return [
        (refs.NAMESPACE, build(refs.NAMESPACE, namespace)),
        (refs.ROLE, build(refs.ROLE, TEAM, namespace=namespace, rules=[rule])),
        (
            refs.ROLE_BINDING,
            build(refs.ROLE_BINDING, TEAM, namespace=namespace, roleRef=to, subjects=[group]),
        ),
    ]


def _access(other: FakeProvider) -> Mapping[str, Any]:
    issuer = {
        "alias": "other",
        "url": other.issuer,
        "audiences": [PUBLIC],
        "username": {"claim": "sub", "prefix": "other:"},
        "groups": {"claim": "groups", "prefix": "oidc:"},
    }
    return {"apiVersion": "bind.klutchctl.dev/v1alpha1", "kind": "Access", "issuers": [issuer]}


D = TypeVar("D", bound="BindDoor")

_BOUND_SOON = "/settled?within=4"  # seconds

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
        return (await self.replica.ask(_BOUND_SOON))[0] == 200

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
