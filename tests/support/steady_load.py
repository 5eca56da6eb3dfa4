"""Developers and a provider who go on, whatever happens to the agents between them, and a record.

Names are used once, so that a claim or a copy that comes back is one too many. Each write of a spec
has a number of its own, which the provider gives back in the status and in the credentials.
"""

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import random
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from reconciler.blueprints.objects import build
from reconciler.core import manifest
from reconciler.core.errors import Missing
from reconciler.core.manifest import Manifest, get_int, get_maps, get_text, labels_of, name_of
from reconciler.core.refs import NAMESPACE, SECRET, Kind, Ref
from reconciler.kube.cluster import Cluster
from tests.support import removal

_AT_ONCE: Final = 8
_BETWEEN: Final = 0.15  # seconds between two writes of developers
_CLAIMS_OF_A_NAMESPACE: Final = 100
_NEW_NAMESPACE: Final = 25  # each so many writes one claim comes in a namespace that is new
POD: Final = Kind("", "v1", "Pod", "pods")


@contextlib.asynccontextmanager
async def beside(*ways: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run what never ends by itself for the length of the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(way) for way in ways]
        yield
        for task in tasks:
            task.cancel()


async def follow(
    cluster: Cluster, kind: Kind, see: Callable[[str, Manifest], None], *, namespace: str = ""
) -> None:
    """Show all objects of a kind, then each event of theirs, until cancelled."""
    listing = await cluster.list(kind, namespace=namespace)
    for one in listing.items:
        see("ADDED", one)
    version = listing.resource_version
    while True:
        everything = Ref(cluster.name, kind, namespace, "")
        async with cluster.watch(everything, resource_version=version) as events:
            async for event in events:
                version = manifest.resource_version_of(event.object)
                if event.type != "BOOKMARK":
                    see(event.type, event.object)


@dataclass(slots=True)
class Claim:
    """What its developer wants last: a number in its spec, or that it is gone."""

    namespace: str
    number: int
    deleted: bool = False


