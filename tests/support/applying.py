"""A fleet of one app cluster and one service, applied with the real program and its peers.

And what it has come to in both clusters, as a text that two runs of one story can share.
"""

import base64
import binascii
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from reconciler import api
from reconciler.controller.program import Term
from reconciler.core import field_set, keys, names, refs
from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest, get_text, is_deleting, name_of, uid_of
from reconciler.core.refs import CRD, NAMESPACE, Kind, Ref
from reconciler.fleet.values import Mode
from tests.support import programs
from tests.support.backend import USUAL, backend
from tests.support.clusters import LiveCluster, Write
from tests.support.fleet_texts import cluster, control_plane, document, one_file
from tests.support.konnector import beside_control_plane, konnector
from tests.support.offers import Offer
from tests.support.settled import settled

KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))

CLAIMS = ", claims: [{resource: secrets, version: v1, owner: Provider, state: Accepted}]"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the program came to."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> Any:
        """The JSON report, or plan."""
        return json.loads(self.stdout)

    @property
    def statuses(self) -> list[tuple[str, str, str]]:
        """(status, action, kind) of each line."""
        return [(o["status"], o["action"], o["kind"]) for o in self.report["outcomes"]]


@dataclass
class Fleet:
    """The files of a fleet, as a test changes them."""

    folder: Path
    name: str
    mode: Mode
    group: str
    prune: str = "maxDeletes: 100, maxDeletePercent: 100, allowEmpty: true"
    policy: str = "Release"
    binding: str = "orders-db"
    claims: str = CLAIMS
    bound: bool = True
    listed: bool = True
    clusters: str = "names: [shop]"
    konnector: str = ""
    identity: str = ""  # of the Cluster, where the files name it
    plane: str = ""  # goes on in the spec of the ControlPlane
    extra: str = ""

    def write(self) -> None:
        mode = f", mode: {self.mode.value}, namespace: {self.name}{self.plane}"
        documents = [
            document("Fleet", self.name, f"{{prune: {{{self.prune}}}}}"),
            control_plane(at="control-plane", more=mode),
        ]
        if self.listed:
            identity = self.identity and f", identity: {self.identity}"
            more = f", konnector: {{{self.konnector}}}{identity}"
            documents.append(cluster(at="app-1", more=more))
        if self.bound and self.listed:
            what = f"resources: [{{group: {self.group}, resource: databases}}]"
            where = f"clusters: {{{self.clusters}}}, deletionPolicy: {self.policy}"
            documents.append(document("Binding", self.binding, f"{{{what}, {where}{self.claims}}}"))
        (self.folder / "fleet.yaml").write_text(one_file(*documents) + self.extra)


