"""The whole road of a service broker, on real servers: from its catalogue to an app cluster.

All is made by what ships: the files of `klutchctl catalog`, the manifests of bind/deploy, and
`klutchctl apply`. The three programs are processes, those of bind/deploy with their rights.
"""

import base64
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler import api
from reconciler.api.osb import BROKER_RECORD, SERVICE_BROKER, generated_kind
from reconciler.blueprints.objects import build
from reconciler.core import conditions, keys, names, refs
from reconciler.core.errors import NotServed
from reconciler.core.manifest import JSON, Manifest, get_map, labels_of, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube import crds
from reconciler.kube.connection import Connection, Token
from tests.support import deployed, programs, removal
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.fleet_texts import cluster, control_plane, document, one_file
from tests.support.konnector_ways import content
from tests.support.observing import established
from tests.support.osb_script import ServedBroker
from tests.support.replicas import Replica, replicas

MANAGER: Final = "tests"
NAME: Final = "unseen"
GROUP: Final = "unseen.example"
WITHIN: Final = 120.0
BACKEND: Final = (sys.executable, "-m", "bind", "--service-namespace-names=Hashed")
KONNECTOR: Final = (sys.executable, "-m", "konnector")
OSB: Final = (
    sys.executable,
    "-m",
    "bind.osb",
    f"--namespace={names.OSB_NAMESPACE}",
    "--allow-plain-http",
    "--allow-loopback",
)
_KINDS: Final = {
    **deployed.KINDS,
    refs.CRD.kind: refs.CRD,
    SERVICE_BROKER.kind: SERVICE_BROKER,
    api.API_SERVICE_EXPORT_TEMPLATE.kind: api.API_SERVICE_EXPORT_TEMPLATE,
}


