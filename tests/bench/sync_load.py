"""The load for a sync: claims that come, an operator that answers, and when it is seen where.

It watches both sides with plain aiohttp, so what it costs the machine is the same for everyone
who syncs. Times are those of the monotonic clock, in seconds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from reconciler.core import keys
from reconciler.kube.requests import MERGE_PATCH
from tests.bench.bare_sync import MARKS, Orders, events

READY: Final = "Ready"
CONNECTIONS: Final = 128  # to each server; a burst does not wait for whoever syncs
_JSON: Final = "application/json"
_TIMEOUT: Final = 180.0
_REQUESTS: Final = "apiserver_request_total{"


@dataclass(slots=True)
class Story:
    """What happened to one claim, 0.0 for what has not. Its status is told in `phase`."""

    namespace: str
    uid: str = ""
    made: float = 0.0
    copied: float = 0.0
    reported: float = 0.0
    phase: str = ""
    shown: float = 0.0

    @property
    def latency(self) -> float:
        """Seconds from the answer to each of our writes until it was seen on the other side."""
        return max(self.copied - self.made, 0.0) + max(self.shown - self.reported, 0.0)


class Load:
    """Makes claims and follows them. With `answers`, each copy gets the status READY at once."""

    def __init__(
        self, orders: Orders, app: aiohttp.ClientSession, plane: aiohttp.ClientSession
    ) -> None:
        self._orders, self._app, self._plane = orders, app, plane
        self._turn = asyncio.Semaphore(CONNECTIONS)
        self._group: asyncio.TaskGroup | None = None
        self.stories: dict[str, Story] = {}
        self.secrets: dict[str, float] = {}  # when each was seen in the app cluster
        self.answers = True
        self.sent = 0
        self._stir = asyncio.Event()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Watch both sides for the length of the block."""
        claims, secrets = f"{self._orders.path}/{self._orders.plural}", "/api/v1/secrets"
        follows: list[tuple[aiohttp.ClientSession, str, Callable[[Any], None]]] = [
            (self._app, claims, self._see_claim),
            (self._plane, claims, self._see_copy),
            (self._app, secrets, self._see_secret),
        ]
        async with asyncio.TaskGroup() as self._group:
            tasks = [self._group.create_task(self._follow(*each)) for each in follows]
            yield
            for task in tasks:
                task.cancel()

    async def make(self, names: Iterable[str]) -> None:
        """Create a claim for each name, as fast as may be."""
        await self._each(names, self._make)

    async def report(self, names: Iterable[str], phase: str) -> None:
        """Write a new phase into the status of each copy, as fast as may be."""
        await self._each(names, lambda name: self._report(name, phase))

    async def fill(self, names: Iterable[str]) -> None:
        """Create claims with copies, as a sync that is done has left them."""
        await self._each(names, self._fill)

    async def stamp(self, names: Iterable[str]) -> None:
        """Write the uids that a konnector would have written, and the bare loop has not."""
        await self._each(names, lambda name: self._stamp(name, self.stories[name].uid))

    async def make_secrets(self, names: Iterable[str]) -> None:
        """Create credentials on the control plane."""
        await self._each(names, self._make_secret)

    async def until(self, done: Callable[[Story], bool], names: Sequence[str]) -> None:
        """Return once the stories of all of them have come so far. Raises SystemExit."""
        await self.seen(lambda: all(done(self.stories[name]) for name in names))

    async def seen(self, done: Callable[[], bool]) -> None:
        """Return once something shows. Raises SystemExit where it takes too long."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                while not done():
                    self._stir.clear()
                    await self._stir.wait()
                    await asyncio.sleep(0.02)  # a look at thousands is not to be taken often
        except TimeoutError:
            raise SystemExit("what is measured does not come to its end") from None

    async def _each(self, names: Iterable[str], do: Callable[[str], Awaitable[None]]) -> None:
        queue = iter(names)

        async def work() -> None:
            for name in queue:
                await do(name)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())

    async def _make(self, name: str) -> None:
        story = self.stories[name] = Story(self._namespace_of(name))
        story.uid = await self._write(
            self._app, "POST", self._collection(story.namespace), self._claim(name), _JSON
        )
        story.made = time.monotonic()

    async def _stamp(self, name: str, uid: str) -> None:
        marks = {"metadata": {"annotations": {keys.CLAIM_UID: uid}}}
        here = self._namespace_of(name)
        for session, namespace in ((self._app, here), (self._plane, self._orders.homes[here])):
            path = f"{self._collection(namespace)}/{name}"
            await self._write(session, "PATCH", path, marks, MERGE_PATCH)

    async def _report(self, name: str, phase: str) -> None:
        story = self.stories[name]
        home = self._orders.homes[story.namespace]
        path = f"{self._collection(home)}/{name}/status"
        story.shown = 0.0
        story.phase = phase
        await self._write(self._plane, "PATCH", path, {"status": status(phase)}, MERGE_PATCH)
        story.reported = time.monotonic()

    async def _fill(self, name: str) -> None:
        claim = self._claim(name)
        namespace = claim["metadata"]["namespace"]
        home = self._orders.homes[namespace]
        held = {"finalizers": [keys.SYNCER], "annotations": MARKS}
        made = {**claim, "metadata": {**claim["metadata"], **held}}
        uid = await self._write(self._app, "POST", self._collection(namespace), made, _JSON)
        there = {"name": name, "namespace": home, "annotations": MARKS}
        copy = {**claim, "metadata": there}
        await self._write(self._plane, "POST", self._collection(home), copy, _JSON)
        await self._stamp(name, uid)

    async def _make_secret(self, name: str) -> None:
        home = self._orders.homes[self._namespace_of(name)]
        made = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": home},
            "data": {"password": "c2VjcmV0", "user": "YmVuY2g="},
        }
        await self._write(self._plane, "POST", f"/api/v1/namespaces/{home}/secrets", made, _JSON)

    async def _write(
        self, session: aiohttp.ClientSession, method: str, path: str, body: Any, content: str
    ) -> str:
        """Return the uid of the object in the answer."""
        headers = {"Content-Type": content}
        async with session.request(
            method, path, data=orjson.dumps(body), headers=headers
        ) as response:
            answer = await response.read()
            assert response.status < 300, answer
        self.sent += 1
        return str(orjson.loads(answer)["metadata"]["uid"])

    async def _follow(
        self, session: aiohttp.ClientSession, path: str, see: Callable[[Any], None]
    ) -> None:
        async with session.get(f"{path}?limit=1") as response:
            place = orjson.loads(await response.read())["metadata"]["resourceVersion"]
        async for event in events(session, path, place):
            if event["type"] in ("ADDED", "MODIFIED"):
                see(event["object"])
                self._stir.set()

    def _see_claim(self, claim: Any) -> None:
        story = self.stories.get(claim["metadata"]["name"])
        phase = claim.get("status", {}).get("phase")
        if story is not None and phase == story.phase and not story.shown and phase:
            story.shown = time.monotonic()

    def _see_copy(self, copy: Any) -> None:
        name = copy["metadata"]["name"]
        story = self.stories.get(name)
        if story is None or story.copied:
            return
        story.copied = time.monotonic()
        if self.answers and self._group is not None:
            self._group.create_task(self._answer(name))

    def _see_secret(self, secret: Any) -> None:
        self.secrets.setdefault(secret["metadata"]["name"], time.monotonic())

    async def _answer(self, name: str) -> None:
        async with self._turn:
            await self._report(name, READY)

    def _claim(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": self._orders.path.removeprefix("/apis/"),
            "kind": self._orders.kind,
            "metadata": {"name": name, "namespace": self._namespace_of(name)},
            "spec": {"plan": "small", **{f"parameter-{n}": f"value-{n}" for n in range(6)}},
        }

    def _namespace_of(self, name: str) -> str:
        namespaces = list(self._orders.homes)
        return namespaces[int(name.rpartition("-")[2]) % len(namespaces)]

    def _collection(self, namespace: str) -> str:
        return f"{self._orders.path}/namespaces/{namespace}/{self._orders.plural}"


def status(phase: str) -> dict[str, Any]:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Provisioned",
        "message": f"the service instance is {phase}",
        "lastTransitionTime": "2026-11-22T03:04:05Z",
    }
    return {"phase": phase, "conditions": [condition]}


async def requests_of(session: aiohttp.ClientSession, resource: str, *, reads: bool) -> int:
    """Return how many calls an API server has answered about a resource, watches excluded."""
    async with session.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    left_out = ("WATCH",) if reads else ("WATCH", "GET", "LIST")
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith(_REQUESTS)
        and f'resource="{resource}"' in line
        and not any(f'verb="{verb}"' in line for verb in left_out)
    )
