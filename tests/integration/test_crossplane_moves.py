"""The move from claims to composite resources, by the commands of the page, on the whole road."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template
from typing import Any, Final

import psutil
import pytest
import yaml

import klutchctl as package
from klutchctl.sandbox import processes
from klutchctl.sandbox.processes import HEAD
from reconciler.api import CLUSTER_BINDING
from reconciler.core import conditions, names
from reconciler.core.manifest import get_text, name_of, uid_of
from reconciler.core.refs import COMPOSITE_DEFINITION, COMPOSITION, Kind, Ref
from tests.demo import developer
from tests.demo.developer import BINDING, INSTANCE, OPERATORS_BINDING, OPERATORS_INSTANCE, Developer
from tests.demo.place import FLEET, OTHER, SHOP, TEAM, home_of, space_of
from tests.demo.telling import klutchctl
from tests.integration.test_road import LONG, NAME, OBJECT, Road, delete, has, provided, road
from tests.support.eventually import eventually

__all__ = ["road"]
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="the book has it run kubectl"),
]
SECOND: Final = Kind(
    COMPOSITE_DEFINITION.group, "v2", COMPOSITE_DEFINITION.kind, COMPOSITE_DEFINITION.plural, False
)
# Crossplane is a process here. It starts again as it was: an `up` would apply the example anew.
SHELL: Final = """\
kubectl() {
  case "$*" in
    *"scale deployment crossplane"*0) kill "$CROSSPLANE" ;;
    *"wait --for=delete pod"*) ;;
    *"scale deployment crossplane"*1) "$PYTHON" -c "$AGAIN" "$CROSSPLANE" ;;
    *) command kubectl --context=cp-eu "$@" ;;
  esac
}
"""
MOVED: Final = Path(__file__).parents[1] / "support" / "moved.yaml"
NAMES: Final = {SHOP: ("moving-0",), OTHER: ("moving-0", "moving-1", "moving-2")}


def blocks(way: str) -> Sequence[str]:
    """Return the commands of a way, A or B, as the book has them."""
    page = Path(package.__file__).parent.joinpath("docs/install/crossplane-claims.md").read_text()
    part = page.partition(f"## Way {way}: ")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", part, re.DOTALL)


async def run(road: Road, commands: str, kind: Kind) -> None:
    (crossplane,) = [
        one.pid
        for one in processes.observe(road.place.layout)
        if one.identity == processes.identity(road.place.layout, "crossplane")
    ]
    found = psutil.Process(crossplane)
    marks = {name: text for name, text in found.environ().items() if name != HEAD}
    again = f"""\
import subprocess
subprocess.Popen({found.cmdline()}, env={marks}, cwd={found.cwd()!r},
    stdin=-3, stdout=-3, stderr=-3, start_new_session=True)
"""
    environ = os.environ | {
        "KUBECONFIG": os.fspath(road.place.layout.kubeconfig),
        "CROSSPLANE": str(crossplane),
        "PYTHON": sys.executable,
        "AGAIN": again,
    }
    text = SHELL + commands.replace("servicebindings.anynines.com", f"{kind.plural}.{kind.group}")
    shell = await asyncio.create_subprocess_exec(
        "bash", "-euxo", "pipefail", "-c", text, env=environ
    )
    assert await shell.wait() == 0


def of_example(kind: Kind) -> tuple[Any, Any]:
    path = Path(FLEET, "services", "crossplane", f"{kind.plural}.yaml")
    definition, composition = yaml.safe_load_all(path.read_text("utf-8"))
    return definition, composition


async def keep_what_is_composed(road: Road, kind: Kind, managed: Kind) -> None:
    """Step 1."""
    _, composition = of_example(kind)
    for one in composition["spec"]["pipeline"][0]["input"]["resources"]:
        one["base"]["spec"]["deletionPolicy"] = "Orphan"
    await road.plane.apply(composition, COMPOSITION, manager="klutchctl", force=True)

    async def all_show_it() -> bool:
        found = [
            get_text(one, "spec", "deletionPolicy")
            for one in (await road.plane.list(OBJECT)).items
            if get_text(one, "spec", "forProvider", "manifest", "kind") == managed.kind
        ]
        return {*found} == {"Orphan"}

    await eventually(all_show_it, within=LONG)


async def define_anew(road: Road, kind: Kind, managed: Kind) -> None:
    """Step 2: what has the schema of the claims, and the same objects of the operator."""
    old, _ = of_example(kind)
    for version in old["spec"]["versions"]:  # its rules name fields of claims
        version["schema"]["openAPIV3Schema"]["properties"]["spec"].pop(
            "x-kubernetes-validations", None
        )
    words = {"version": managed.api_version, "managed": managed.kind}
    text = Template(MOVED.read_text()).substitute(kind=kind.kind, plural=kind.plural, **words)
    definition, composition = yaml.safe_load_all(text)
    definition["spec"]["versions"] = old["spec"]["versions"]
    await road.plane.apply(definition, SECOND, manager="klutchctl", force=True)
    await road.plane.apply(composition, COMPOSITION, manager="klutchctl", force=True)


async def uids(road: Road, *, copies: bool) -> dict[str, str]:
    """Return the uids of claims, of the operator's objects, and of copies."""
    found = {}
    for context in (SHOP, OTHER):
        sides: list[tuple[Any, str, Sequence[Kind]]] = [
            (road.app_cluster(context), TEAM, (INSTANCE, BINDING)),
            (road.plane, home_of(context), (OPERATORS_INSTANCE, OPERATORS_BINDING)),
        ]
        if copies:
            sides.append((road.plane, home_of(context), (INSTANCE, BINDING)))
        for cluster, namespace, kinds in sides:
            for kind in kinds:
                for one in (await cluster.list(kind, namespace=namespace)).items:
                    if name_of(one) in NAMES[context]:
                        found[f"{context} {namespace} {kind} {name_of(one)}"] = uid_of(one)
    return found