@dataclass(frozen=True, slots=True)
class Road:
    """A broker, and a fleet of one app cluster that binds what it offers."""

    plane: LiveCluster
    app: LiveCluster
    namespace: str  # of the app cluster
    broker: ServedBroker
    folder: Path  # of the fleet; the broker's files are in a folder of it

    @property
    def fleet(self) -> str:
        return self.namespace.removeprefix("test-")

    @property
    def files(self) -> Path:
        return self.folder / "broker"

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """The kinds of instances and bindings, as the files have them."""
        found = [generated_kind(one) for one in self.made("crds/*.yaml")]
        kinds = {bool(one.instances): one.kind for one in found if one is not None}
        return kinds[False], kinds[True]

    def made(self, pattern: str) -> list[Any]:
        texts = [file.read_text() for file in sorted(self.files.glob(pattern))]
        return [one for text in texts for one in yaml.safe_load_all(text)]

    def rights(self, program: str) -> list[Any]:
        """Return what a program gets of the catalogue's rights."""
        label = f"{keys.OWN_PREFIX}aggregate-to-{program}"
        return [one for one in self.made("rights.yaml") if label in labels_of(one)]

    async def klutchctl(self, *arguments: str, code: int = 0) -> programs.Ended:
        done = await programs.klutchctl_beside(
            "--kubeconfig", str(self.plane.kubeconfig), *arguments
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    async def catalogue(self, *options: str, code: int = 0) -> programs.Ended:
        """Ask the broker for its catalogue, and put the files of it in force."""
        secrets = self.folder / "credentials.yaml"
        secrets.write_text(yaml.safe_dump(self._credentials()))
        broker = str(self.files / "broker.yaml")
        where = "--credentials", str(secrets)
        done = await self.klutchctl("catalog", broker, *where, *options, code=code)
        await self.apply(self.made("crds/*.yaml"))
        for kind in self.kinds:
            await established(self.plane.cluster, kind)
        await self.apply(self.made("templates.yaml"))
        return done

    def _credentials(self) -> dict[str, str]:
        return {"username": self.broker.user, "password": self.broker.password}

    async def apply(self, documents: list[Any]) -> None:
        """Do what `kubectl apply --server-side` does on the control plane."""
        for one in documents:
            await self.plane.cluster.apply(one, _KINDS[one["kind"]], manager=MANAGER, force=True)

    async def install(self) -> None:
        """Describe the broker, and make what a person makes by hand."""
        self.files.mkdir()
        spec: dict[str, JSON] = {
            "url": self.broker.url,
            "group": GROUP,
            "secretRef": {"name": NAME},
            "timing": {"poll": "1s"},
        }
        broker = build(SERVICE_BROKER, NAME, namespace=names.OSB_NAMESPACE, spec=spec)
        (self.files / "broker.yaml").write_text(yaml.safe_dump(dict(broker)))
        for one in crds.load(*crds.BROKERS):
            await self.plane.cluster.apply(one, refs.CRD, manager=MANAGER, force=True)
        for kind in (SERVICE_BROKER, BROKER_RECORD):
            await established(self.plane.cluster, kind)
        home = build(refs.NAMESPACE, names.OSB_NAMESPACE)
        await self.plane.cluster.apply(home, refs.NAMESPACE, manager=MANAGER, force=True)
        data = {
            key: base64.b64encode(text.encode()).decode()
            for key, text in self._credentials().items()
        }
        secret = {**build(refs.SECRET, NAME, namespace=names.OSB_NAMESPACE), "data": data}
        await self.plane.cluster.apply(secret, refs.SECRET, manager=MANAGER, force=True)
        await self.catalogue()
        await self.apply([broker])

    def write_fleet(self) -> None:
        """Write a fleet that binds all of the catalogue's templates."""
        templates = [one["metadata"]["name"] for one in self.made("fleet/*.yaml")]
        bindings = [
            document("Binding", name, f"{{template: {name}, clusters: {{names: [shop]}}}}")
            for name in templates
        ]
        include = "include: [fleet.yaml, broker/fleet/*.yaml]"
        text = one_file(
            document("Fleet", self.fleet, f"{{{include}, prune: {{allowEmpty: true}}}}"),
            control_plane(at=self.plane.context),
            cluster(at=self.app.context),
            *bindings,
        )
        (self.folder / "fleet.yaml").write_text(text)

    # What a developer does, who knows the app cluster alone.

    async def claim(self, kind: Kind, name: str, **spec: Any) -> None:
        made = {**build(kind, name, namespace=self.namespace), "spec": spec}
        await self.app.cluster.create(made, kind, manager="developer")

    def ref(self, kind: Kind, name: str) -> Ref:
        return Ref(self.app.name, kind, self.namespace, name)

    async def is_ready(self, kind: Kind, name: str) -> None:
        async def ready() -> bool:
            live = await self.app.cluster.get(self.ref(kind, name))
            found = conditions.get(live, conditions.READY)
            assert found is not None, live
            assert found.status == "True", live
            return True

        await eventually(ready, within=WITHIN)

    async def credentials(self, name: str) -> Mapping[str, str]:
        data = get_map(await self.app.cluster.get(self.ref(refs.SECRET, name)) or {}, "data")
        return {key: base64.b64decode(str(value)).decode() for key, value in data.items()}

    async def rotate(self, kind: Kind, name: str, **rotation: str) -> None:
        patch: Manifest = {"spec": {"rotation": dict(rotation)}}
        await self.app.cluster.merge_patch(self.ref(kind, name), patch, manager="developer")

    async def delete(self, kind: Kind, name: str) -> None:
        await removal.remove(self.app.cluster, self.ref(kind, name))

    async def left(self) -> list[Ref]:
        """Return what of the service is left in the app namespace, and records of it."""
        found: list[Ref] = []
        for kind in (*self.kinds, refs.SECRET):
            held = await self.app.cluster.list(kind, namespace=self.namespace)
            found += [ref_of(self.app.name, kind, one) for one in held.items]
        records = await self.plane.cluster.list(BROKER_RECORD, namespace=names.OSB_NAMESPACE)
        return [*found, *(ref_of(self.plane.name, BROKER_RECORD, one) for one in records.items)]


@dataclass(frozen=True, slots=True)
class Running:
    """The programs of a road."""

    backend: Replica
    osb: Replica
    konnector: Replica


@asynccontextmanager
async def running(road: Road, folder: Path) -> AsyncIterator[Running]:
    """Let all three programs work for the length of the block."""
    bind = [*deployed.built(deployed.FOLDER), *road.rights(keys.MANAGER_BACKEND)]
    osb = [*deployed.built(deployed.OSB), *road.rights(keys.MANAGER_OSB)]
    async with AsyncExitStack() as stack:
        started = []
        for name, home, command, made in (
            ("bind", names.KLUTCH_NAMESPACE, BACKEND, bind),
            ("osb", names.OSB_NAMESPACE, OSB, osb),
        ):
            way = await stack.enter_async_context(
                deployed.installed(road.plane.cluster, road.plane.connection, made)
            )
            where = _led(folder / name, way)
            of = replicas(road.plane, home, folder / name, command=command, kubeconfig=where)
            started.append(await (await stack.enter_async_context(of)).start())
        there = folder / "konnector"
        there.mkdir()
        of = replicas(road.app, road.namespace, there, command=KONNECTOR)
        started.append(await (await stack.enter_async_context(of)).start())
        yield Running(*started)


def _led(folder: Path, way: Connection) -> Path:
    folder.mkdir()
    path = folder / "kubeconfig"
    assert isinstance(way.credential, Token)
    path.write_text(content(way, way.credential.token.reveal()))
    return path


@asynccontextmanager
async def road(
    plane: LiveCluster, app: LiveCluster, namespace: str, folder: Path, broker: ServedBroker
) -> AsyncIterator[Road]:
    """Make a broker known to a control plane, and describe a fleet; all traces go at the end."""
    made = Road(plane, app, namespace, broker, folder)
    home = build(refs.NAMESPACE, namespace)
    try:
        await app.cluster.create(home, refs.NAMESPACE, manager=MANAGER)
        await made.install()
        made.write_fleet()
        yield made
    finally:
        await _wipe(made)


async def _wipe(road: Road) -> None:
    plane, app = road.plane, road.app
    bind, fleet = names.KLUTCH_NAMESPACE, f"{keys.FLEET}={road.fleet}"
    for kind in road.kinds:
        bound = Ref(app.name, api.API_SERVICE_BINDING, bind, kind.resource)
        await removal.remove_for_good(app, bound)
        for live in (app, plane):
            with suppress(NotServed):
                for one in (await live.cluster.list(kind)).items:
                    await removal.remove_for_good(live, ref_of(live.name, kind, one))
            await removal.remove(live.cluster, Ref(live.name, refs.CRD, "", kind.resource))
    for one in (await plane.cluster.list(BROKER_RECORD, namespace=names.OSB_NAMESPACE)).items:
        await removal.remove_for_good(plane, ref_of(plane.name, BROKER_RECORD, one))
    own = (*road.made("broker.yaml"), *road.made("templates.yaml"))
    for one in own:
        await removal.remove_manifest(plane.cluster, _KINDS[one["kind"]], one)
    space = names.direct_space(road.fleet, "shop")
    for ref in (
        Ref(plane.name, refs.SECRET, names.OSB_NAMESPACE, NAME),
        Ref(plane.name, refs.LEASE, bind, names.lock_lease(road.fleet)),
        Ref(plane.name, refs.LEASE, bind, names.BACKEND_LEASE),
        Ref(plane.name, refs.LEASE, names.OSB_NAMESPACE, names.OSB_LEASE),
        Ref(plane.name, refs.NAMESPACE, "", space),
    ):
        await removal.remove(plane.cluster, ref)
    await removal.remove(app.cluster, Ref(app.name, refs.NAMESPACE, "", road.namespace))
    for kind in (refs.SECRET, refs.SERVICE_ACCOUNT, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING):
        place = bind if kind.namespaced else ""
        for one in (await app.cluster.list(kind, namespace=place, labels=fleet)).items:
            await removal.remove_manifest(app.cluster, kind, one)
