"""Stands for a real cluster where a test is about the wrapper alone, and calls that use it."""

from contextlib import asynccontextmanager

from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.cluster import WatchEvent

REF = Ref("here", CONFIG_MAP, "shop", "x")
MANIFEST = {"metadata": {"namespace": "shop", "name": "x"}}


class Recorder:
    """Stands for a real cluster: notes what it is asked to do, and does nothing else."""

    name = "here"

    def __init__(self):
        self.done = []
        self.refusal = None

    def __getattr__(self, method):
        async def perform(*args, **kwargs):
            self.done.append((method, args, kwargs))
            if self.refusal is not None:
                raise self.refusal
            return f"answer to {method}"

        return perform

    @asynccontextmanager
    async def watch(self, *args, **kwargs):
        self.done.append(("watch", args, kwargs))

        async def events():
            for number in range(5):
                yield WatchEvent("ADDED", {"number": number})

        yield events()

    @property
    def methods(self):
        return [method for method, _, _ in self.done]


async def apply(cluster, *, dry_run=False, name="x"):
    manifest = {"metadata": {"namespace": "shop", "name": name}}
    return await cluster.apply(manifest, CONFIG_MAP, manager="m", force=True, dry_run=dry_run)


async def follow(cluster, seen):
    """Watch to the end; `seen` hears of each event, also where the end is an error."""
    async with cluster.watch(CONFIG_MAP, resource_version="1") as events:
        async for event in events:
            seen(event.object["number"])


async def numbers(cluster):
    seen: list[int] = []
    await follow(cluster, seen.append)
    return seen
