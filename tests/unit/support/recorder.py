"""Stands for a real cluster where a test is about the wrapper alone, and calls that use it."""

from contextlib import asynccontextmanager

from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.cluster import Cluster, Listing, WatchEvent
from reconciler.kube.connectivity import Connectivity

REF = Ref("here", CONFIG_MAP, "shop", "x")
MANIFEST = {"metadata": {"namespace": "shop", "name": "x"}}


class Recorder(Cluster):
    """Notes what it is asked to do, and does nothing else."""

    def __init__(self):
        self.name, self.connectivity = "here", Connectivity()
        self.done = []
        self.refusal = None

    async def send(self, request):
        self.done.append(request)
        if self.refusal is not None:
            raise self.refusal
        return {"metadata": {"name": request.ref.name}}

    async def pages(self, ref, query):
        self.done.append((ref, query))
        yield Listing([], "1")

    @asynccontextmanager
    async def watch(self, ref, query=None, *, resource_version, read_timeout=None):
        self.done.append((ref, query, resource_version, read_timeout))

        async def events():
            for number in range(5):
                yield WatchEvent("ADDED", {"number": number})

        yield events()

    async def close(self):
        pass

    @property
    def verbs(self):
        return [request.verb for request in self.done]


async def apply(cluster, *, dry_run=False, name="x"):
    manifest = {"metadata": {"namespace": "shop", "name": name}}
    return await cluster.apply(manifest, CONFIG_MAP, manager="m", force=True, dry_run=dry_run)


async def follow(cluster, seen):
    """Watch to the end; `seen` hears of each event, also where the end is an error."""
    async with cluster.watch(REF, resource_version="1") as events:
        async for event in events:
            seen(event.object["number"])


async def numbers(cluster):
    seen: list[int] = []
    await follow(cluster, seen.append)
    return seen
