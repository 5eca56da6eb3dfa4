"""What a run crosses, file by file: the walks that reconciler/README.md states, counted."""

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from klutchctl import main
from reconciler.blueprints.objects import build
from reconciler.core.manifest import get_text
from reconciler.core.refs import NAMESPACE
from reconciler.fleet.values import Mode
from tests.kit.clusters import model_clusters, model_of
from tests.kit.virtual_time import VirtualLoop
from tests.support.apply_runs import Runs, staged
from tests.support.applying import CLAIMS
from tests.support.applying import Scene as FleetScene
from tests.support.bound_scenes import Scene
from tests.support.house import PROGRAMS, ROOT
from tests.support.konnector import konnector
from tests.support.konnector_scenes import sides
from tests.support.settled import settled


class Walk(NamedTuple):
    """Files of the product in the order of their first calls."""

    files: list[Path]

    @property
    def figures(self) -> dict[str, int]:
        """The files, the folders that they are in, and how often one of these is entered again."""
        entered = [folder for folder, _ in groupby(file.parent for file in self.files)]
        return {
            "files": len(self.files),
            "konnector": sum(file.parts[0] == "konnector" for file in self.files),
            "folders": len({*entered}),
            "returns": len(entered) - len({*entered}),
        }


@contextmanager
def walked() -> Iterator[Walk]:
    """Record the files of the functions that are called meanwhile; no module may be loaded."""
    walk, seen = Walk([]), set[str]()

    def called(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or name in seen:
            return
        seen.add(name)
        path = Path(name)
        if path.is_relative_to(ROOT) and (file := path.relative_to(ROOT)).parts[0] in PROGRAMS:
            assert frame.f_code.co_name != "<module>", file
            walk.files.append(file)

    sys.setprofile(called)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def worse(name: str, walk: Walk) -> list[str]:
    """Return the figures of a walk that are above those of the README, which only fall."""
    text = (ROOT / "reconciler" / "README.md").read_text()
    [row] = re.findall(rf"^\| {name}[^|]*" + r"\| (\d+) " * 4 + r"\|$", text, re.M)
    found = zip(walk.figures.items(), map(int, row), strict=True)
    return [
        f"{name}: {figure} {count}, not {most}" for (figure, count), most in found if count > most
    ]


def test_a_plan_and_an_apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One permission claim more in the files; a run before loads the modules."""
    found = dict[str, Walk]()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        stack = AsyncExitStack()
        scene = runner.run(_applied(stack, tmp_path))

        def run(name: str, *more: str, claims: str) -> None:
            scene.fleet.claims = claims
            scene.fleet.write()
            where = ("--kubeconfig", str(scene.kubeconfig))
            assert main.run([name, str(scene.fleet.folder), *where, *more]) == 0, (
                capsys.readouterr()
            )

        for name, *more in (["plan"], ["apply", "--auto-approve"]):
            run(name, *more, claims=", claims: []")
            with walked() as walk:
                run(name, *more, claims=CLAIMS)
            found[name] = walk
        runner.run(stack.aclose())
    assert [worse(name, walk) for name, walk in found.items()] == [[], []]


async def _applied(stack: AsyncExitStack, folder: Path) -> FleetScene:
    plane, app, _ = await stack.enter_async_context(model_clusters(folder))
    place = folder / "fleet"
    place.mkdir()
    await plane.cluster.create(build(NAMESPACE, "test-f1"), NAMESPACE, manager="tests")
    staging = staged(plane, app, namespace="test-f1", mode=Mode.DIRECT, folder=place)
    scene = await stack.enter_async_context(staging)
    async with scene.peers():
        await Runs(scene).finish()
    return scene


async def test_a_claim_that_changes(scene: Scene) -> None:
    """Until its copy is patched."""
    here, _ = sides(scene)
    async with scene.backend(), konnector(scene.app.connection) as made:
        await scene.bound()
        for size in ("1Gi", "2Gi", "3Gi"):  # the first ones load modules
            await here.make(spec={"size": size})
            await settled(made)
        patched = asyncio.Event()
        model_of(scene.plane).store.follow(
            lambda one: patched.set() if get_text(one.last, "spec", "size") == "4Gi" else None
        )
        with walked() as walk:
            await here.patch({"spec": {"size": "4Gi"}})
            await patched.wait()
    assert worse("a claim", walk) == []