@dataclass
class Scene:
    """A fleet, the two clusters that it names, and the service that it binds."""

    fleet: Fleet
    plane: LiveCluster
    app: LiveCluster
    offer: Offer
    app_namespace: str
    kubeconfig: Path
    user: str = ""  # who klutchctl is there, for what it has written
    options: tuple[str, ...] = field(default=("--wait-timeout", "60"))

    @property
    def space(self) -> str:
        if self.fleet.mode is Mode.DIRECT:
            return names.direct_space(self.fleet.name, "shop")
        return names.app_cluster_binding_space(self.fleet.name, "shop")

    async def klutchctl(self, *arguments: str) -> Run:
        self.fleet.write()
        done = await programs.klutchctl_beside("--kubeconfig", str(self.kubeconfig), *arguments)
        return Run(done.returncode, done.stdout, done.stderr)

    async def apply(self, *arguments: str, code: int | None = 0) -> Run:
        """Plan and apply; `code` is the exit code that is expected, None for any."""
        run = await self.klutchctl(
            "apply",
            str(self.fleet.folder),
            "--auto-approve",
            "-o",
            "json",
            *self.options,
            *arguments,
        )
        assert code is None or run.code == code, run.stdout + run.stderr
        return run

    async def lines(self) -> list[tuple[str, str]]:
        """(action, kind) of all that a plan would do."""
        run = await self.klutchctl("plan", str(self.fleet.folder), "-o", "json")
        return [
            (one["action"], one["ref"]["kind"])
            for one in run.report["changes"]
            if one["action"] != "noop"
        ]

    @asynccontextmanager
    async def peers(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Let backend and konnector work; yield what waits until they are at rest."""
        settings = replace(USUAL, consumer_scope=self.offer.scope)
        async with backend(self.plane.connection, settings) as made, self.konnector() as running:
            yield lambda: settled(made, *running)

    @asynccontextmanager
    async def konnector(self) -> AsyncIterator[list[Term]]:
        """Let a konnector work where the mode has it; it is listed once it runs."""
        if self.fleet.mode is Mode.DIRECT:
            async with konnector(self.app.connection) as made:
                yield [made]
        else:
            way = beside_control_plane(self.plane.connection, self.space, "shop-kubeconfig")
            async with way as running:
                yield running

    @property
    def home_of_units(self) -> Ref:
        """What remembers the units that are being let go."""
        return self.home if self.fleet.mode is Mode.DIRECT else self.whole

    @property
    def service_namespace(self) -> str:
        return names.service_namespace(self.space, self.app_namespace)

    @property
    def request(self) -> Ref:
        return self._in_space(api.API_SERVICE_EXPORT_REQUEST)

    @property
    def export(self) -> Ref:
        return self._in_space(api.API_SERVICE_EXPORT)

    @property
    def binding(self) -> Ref:
        if self.fleet.mode is not Mode.DIRECT:
            return self._in_space(api.API_SERVICE_BINDING)
        return Ref(self.app.name, api.API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, self.offer.name)

    @property
    def whole(self) -> Ref:
        return Ref(self.plane.name, api.APP_CLUSTER_BINDING, self.fleet.name, "shop")

    @property
    def home(self) -> Ref:
        return Ref(self.plane.name, NAMESPACE, "", self.space)

    @property
    def crd(self) -> Ref:
        return Ref(self.app.name, CRD, "", self.offer.name)

    def _in_space(self, kind: Kind) -> Ref:
        return Ref(self.plane.name, kind, self.space, self.offer.name)

    def of(self, ref: Ref) -> LiveCluster:
        """Return the cluster of an object, which klutchctl may call `shop`."""
        return self.app if ref.cluster in (self.app.name, "shop") else self.plane

    async def at(self, ref: Ref) -> Manifest | None:
        return await self.of(ref).cluster.get(ref)

    async def is_gone(self, ref: Ref) -> bool:
        """Return whether an object of either cluster is not there any more."""
        return await self.at(ref) is None

    async def meddle(self, ref: Ref, patch: Manifest, subresource: str = "") -> None:
        """Let another writer patch an object of either cluster."""
        await self.of(ref).cluster.merge_patch(
            ref, patch, manager="someone", subresource=subresource
        )

    def marks(self) -> list[Any]:
        """Return where both audit logs are."""
        return [(live.audit, live.audit.mark()) for live in (self.plane, self.app)]

    def writes(self, marks: list[Any]) -> list[Write]:
        """Return what klutchctl has written since, and nobody else."""
        assert self.user
        return [
            write
            for audit, mark in marks
            for write in audit.writes_since(mark)
            if write.user == self.user
        ]


UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
# Of a token in a note of credentials: salted with the uid of the object that bears it. Of a process
# of a konnector: by chance.
_DIGEST: Final = re.compile(r'(?<=\\"token\\": \\")[0-9a-f]{16}|(?<="message": "test )[0-9a-f]{8}')
OF_SPACE: Final = (
    refs.SERVICE_ACCOUNT,
    refs.SECRET,
    api.CLUSTER_BINDING,
    api.API_SERVICE_BINDING,
    api.API_SERVICE_EXPORT,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_NAMESPACE,
)
# What other tests have as well, without a place or a label of its own.
_SHARED: Final = frozenset({refs.NAMESPACE, refs.CRD, api.API_SERVICE_BINDING})
DROPPED: Final = ("resourceVersion", "generation", "creationTimestamp", "managedFields")
_OURS: Final = frozenset({keys.MANAGER_CLI, keys.MANAGER_NOTES})


@dataclass(frozen=True, slots=True)
class _Found:
    place: str
    kind: Kind
    live: Manifest

    @property
    def title(self) -> str:
        namespace = get_text(self.live, "metadata", "namespace")
        return f"{self.place} {self.kind.kind} {namespace}/{name_of(self.live)}"


async def end_state(scene: Scene) -> dict[str, str]:
    """Return every object of ours and of the service in both clusters, by its place."""
    found = [one async for one in _everything(scene)]
    tokens = {
        token: f"<token of {one.title}>"
        for one in found
        if one.kind == refs.SECRET and (token := _decoded(get_text(one.live, "data", "token")))
    }
    uids = {uid_of(one.live): f"<{one.title}>" for one in found}
    for live, place in ((scene.plane, "plane"), (scene.app, "app")):
        system = await live.cluster.get(Ref(live.name, refs.NAMESPACE, "", names.KUBE_SYSTEM))
        uids[uid_of(system or {})] = f"<the {place} cluster>"
    own = _own_words(scene)

    def reported(text: str) -> str:
        for word, stands_for in (*tokens.items(), *own):
            text = text.replace(word, stands_for)
        text = UID.sub(lambda match: uids.get(match[0], "<what is gone>"), text)
        for word, stands_for in own:  # in the names of what a uid stands for
            text = text.replace(word, stands_for)
        return _DIGEST.sub("<digest>", TIME.sub("<time>", text))

    return {reported(one.title): reported(_text(one)) for one in found}


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return what only one of two states holds, for people."""
    return [
        f"{title}\n  - {one.get(title)}\n  + {other.get(title)}"
        for title in sorted(one.keys() | other.keys())
        if one.get(title) != other.get(title)
    ]


def _own_words(scene: Scene) -> list[tuple[str, str]]:
    """Return the words that differ between two stories, the longest first."""
    words = [
        (scene.space, "<space>"),
        (names.kubeconfig_secret(scene.space), "<kubeconfig secret>"),
        (scene.app_namespace, "<app namespace>"),
        (scene.offer.group, "<group>"),
        (scene.offer.group.partition(".")[0], "<group>"),
        (scene.fleet.name, "<fleet>"),
    ]
    return sorted(words, key=lambda pair: -len(pair[0]))


async def _everything(scene: Scene) -> AsyncIterator[_Found]:
    plane, app, bind = scene.plane, scene.app, names.KLUTCH_NAMESPACE
    service, fleet = scene.offer.kind, f"{keys.FLEET}={scene.fleet.name}"
    places = [
        *(("plane", kind, scene.space, "") for kind in OF_SPACE),
        *(("plane", kind, scene.fleet.name, "") for kind in (api.APP_CLUSTER_BINDING, refs.SECRET)),
        ("plane", refs.NAMESPACE, "", ""),
        ("plane", service, "", ""),
        ("app", api.API_SERVICE_BINDING, bind, ""),
        *(("app", kind, bind, fleet) for kind in (refs.SECRET, refs.SERVICE_ACCOUNT)),
        *(("app", kind, "", fleet) for kind in (refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING)),
        ("app", refs.CRD, "", ""),
        ("app", service, "", ""),
        ("app", refs.SECRET, scene.app_namespace, ""),
    ]
    for place, kind, namespace, labels in places:
        live = plane if place == "plane" else app
        for one in await _listed(live, kind, namespace, labels=labels):
            if kind not in _SHARED or name_of(one).startswith(_names(scene)):
                yield _Found(place, kind, one)


def _names(scene: Scene) -> tuple[str, ...]:
    """Return how what is the scene's is called where other tests are as well."""
    return scene.space, scene.fleet.name, scene.offer.name


async def _listed(
    live: LiveCluster, kind: Kind, namespace: str, *, labels: str
) -> Sequence[Manifest]:
    try:
        return (await live.cluster.list(kind, namespace=namespace, labels=labels)).items
    except NotServed:
        return ()


def _text(found: _Found) -> str:
    live: dict[str, Any] = json.loads(json.dumps(found.live))
    metadata = live["metadata"]
    ours = sorted("/".join(path) for path in _leaves(found.live)) if found.kind != refs.CRD else []
    for key in DROPPED:
        metadata.pop(key, None)
    metadata["deleting"] = is_deleting(found.live)
    if found.kind == refs.SECRET:
        data = {key: _decoded(value) for key, value in live.get("data", {}).items()}
        live["data"] = {key: value for key, value in data.items() if key != "ca.crt"}
    if found.kind in (refs.CRD, refs.NAMESPACE):
        live = {"metadata": metadata}
    return json.dumps([live, ours], sort_keys=True).replace("\\n", "\n")


def _leaves(live: Manifest) -> set[tuple[str, ...]]:
    """Return the fields that are ours; whether by POST or by apply is a matter of history."""
    paths = set(field_set.paths(field_set.owned(live, *_OURS)))
    inner = {path[:length] for path in paths for length in range(len(path))}
    return {path for path in paths - inner if path[-1] != "f:kubernetes.io/metadata.name"}


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return value
