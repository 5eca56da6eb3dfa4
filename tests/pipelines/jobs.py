"""Runs the commands of Jobs, where no nodes are, and writes how they ended to their status."""

import asyncio
import base64
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.blueprints.objects import build
from reconciler.core.errors import Missing
from reconciler.core.manifest import JSON, is_deleting, ref_of, uid_of
from reconciler.core.refs import LEASE, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind, Ref
from reconciler.core.times import format_time
from tests.support import removal
from tests.support.applying import Scene
from tests.support.clusters import LiveCluster
from tests.support.controllers import Repository
from tests.support.eventually import eventually

JOB = Kind("batch", "v1", "Job", "jobs")
CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs")
JOBS = "klutchctl"  # the namespace that the example names
_ANNOTATION = re.compile(r"metadata\.annotations\['(.+)'\]")


@dataclass(frozen=True)
class Ended:
    """A run of the command of a Job."""

    arguments: tuple[str, ...]
    code: int
    output: str


@dataclass
class Runner:
    """Job controller and kubelet for Jobs of the example, each of which has one try.

    Secrets that are mounted are files in `folder`; `environ` is there beside what a Job names.
    """

    live: LiveCluster
    folder: Path
    environ: Mapping[str, str]
    space: str  # the namespace of the Jobs
    ended: list[Ended] = field(default_factory=list)
    works: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        seen: set[str] = set()
        while True:
            for job in (await self.live.cluster.list(JOB, namespace=self.space)).items:
                if uid_of(job) not in seen:
                    seen.add(uid_of(job))
                    begun = datetime.now(UTC)
                    await self.works.wait()
                    status = _status(begun, await self._run(job))
                    ref, patch = ref_of(self.live.name, JOB, job), {"status": status}
                    with contextlib.suppress(Missing):
                        await self.live.cluster.merge_patch(
                            ref, patch, manager="tests", subresource="status"
                        )
            await asyncio.sleep(0.1)

    async def expire(self) -> None:
        """Take away the Jobs that are over, as if their time had run out."""
        for job in (await self.live.cluster.list(JOB, namespace=self.space)).items:
            await removal.remove_manifest(self.live.cluster, JOB, job)

    async def start(self, cron_job: str) -> None:
        """Make the Job of a CronJob, as `kubectl create job --from` does; wait for its end."""
        found: Any = await self.live.cluster.get(self._ref(CRON_JOB, cron_job))
        spec, ended = found["spec"]["jobTemplate"]["spec"], len(self.ended)
        made = build(JOB, f"{cron_job}-now", namespace=self.space, spec=spec)
        await self.live.cluster.create(made, JOB, manager="tests")
        await eventually(lambda: len(self.ended) > ended)

    async def fill(self) -> list[Ref]:
        """Put what a controller keeps into the namespace; return all that has to outlive it all."""
        for kind in (FLEET_STATUS, LEASE):
            kept = build(kind, "fleet-access", namespace=self.space)
            await self.live.cluster.create(kept, kind, manager="tests")
        inside = (self._ref(kind, "fleet-access") for kind in (SECRET, FLEET_STATUS, LEASE))
        return [Ref(self.live.name, NAMESPACE, "", self.space), *inside]

    async def is_left(self, kept: list[Ref]) -> None:
        """Fail unless the ServiceAccount is gone, and this is not."""
        assert await self.live.cluster.get(self._ref(SERVICE_ACCOUNT, "klutchctl")) is None
        for ref in kept:
            found = await self.live.cluster.get(ref)
            assert found is not None, ref
            assert not is_deleting(found), ref

    def _ref(self, kind: Kind, name: str) -> Ref:
        return Ref(self.live.name, kind, self.space, name)

    async def _run(self, job: Any) -> int:
        template = job["spec"]["template"]
        (container,) = template["spec"]["containers"]
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        for volume in template["spec"]["volumes"]:
            if "secret" in volume:
                await self._mount(volume["secret"]["secretName"], mounted[volume["name"]])
        environ = dict(self._environ(container["env"], template["metadata"]["annotations"]))
        arguments = tuple(
            re.sub(r"\$\((\w+)\)", lambda found: environ[found[1]], one)
            for one in container["args"]
        )
        (program,) = container["command"]
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name(program)),
            *arguments,
            env={**self.environ, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        self.ended.append(Ended(arguments, process.returncode, out.decode()))
        print(*arguments, out.decode())  # pytest shows it where the test fails
        return process.returncode

    async def _mount(self, secret: str, path: str) -> None:
        found: Any = await self.live.cluster.get(self._ref(SECRET, secret))
        target = self.folder / path.strip("/")
        target.mkdir(parents=True, exist_ok=True)
        for name, value in (found or {}).get("data", {}).items():
            (target / name).write_bytes(base64.b64decode(value))

    def _environ(self, said: Any, annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for one in said:
            value = one.get("value")
            if value is None:
                path = _ANNOTATION.fullmatch(one["valueFrom"]["fieldRef"]["fieldPath"])
                assert path is not None
                value = annotations[path[1]]
            yield one["name"], str(self.folder / value[1:]) if value.startswith("/") else value


def _status(begun: datetime, code: int) -> dict[str, JSON]:
    """Return what the Job controller writes of a Job that is over."""
    now = format_time(datetime.now(UTC))
    kinds = ("FailureTarget", "Failed") if code else ("SuccessCriteriaMet", "Complete")
    why = f"Container klutchctl for pod {JOBS}/fleet-x failed with exit code {code}" if code else ""
    conditions: list[JSON] = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "message": why}
        for kind in kinds
    ]
    counts: dict[str, JSON] = {"failed": 1} if code else {"succeeded": 1, "completionTime": now}
    return {
        "startTime": format_time(begun),
        "ready": 0,
        "uncountedTerminatedPods": {},
        "conditions": conditions,
        **counts,
    }


@pytest.fixture
def space() -> str:
    return JOBS


@pytest.fixture
async def runner(
    scene: Scene, files: Repository, tmp_path: Path, space: str
) -> AsyncIterator[Runner]:
    """What runs Jobs, with the Secret that the book asks for."""
    cluster = scene.plane.cluster
    await cluster.create(build(NAMESPACE, space), NAMESPACE, manager="tests")
    access = {"stringData": {"kubeconfig": scene.kubeconfig.read_text()}}
    secret = {**build(SECRET, "fleet-access", namespace=space), **access}
    await cluster.create(secret, SECRET, manager="tests")
    made = Runner(scene.plane, tmp_path / "mounts", files.environ, space)
    made.works.set()
    working = asyncio.create_task(made.work())
    yield made
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    ref = Ref(scene.plane.name, NAMESPACE, "", space)
    await removal.remove(cluster, ref)
    await eventually(lambda: scene.is_gone(ref))
