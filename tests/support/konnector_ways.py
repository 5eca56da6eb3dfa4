"""Ways of a konnector's accounts to their clusters, and the kubeconfigs that hold them."""

import base64
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klutchctl.sandbox.state import Layout
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import build
from reconciler.controller.program import Term
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, SECRET, SERVICE_ACCOUNT, Ref
from reconciler.core.secret import Secret
from reconciler.kube.connection import Connection, NoCredential
from tests.support import policed, removal
from tests.support.accounts import may_read, token_of, with_token
from tests.support.bound_scenes import BIND, Scene, b64, says, until
from tests.support.clusters import LiveCluster
from tests.support.cues import Cue
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy, serving_tls
from tests.support.http_faults import Request
from tests.support.konnector import konnector

_MANAGER: Final = "tests"


def fronting(live: LiveCluster) -> FaultProxy:
    """Return a proxy with the API server's own certificate, since a Secret may lead to TLS only.

    It passes on the credentials of its clients.
    """
    pki = Layout(live.kubeconfig.parent).pki(live.context)
    tls = serving_tls(pki / "server.crt", pki / "server.key")
    return FaultProxy(replace(live.connection, credential=NoCredential()), tls=tls)


def content(way: Connection, token: str, namespace: str = "") -> str:
    return spaces.kubeconfig(Address(way.server, way.ca or ""), Secret(token), namespace=namespace)


async def put(live: LiveCluster, namespace: str, name: str, text: str) -> None:
    """Write a kubeconfig into a Secret that is there."""
    ref = Ref(live.name, SECRET, namespace, name)
    body: Manifest = {"data": {"kubeconfig": b64(text)}}
    await live.cluster.merge_patch(ref, body, manager=_MANAGER)


@dataclass(frozen=True, slots=True)
class Kubeconfigs:
    """The two Secrets with the kubeconfig of a scene: the provider's, and the app cluster's."""

    scene: Scene

    async def renewed(self) -> str:
        """Return a kubeconfig like the first one, with a new token."""
        return self.by(self.scene.plane.connection, await self.scene.token())

    def by(self, way: Connection, token: str) -> str:
        return content(way, token, self.scene.space)

    async def provide(self, text: str) -> None:
        await put(self.scene.plane, self.scene.space, "kubeconfig", text)

    async def place(self, text: str) -> None:
        await put(self.scene.app, BIND, self.scene.secret, text)

    async def mirrored(self, text: str) -> bool:
        return text_of(await self.scene.in_app(SECRET, self.scene.secret)) == text


def text_of(live: Any) -> str:
    return base64.b64decode(get_text(live, "data", "kubeconfig")).decode()


@asynccontextmanager
async def account(live: LiveCluster, rules: Iterable[Manifest]) -> AsyncIterator[str]:
    """Make an account with these rights everywhere, wait until they hold, and yield its token.

    It is held to what a konnector is held to.
    """
    cluster, name = live.cluster, f"konnector-{uuid.uuid4().hex[:8]}"
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": name, "namespace": "default"}
    to = {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": name}
    made = [
        (SERVICE_ACCOUNT, build(SERVICE_ACCOUNT, name, namespace="default")),
        (CLUSTER_ROLE, build(CLUSTER_ROLE, name, rules=list(rules))),
        (CLUSTER_ROLE_BINDING, build(CLUSTER_ROLE_BINDING, name, subjects=[subject], roleRef=to)),
    ]
    for kind, one in made:
        await cluster.create(one, kind, manager=_MANAGER)
    try:
        token = await token_of(live.cluster, "default", name)
        await eventually(lambda: may_read(with_token(live.connection, token)))
        policy = policed.konnector_policy("default", name).manifests()
        user = policed.user_of("default", name)
        async with policed.enforced(live.cluster, live.connection, policy, user):
            yield token
    finally:
        for kind, one in made:
            await removal.remove_manifest(cluster, kind, one)


@dataclass(frozen=True, slots=True)
class Lists:
    """The paths of what was listed through a proxy, and of what was watched."""

    listed: list[str] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)

    def notes(self, call: Request) -> bool:
        """Note a request, which is none to fail."""
        asked = call.query.split("&")
        if "watch=1" in asked:
            self.watched.append(call.path)
        elif any(one.startswith("limit=") for one in asked):
            self.listed.append(call.path)
        return False


@asynccontextmanager
async def a_way(live: LiveCluster) -> AsyncIterator[tuple[FaultProxy, Lists]]:
    """Open another way to an API server, for whoever has a credential of its own."""
    async with fronting(live) as proxy:
        lists = Lists()
        proxy.add(Cue(lists.notes))
        yield proxy, lists


@dataclass(frozen=True)
class Listened:
    """A konnector at work, whose ways to both API servers are listened to."""

    made: Term
    to_plane: FaultProxy
    to_app: FaultProxy
    of_plane: Lists
    of_app: Lists


@asynccontextmanager
async def listened(scene: Scene, *claims: Manifest) -> AsyncIterator[Listened]:
    """Bind, with a backend and a konnector whose ways are listened to."""
    of_plane, of_app = Lists(), Lists()
    async with (
        fronting(scene.plane) as to_plane,
        FaultProxy(scene.app.connection) as to_app,
        scene.backend(),
        konnector(to_app.connection) as made,
    ):
        to_plane.add(Cue(of_plane.notes))
        to_app.add(Cue(of_app.notes))
        led = replace(scene.plane, connection=to_plane.connection)
        await replace(scene, plane=led).make_space()
        await scene.request()
        await scene.bind(*claims)
        await until(lambda: says(scene.binding(), "Ready"))
        yield Listened(made, to_plane, to_app, of_plane, of_app)
