"""One cold run over the large fleet in a process of its own: stages in seconds, as JSON."""

import gc
import json
import resource
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.fleet.values import Access, Fleet
    from reconciler.kube.registry import Reached, Registry
    from reconciler.planning.changes import Plan


class Stages:
    """How long each stage took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> "Iterator[None]":
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began


class Watched:
    """The clusters of a run; notes when reading each of them ended."""

    def __init__(self, clusters: "Registry") -> None:
        self._clusters = clusters
        self.ended: dict[str, float] = {}

    async def control_plane(self, name: str) -> "Reached":
        return await self._clusters.control_plane(name)

    async def app_cluster(self, name: str, access: "Access", *, control_plane: str) -> "Reached":
        return await self._clusters.app_cluster(name, access, control_plane=control_plane)

    async def close(self, name: str) -> None:
        """Note the time; an observer closes a cluster as soon as it is done with it."""
        self.ended[name] = time.perf_counter()
        await self._clusters.close(name)


def render(folder: Path, stages: Stages) -> dict[str, Any]:
    with stages.stage("imports"):
        from klutchctl import repository
        from klutchctl.render import manifests
        from reconciler.fleet.compile import desired
    with stages.stage("read and validate"):
        fleet = repository.fleet_in(folder / "repository", check_owner=True)
    with stages.stage("compile"):
        objects = list(desired(fleet))
    with stages.stage("render"):
        text = manifests.as_text(fleet, objects)
    return {"units": len(fleet.units), "objects": len(objects), "bytes": len(text.encode())}


def plan(folder: Path, kubeconfig: Path, stages: Stages) -> dict[str, Any]:
    """Plan the fleet against the stand-ins."""
    with stages.stage("imports"):
        import uvloop

        from klutchctl import repository
        from klutchctl.render import plan_formats
    with stages.stage("read files"):
        fleet = repository.fleet_in(folder / "repository", check_owner=True)
    began = time.perf_counter()
    made, ended = uvloop.run(_planned(fleet, kubeconfig, stages))
    with stages.stage("render text"):
        plan_formats.text(made)
    with stages.stage("render json"):
        plan_formats.as_json(made)
    unseen = {one.name for one in made.unseen}
    counts: dict[str, int] = {}
    for change in made.changes:
        counts[change.action] = counts.get(change.action, 0) + 1
    return {
        "id": made.id,
        "actions": counts,
        "unseen": len(unseen),
        "last_healthy": max(when for name, when in ended.items() if name not in unseen) - began,
    }


async def _planned(
    fleet: "Fleet", kubeconfig: Path, stages: Stages
) -> "tuple[Plan, dict[str, float]]":
    """Do what `klutchctl plan` does."""
    from reconciler.kube import registry
    from reconciler.observe import answer, observe
    from reconciler.planning import planner

    around = registry.Surroundings(kubeconfigs=[kubeconfig], environ={})
    async with registry.of(fleet, around) as clusters:
        watched = Watched(clusters)
        with stages.stage("read clusters"):
            live = await observe(fleet, watched)
        ended = dict(watched.ended)
        with stages.stage("plan"):
            decided = planner.decide(fleet, live)
        asked = decided.questions
        if not (asked.in_use or asked.bodies):
            return decided.plan, ended
        with stages.stage("ask what else"):
            live = await answer(fleet, live, watched, asked)
        with stages.stage("plan again"):
            return planner.plan(fleet, live), ended


def main() -> None:
    """Do what the arguments say and print what it took."""
    gc.set_threshold(3_000_000, 50, 50)  # as klutchctl.entry
    task, folder, *rest = sys.argv[1:]
    stages = Stages()
    if task == "render":
        facts = render(Path(folder), stages)
    else:
        facts = plan(Path(folder), Path(rest[0]), stages)
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts |= {
        "stages": stages.seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss / 1024,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
