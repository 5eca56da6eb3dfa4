"""Installations of the original, as captures recorded them, made again in real clusters.

`tests/captures/README.md` tells what is recorded and how it is written down. What a server or a
person makes up (uids, times, tokens, values of Secrets) is made up anew; all else is as recorded:
names, specs, statuses, generations, owners, finalizers, and who wrote what.
"""

import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.blueprints import objects as spaces
from reconciler.core import manifest as m
from reconciler.core import names
from reconciler.core.errors import AlreadyExists, NotServed
from reconciler.core.live import Address
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Kind, Ref
from reconciler.core.secret import Secret
from tests.support import capture_files, removal
from tests.support.capture_files import Blanks, Way, Write
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.observing import established
from tests.support.wire_objects import strip_server_fields

CONTROL_PLANE: Final = "control-plane"
APP_CLUSTER: Final = "app-cluster"
SECOND_APP_CLUSTER: Final = "app-cluster-2"
PROVIDER: Final = "catalogue"  # what every installation stands on
_TOKEN: Final = "kubernetes.io/service-account-token"


@dataclass(frozen=True, slots=True)
class State:
    """What a take-over must leave alone in one object: all but its marks and what ticks.

    `content` is all beside metadata and status: the spec, or data, rules, subjects.
    """

    uid: str
    generation: int | None
    content: Manifest
    status: Manifest
    owners: JSON
    finalizers: list[str]


@dataclass(frozen=True, slots=True)
class Installation:
    """A capture that was made again.

    `recorded` holds its objects as they were written last, in the order of their making, and
    `writers` who wrote them: (field manager, operation). What a test makes beside them, and wants
    to be taken away as well, goes into `beside`.
    """

    places: Mapping[str, LiveCluster]
    recorded: Mapping[Ref, Manifest] = field(repr=False)
    writers: Mapping[Ref, set[tuple[str, str]]] = field(repr=False)
    beside: list[Ref]

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(self.recorded)

    def ref(self, place: str, kind: Kind, path: str) -> Ref:
        """Return one object by `namespace/name`, or by its name."""
        namespace, _, name = path.rpartition("/")
        return Ref(self.places[place].name, kind, namespace, name)

    def live(self, ref: Ref) -> LiveCluster:
        return next(one for one in self.places.values() if one.name == ref.cluster)

    async def states(self) -> dict[Ref, State]:
        """Return how every object is now, those that are gone left out."""
        found = {}
        for ref in self.refs:
            manifest = await self.live(ref).cluster.get(ref)
            if manifest is not None:
                found[ref] = _state(manifest)
        return found

    async def versions(self) -> dict[Ref, str]:
        """Return the resourceVersion of every object: equal means that nobody wrote."""
        found = {}
        for ref in self.refs:
            manifest = await self.live(ref).cluster.get(ref)
            found[ref] = m.get_text(manifest, "metadata", "resourceVersion")
        return found


def fleet(name: str, places: Mapping[str, LiveCluster]) -> str:
    """Return the fleet.yaml that an operator would write to take an installation over."""
    return capture_files.fleet(name, {place: live.context for place, live in places.items()})


@contextlib.asynccontextmanager
async def provided(control_plane: LiveCluster) -> AsyncIterator[None]:
    """Publish what every installation binds; CRDs are slow to come and go, so once is best."""
    making = _Making({CONTROL_PLANE: control_plane})
    try:
        for write in capture_files.read(PROVIDER):
            await making.write(write)
        yield
    finally:
        await making.undo()


@contextlib.asynccontextmanager
async def installed(
    places: Mapping[str, LiveCluster], *captures: str
) -> AsyncIterator[Installation]:
    """Make captures in these clusters, and take all of it away at the end.

    Their services are `provided`. What other tests left of namespace klutch-bind, or under a name
    of the captures, is removed.
    """
    for place, live in places.items():
        if place != CONTROL_PLANE:
            bind = Ref(live.name, NAMESPACE, "", names.KLUTCH_NAMESPACE)
            await removal.remove(live.cluster, bind)
            await _gone(live, bind)
    making = _Making(places)
    try:
        for capture in captures:
            for write in capture_files.read(capture):
                await making.write(write)
        yield Installation(places, making.made, making.writers, making.beside)
    finally:
        await making.undo()