@asynccontextmanager
async def moving(road: Road, kind: Kind, managed: Kind, *, copies: bool) -> AsyncIterator[None]:
    """Take steps 1 and 2; after the block all is as it was, Ready by the new composition."""
    before = await uids(road, copies=copies)
    await keep_what_is_composed(road, kind, managed)
    await define_anew(road, kind, managed)
    yield
    for context, claimed in NAMES.items():
        for name in claimed:
            copy = Ref(road.plane.name, kind, home_of(context), name)
            await eventually(lambda: is_moved(road, copy), within=LONG)  # noqa: B023
            await Developer(road.app_cluster(context), name).is_ready(kind)
    assert await uids(road, copies=copies) == before


async def is_moved(road: Road, copy: Ref) -> bool:
    live = await road.plane.get(copy)
    ready = conditions.get(live, "Ready")
    named = get_text(live, "spec", "crossplane", "compositionRef", "name")
    return named.startswith("moved-") and ready is not None and ready.status == "True"


async def test_claims_become_composite_resources_and_no_row_is_lost(road: Road) -> None:
    """With one claim in an app cluster, and three in the other; the last of all."""
    await klutchctl("sandbox", "up", "--name", NAME, "--crossplane=2.4")
    credentials = {}
    for context, claimed in NAMES.items():
        for name in claimed:
            _, credentials[context, name] = await provided(road.app_cluster(context), name)
            await developer.ask(
                credentials[context, name], f"CREATE TABLE t AS SELECT '{name}' AS n"
            )
    count = await road.databases()

    async with moving(road, BINDING, OPERATORS_BINDING, copies=True):
        for commands in blocks("A"):
            await run(road, commands, BINDING)

    async with moving(road, INSTANCE, OPERATORS_INSTANCE, copies=False):
        delete_it, confirm = blocks("B")
        await run(road, delete_it, INSTANCE)
        for context in (SHOP, OTHER):
            await eventually(lambda: is_held(road, context), within=LONG)  # noqa: B023
            await run(road, confirm.replace("SPACE", space_of(context)), INSTANCE)

    assert await road.databases() == count
    for (context, name), known in credentials.items():
        assert await developer.ask(known, "SELECT n FROM t") == [name]
        assert dict(await Developer(road.app_cluster(context), name).credentials()) == known
    for kind in (BINDING, INSTANCE):  # one may go for good
        await delete(road.shop, kind, "moving-0")
    await eventually(lambda: has(road, count - 1), within=LONG)


async def is_held(road: Road, context: str) -> bool:
    ref = Ref(road.plane.name, CLUSTER_BINDING, space_of(context), names.CLUSTER_BINDING)
    said = conditions.get(await road.plane.get(ref), conditions.RECREATION_ALLOWED)
    return said is not None and f"{INSTANCE.plural}.{INSTANCE.group}" in said.message