@dataclass
class Load:
    """Claims of one kind in `app`, and their provider on `plane`."""

    app: Cluster
    plane: Cluster
    kind: Kind
    rng: random.Random
    claims: dict[str, Claim] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)  # since when no answer came
    waited: list[tuple[float, str]] = field(default_factory=list)  # seconds until an answer
    uids: dict[str, set[str]] = field(default_factory=dict)  # of all copies there ever were
    gone: set[str] = field(default_factory=set)  # copies
    copies: dict[str, Manifest] = field(default_factory=dict)
    number: int = 0
    _ends: bool = False
    _namespaces: list[str] = field(default_factory=list)
    _orders: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Let the provider answer, and note what is seen, for the length of the block."""
        async with beside(
            follow(self.app, self.kind, self._see_claim),
            follow(self.plane, self.kind, self._see_copy),
            *(self._provide() for _ in range(_AT_ONCE)),
        ):
            yield

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Edit, create and delete claims for the length of the block."""
        self._ends = False
        async with asyncio.TaskGroup() as group:
            group.create_task(self._go_on())
            try:
                yield
            finally:
                self._ends = True

    async def begin(self, count: int) -> None:
        """Create so many claims, as fast as may be."""
        for _ in range(0, count, _CLAIMS_OF_A_NAMESPACE):
            await self._new_namespace()
        turn = asyncio.Semaphore(_AT_ONCE)

        async def one(place: int) -> None:
            async with turn:
                await self._create(self._namespaces[place // _CLAIMS_OF_A_NAMESPACE])

        await asyncio.gather(*map(one, range(count)))

    async def _go_on(self) -> None:
        while not self._ends:
            await asyncio.sleep(self.rng.expovariate(1 / _BETWEEN))
            if self.number % _NEW_NAMESPACE == 0:
                await self._new_namespace()
                await self._create(self._namespaces[-1])
                continue
            there = [name for name, one in self.claims.items() if not one.deleted]
            name, chance = self.rng.choice(there), self.rng.random()
            if chance < 0.7:
                await self._edit(name)
            elif chance < 0.9:
                await self._create(self.rng.choice(self._namespaces))
            else:
                await self._delete(name)

    def is_answered(self) -> bool:
        """Return whether no write of a developer waits for its answer."""
        return not self.waiting

    async def _new_namespace(self) -> None:
        name = f"team-{len(self._namespaces)}"
        await self.app.create(build(NAMESPACE, name), NAMESPACE, manager="developer")
        self._namespaces.append(name)

    def _next(self) -> int:
        self.number += 1
        return self.number

    async def _create(self, namespace: str) -> None:
        number = self._next()
        name = f"claim-{number}"
        self.claims[name] = Claim(namespace, number)
        self.waiting[name] = time.monotonic()
        made = build(self.kind, name, namespace=namespace, spec={"number": number})
        await self.app.create(made, self.kind, manager="developer")

    async def _edit(self, name: str) -> None:
        claim = self.claims[name]
        claim.number = self._next()
        self.waiting.setdefault(name, time.monotonic())
        ref = Ref(self.app.name, self.kind, claim.namespace, name)
        await self.app.merge_patch(ref, {"spec": {"number": claim.number}}, manager="developer")

    async def _delete(self, name: str) -> None:
        self._next()
        claim = self.claims[name]
        claim.deleted = True
        self.waiting.setdefault(name, time.monotonic())
        await removal.remove(self.app, Ref(self.app.name, self.kind, claim.namespace, name))

    async def _provide(self) -> None:
        while True:
            name = await self._orders.get()
            copy = self.copies[name]
            number = manifest.get_int(copy, "spec", "number")
            if name in self.gone or manifest.is_deleting(copy) or _answer(copy) == number:
                continue
            ref = Ref(self.plane.name, self.kind, manifest.namespace_of(copy), name)
            await self._write_credentials(copy, number)
            with contextlib.suppress(Missing):
                status: Manifest = {"status": {"number": number}}
                await self.plane.merge_patch(ref, status, manager="provider", subresource="status")

    async def _write_credentials(self, copy: Manifest, number: int | None) -> None:
        """They belong to the copy, and go with it."""
        owner: Manifest = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": manifest.name_of(copy),
            "uid": manifest.uid_of(copy),
        }
        data: Manifest = {"number": base64.b64encode(str(number).encode()).decode()}
        made = build(
            SECRET, manifest.name_of(copy), namespace=manifest.namespace_of(copy), data=data
        )
        owned = manifest.put(made, [owner], "metadata", "ownerReferences")
        await self.plane.apply(owned, SECRET, manager="provider", force=True)

    def _see_claim(self, event: str, live: Manifest) -> None:
        name = manifest.name_of(live)
        claim = self.claims[name]
        answered = event == "DELETED" if claim.deleted else _answer(live) == claim.number
        if answered and name in self.waiting:
            self.waited.append((time.monotonic() - self.waiting.pop(name), name))

    def _see_copy(self, event: str, live: Manifest) -> None:
        name = manifest.name_of(live)
        self.uids.setdefault(name, set()).add(manifest.uid_of(live))
        if event == "DELETED":
            self.gone.add(name)
        self.copies[name] = live
        self._orders.put_nowait(name)


def _answer(live: Manifest) -> int | None:
    return manifest.get_int(live, "status", "number")


def numbers(live: Iterable[Manifest]) -> dict[str, tuple[int | None, int | None]]:
    """Return the numbers in spec and status of claims or copies, by their names."""
    return {
        manifest.name_of(one): (manifest.get_int(one, "spec", "number"), _answer(one))
        for one in live
    }


def credentials(live: Iterable[Manifest]) -> dict[str, int]:
    """Return the numbers in the credentials of claims, by the names of these."""
    found = {manifest.name_of(one): manifest.get_text(one, "data", "number") for one in live}
    return {name: int(base64.b64decode(number)) for name, number in found.items() if number}


@dataclass
class Leaders:
    """Who held a Lease, and when it was renewed."""

    renewals: list[tuple[str, datetime]] = field(default_factory=list)

    def see(self, event: str, lease: Manifest) -> None:
        """Note a write of the Lease; one that gives it back renews it for nobody."""
        holder = get_text(lease, "spec", "holderIdentity")
        if event != "DELETED" and holder:
            renewed = datetime.fromisoformat(get_text(lease, "spec", "renewTime"))
            self.renewals.append((holder, renewed))

    def gaps(self) -> list[float]:
        """Return the seconds between the last renewal of each holder and the first of the next."""
        pairs = zip(self.renewals, self.renewals[1:], strict=False)
        return [(new - old).total_seconds() for (one, old), (other, new) in pairs if one != other]


@dataclass
class Pods:
    """The pods that there were, by their ReplicaSet, and how often a container began anew."""

    generations: dict[str, str] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)

    def see(self, _: str, pod: Manifest) -> None:
        name = name_of(pod)
        self.generations[name] = generation_of(pod)
        counts = [
            get_int(one, "restartCount") or 0
            for one in get_maps(pod, "status", "containerStatuses")
        ]
        self.restarts[name] = max([self.restarts.get(name, 0), *counts])

    def of(self, generation: str) -> set[str]:
        return {name for name, one in self.generations.items() if one == generation}


def generation_of(pod: Manifest) -> str:
    """Return what tells the ReplicaSet of a pod from others of the same Deployment."""
    return labels_of(pod)["pod-template-hash"]


def write_newer(source: Path, target: Path, *, name: str, tag: str) -> None:
    """Write an OCI archive again with a label more, and so another digest, as `name`:`tag`."""
    with tarfile.open(source) as archive:
        files = {
            one.name.removeprefix("./"): file.read()
            for one in archive
            if (file := archive.extractfile(one)) is not None
        }
    index = json.loads(files["index.json"])
    (image,) = index["manifests"]
    manifest = json.loads(files[_blob(image)])
    config = json.loads(files[_blob(manifest["config"])])
    config["config"].setdefault("Labels", {})["org.opencontainers.image.version"] = tag
    manifest["config"] = _put(files, config, manifest["config"])
    image = _put(files, manifest, image)
    image["annotations"] = {"org.opencontainers.image.ref.name": f"{name}:{tag}"}
    files["index.json"] = json.dumps({**index, "manifests": [image]}).encode()
    with tarfile.open(target, "w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _blob(described: Mapping[str, Any]) -> str:
    return f"blobs/{described['digest'].replace(':', '/')}"


def _put(files: dict[str, bytes], value: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    """Add a blob in place of the one that was described, and return how it is described."""
    content = json.dumps(value).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    made = {**described, "digest": digest, "size": len(content)}
    files[_blob(made)] = content
    return made