class _Making:
    """Writes documents, and remembers what they became."""

    def __init__(self, places: Mapping[str, LiveCluster]) -> None:
        self.made: dict[Ref, Manifest] = {}
        self.writers: dict[Ref, set[tuple[str, str]]] = {}
        self.beside: list[Ref] = []
        self._places = places
        self._blanks = Blanks()

    async def write(self, write: Write) -> None:
        live, kind = self._places[write.place], write.kind
        for way in write.ways:
            self._blanks.values[way.blank] = await self._kubeconfig(way)
        filled = self._blanks.filled(write.manifest)
        ref = m.ref_of(live.name, kind, filled)
        body = strip_server_fields(filled, keep_status=not write.on_status)
        if write.applied:
            made = await live.cluster.apply(body, kind, manager=write.manager, force=False)
        elif ref in self.made:
            made = await live.cluster.merge_patch(ref, body, manager=write.manager)
        else:
            made = await _created(live, ref, body, manager=write.manager)
        self.made[ref] = m.drop(filled, "metadata", "uid")
        writers = self.writers.setdefault(ref, set())
        writers.add((write.manager, "Apply" if write.applied else "Update"))
        self._remember(write, made)
        if by := write.on_status:
            patch = {"status": m.get_map(filled, "status")}
            await live.cluster.merge_patch(ref, patch, manager=by, subresource="status")
            writers.add((by, "Update"))
        if m.is_deleting(filled):
            await removal.remove(live.cluster, ref)
        if kind == CRD:
            await established(live.cluster, _defined_by(made))
        if m.get_text(filled, "type") == _TOKEN:
            await self._token(live, ref)

    async def undo(self) -> None:
        """Take everything away, whatever holds it, and wait until it is gone."""
        known = {live.name: live for live in self._places.values()}
        placed = [(known[ref.cluster], ref) for ref in reversed([*self.made, *self.beside])]
        for live, ref in placed:
            await _free_and_delete(live, ref)
        for live, ref in placed:
            await _gone(live, ref)

    def _remember(self, write: Write, made: Manifest) -> None:
        values = self._blanks.values
        if blank := m.get_text(write.manifest, "metadata", "uid"):
            values[blank] = m.uid_of(made)
        if (
            write.kind == NAMESPACE
            and m.get_text(made, "metadata", "name") == names.KLUTCH_NAMESPACE
        ):
            values["<cluster-id>"] = m.digest(m.uid_of(made))[:6]

    async def _kubeconfig(self, way: Way) -> str:
        """Return a kubeconfig as a Secret holds it.

        Its context has a namespace where that is a binding space, as the backend makes it.
        """
        live = self._places[way.place]
        ref = Ref(live.name, SECRET, way.namespace, way.account)
        to = Address(live.connection.server, live.connection.ca or "")
        namespace = way.namespace if way.place == CONTROL_PLANE else ""
        issued = base64.b64decode(await self._token(live, ref)).decode()
        content = spaces.kubeconfig(to, Secret(issued), namespace=namespace)
        return base64.b64encode(content.encode()).decode()

    async def _token(self, live: LiveCluster, ref: Ref) -> str:
        """Return the token in a Secret, once a controller has put it there."""

        async def token() -> str:
            return m.get_text(await live.cluster.get(ref), "data", "token")

        return await eventually(token)


def _defined_by(crd: Manifest) -> Kind:
    """Return what a CRD defines, in a version that is served."""
    spec = m.get_map(crd, "spec")
    served = next(one for one in m.get_maps(spec, "versions") if m.get_bool(one, "served"))
    return Kind(
        m.get_text(spec, "group"),
        m.get_text(served, "name"),
        m.get_text(spec, "names", "kind"),
        m.get_text(spec, "names", "plural"),
        namespaced=m.get_text(spec, "scope") == "Namespaced",
    )


def _state(manifest: Manifest) -> State:
    content = m.drop(m.drop(manifest, "metadata"), "status")
    return State(
        uid=m.uid_of(manifest),
        generation=m.get_int(manifest, "metadata", "generation"),
        content=content,
        status=m.get_map(manifest, "status"),
        owners=m.get_map(manifest, "metadata").get("ownerReferences"),
        finalizers=m.finalizers_of(manifest),
    )


async def _get(live: LiveCluster, ref: Ref) -> Manifest | None:
    try:
        return await live.cluster.get(ref)
    except NotServed:  # its CRD is gone, and so is the object
        return None


async def _created(live: LiveCluster, ref: Ref, body: Manifest, *, manager: str) -> Manifest:
    try:
        return await live.cluster.create(body, ref.kind, manager=manager)
    except AlreadyExists:  # left by another test
        await _free_and_delete(live, ref)
        await _gone(live, ref)
    return await live.cluster.create(body, ref.kind, manager=manager)


async def _free_and_delete(live: LiveCluster, ref: Ref) -> None:
    found = await _get(live, ref)
    if found is not None and m.finalizers_of(found):
        free: Manifest = {"metadata": {"finalizers": None}}
        await live.cluster.merge_patch(ref, free, manager="operator")
    await removal.remove(live.cluster, ref)


async def _gone(live: LiveCluster, ref: Ref) -> None:
    async def absent() -> bool:
        return await _get(live, ref) is None

    gone: bool = await eventually(absent)
    assert gone
