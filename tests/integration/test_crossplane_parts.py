"""What a real Crossplane composes is no claim, and nobody reaches its machinery from below.

A Stack is composed of a kind that is bound, of the operator's own, and of a Secret. Each test is
for its claims on 1.20, for those on 2.4, and for it as a composite resource of 2.4.
"""

import asyncio
import copy
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import conditions, keys, manifest, names, refs
from reconciler.core.refs import COMPOSITION, CONFIG_MAP, SECRET, Kind, Ref
from reconciler.kube.client import KubeCluster
from tests.demo import developer
from tests.demo.developer import BINDING, DATABASE, INSTANCE, OPERATORS_INSTANCE, Developer
from tests.demo.place import DIRECT, FLEET, OTHER, TEAM, home_of
from tests.integration.test_road import LONG, Road, delete, gone, has, laid
from tests.support.eventually import eventually
from tests.support.removal import remove

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
HOME: Final = home_of(OTHER)
LATER: Final = 30.0  # seconds; a konnector makes nothing again before ten have passed
STACKS: Final = Path(__file__).parents[1] / "support" / "stacks"
THEIRS: Final = "platforms"
ONE: Final[manifest.Manifest] = {"size": 1}
ABOUT: Final[Mapping[Kind, manifest.Manifest]] = {
    INSTANCE: {"service": "a9s-postgresql14", "plan": "postgresql-single-nano"},
    DATABASE: {"sessions": 5},
    OPERATORS_INSTANCE: {"connections": 5},
}
SPEC: Final = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"


@pytest.fixture(scope="module", params=["1.20", "2.4"])
async def road(programs: object, request: Any, tmp_path_factory: Any) -> AsyncIterator[Road]:
    """Yield the example with Stacks, and with claims on a named Secret instead of all."""
    home: Path = tmp_path_factory.mktemp("parts")
    second = (f"{FLEET}/services/namespaced", f"{STACKS}/composites")
    for one in (FLEET, DIRECT, f"{STACKS}/claims", *(second if request.param == "2.4" else ())):
        shutil.copytree(one, home / FLEET, dirs_exist_ok=True)
    async with laid(home, str(home / FLEET), request.param) as made:
        space = build(refs.NAMESPACE, TEAM)
        await made.other.apply(space, refs.NAMESPACE, manager="dev", force=True)
        await (first := Team(made, "claims")).claim("first")  # its service namespace stays
        await first.is_without("first")
        yield made


class Team:
    """A developer with Stacks in an app cluster, and what is above of them.

    `line`: whether a Stack is a claim of Crossplane, or a composite resource in its namespace.
    """

    def __init__(self, road: Road, line: str) -> None:
        self.road, self.line, self.app, self.plane = road, line, road.other, road.plane
        group, self.is_second = f"{line}.example", line == "composites"
        self.kind = self.composite = Kind(group, "v1", "Stack", "stacks")
        if not self.is_second:
            self.composite = Kind(group, "v1", "XStack", "xstacks", namespaced=False)
        self.part = DATABASE if self.is_second else INSTANCE
        self.parts = {"part": self.part, "own": OPERATORS_INSTANCE, "internal": SECRET}
        file = STACKS / line / "services" / "crossplane" / f"{line}.yaml"
        self.definition, self.composition, _ = yaml.safe_load_all(file.read_text("utf-8"))

    def below(self, kind: Kind, name: str) -> Ref:
        return Ref(self.app.name, kind, TEAM, name)

    def above(self, kind: Kind, name: str) -> Ref:
        return Ref(self.plane.name, kind, HOME if kind.namespaced else "", name)

    async def claim(self, name: str, spec: manifest.Manifest = ONE) -> None:
        made = build(self.kind, name, namespace=TEAM, spec=spec)
        await self.app.create(made, self.kind, manager="dev")
        await Developer(self.app, name).is_ready(self.kind)

    async def make_above(self, kind: Kind, name: str, marks: Marks = UNMARKED, **more: Any) -> Ref:
        ref = self.above(kind, name)
        made = build(kind, name, namespace=ref.namespace, marks=marks, **(more or {"spec": ONE}))
        await self.plane.create(made, kind, manager="platform")
        return ref

    async def is_adopted(self, kind: Kind, name: str) -> bool:
        return keys.BOUND in manifest.annotations_of(
            await self.app.get(self.below(kind, name)) or {}
        )

    async def is_rid_of(self, ref: Ref) -> bool:
        return await self.plane.get(ref) is None

    async def claims(self) -> set[str]:
        kinds = (self.part, OPERATORS_INSTANCE)
        listed = [await self.app.list(one, namespace=TEAM) for one in kinds]
        return {manifest.name_of(one) for of_kind in listed for one in of_kind.items}

    async def composites(self, name: str) -> list[manifest.Manifest]:
        """Return a copy, and the composite resource behind one of a claim."""
        copy = await self.plane.get(self.above(self.kind, name))
        assert copy is not None
        if self.is_second:
            return [copy]
        behind = self.above(self.composite, manifest.get_text(copy, "spec", "resourceRef", "name"))
        return [copy, await self.plane.get(behind) or {}]

    async def composed(self, name: str) -> dict[str, str]:
        refs = [self.above(kind, f"{name}-{part}") for part, kind in self.parts.items()]
        return {
            ref.name: manifest.uid_of(one) for ref in refs if (one := await self.plane.get(ref))
        }

    async def is_without(self, name: str) -> None:
        await delete(self.app, self.kind, name)

        async def nothing_is_left() -> bool:
            copy = self.above(self.kind, name)
            return await self.is_rid_of(copy) and not await self.composed(name)

        await eventually(lambda: gone(self.app, self.kind, name), within=LONG)
        await eventually(nothing_is_left, within=LONG)

    async def keeps(self, name: str, spec: manifest.Manifest) -> bool:
        """Change a Stack in the app cluster, and tell whether its spec is just that."""
        ref = self.below(self.kind, name)
        live = await self.app.merge_patch(ref, {"spec": spec}, manager="dev")
        return manifest.get_map(live, "spec") == spec

    async def has_size(self, name: str, size: int) -> None:
        async def arrived() -> bool:
            found = await self.composites(name)
            return {manifest.get_int(one, "spec", "size") for one in found} == {size}

        await eventually(arrived, within=LONG)


@pytest.fixture(params=["claims", "composites"])
async def team(road: Road, request: Any) -> AsyncIterator[Team]:
    if request.param == "composites" and road.crossplane == "1.20":
        pytest.skip("it has no such kinds")
    yield Team(road, request.param)
    await eventually(lambda: has(road, 0), within=LONG)


async def note(cluster: KubeCluster, ref: Ref, key: str, value: str | None) -> None:
    await cluster.merge_patch(ref, {"metadata": {"annotations": {key: value}}}, manager="platform")


async def test_what_is_composed_is_no_claim_and_goes_with_its_stack(team: Team) -> None:
    await team.claim("web")
    loose = {"loose": team.part, "plain": OPERATORS_INSTANCE}
    for name, kind in loose.items():  # those that nothing controls are adopted, as ever
        await team.make_above(kind, name, spec=ABOUT[kind])
        await eventually(partial(team.is_adopted, kind, name), within=LONG)
    assert len(await team.composed("web")) == len(team.parts)
    assert await team.claims() == {*loose}
    await team.is_without("web")
    for name, kind in loose.items():
        await delete(team.app, kind, name)
        await eventually(partial(gone, team.app, kind, name), within=LONG)
    assert await team.claims() == set()


@pytest.mark.parametrize("team", ["composites"], indirect=True)
async def test_a_part_is_a_claim_where_the_template_says_so(team: Team) -> None:
    kind, part = team.part, "open-part"
    template = Ref(team.plane.name, API_SERVICE_EXPORT_TEMPLATE, "crossplane-system", kind.plural)
    await note(team.plane, template, keys.ADOPT_CONTROLLED, "true")
    await team.claim("open")
    await eventually(partial(team.is_adopted, kind, part), within=LONG)
    assert await team.claims() == {part}
    await team.is_without("open")
    await note(team.plane, template, keys.ADOPT_CONTROLLED, None)
    await delete(team.app, kind, part)
    await eventually(partial(gone, team.app, kind, part), within=LONG)


async def test_what_is_adopted_late_follows_a_new_revision(team: Team) -> None:
    kind = team.kind
    team.road.kill(f"konnector:{OTHER}")
    await team.make_above(kind, "late")
    await eventually(lambda: all_say(team, "late", "Ready"), within=LONG)
    await team.road.repair()
    await eventually(partial(team.is_adopted, kind, "late"), within=LONG)
    spec = str(manifest.get_map(await team.app.get(team.below(kind, "late")), "spec"))
    assert not [one for one in ("resourceRef", "RevisionRef") if one in spec]
    before = await team.composites("late")
    more = with_more(team.composition)
    await team.plane.apply(more, COMPOSITION, manager="klutchctl", force=True)
    later = team.above(CONFIG_MAP, "late-later")
    await eventually(lambda: team.plane.get(later), within=LONG)
    await asyncio.sleep(LATER)
    assert await team.plane.get(later) is not None
    after = await team.composites("late")
    for then, now in zip(before, after, strict=True):
        assert (generation(now) - generation(then)) in range(4)
        assert revision(now) != revision(then)
    assert team.road.crossplane == "1.20" or await all_say(team, "late", "Responsive")
    await team.plane.apply(team.composition, COMPOSITION, manager="klutchctl", force=True)
    await team.is_without("late")


def generation(live: manifest.Manifest) -> int:
    return manifest.get_int(live, "metadata", "generation") or 0


def with_more(composition: Any) -> manifest.Manifest:
    made: dict[str, Any] = copy.deepcopy(composition)
    resources = made["spec"]["pipeline"][0]["input"]["resources"]
    more = yaml.safe_dump(resources[-1]).replace("Secret", "ConfigMap")
    resources.append(yaml.safe_load(more.replace("internal", "later")))
    return made


def revision(live: manifest.Manifest) -> str:
    spec = manifest.get_map(live, "spec")
    return manifest.get_text(
        manifest.get_map(spec, "crossplane") or spec, "compositionRevisionRef", "name"
    )


async def all_say(team: Team, name: str, condition: str) -> bool:
    said = conditions.get((await team.composites(name))[-1], condition)
    return said is not None and said.status == conditions.TRUE


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="it has to wait for a claim")
async def test_no_reference_from_an_app_cluster_changes_anything_above(team: Team) -> None:
    kept = Marks(annotations={keys.ADOPT: keys.NOT_ADOPTED})
    theirs = [
        await team.make_above(CONFIG_MAP, THEIRS, data={"a": "b"}),
        await team.make_above(team.composite, THEIRS, kept),
    ]
    uids = [manifest.uid_of(await team.plane.get(one) or {}) for one in theirs]
    await team.claim("steady")
    before, parts = await team.composites("steady"), await team.composed("steady")
    attempts = attempts_of(team)
    for size, spec in enumerate(attempts, 2):
        assert not await team.keeps("steady", {**spec, "size": size})
        await team.has_size("steady", size)
    # The same of an app cluster that keeps its CRD from pruning, in edits that nobody carries.
    team.road.kill(f"konnector:{OTHER}")
    crd = Ref(team.app.name, refs.CRD, "", team.kind.resource)
    opened = [SPEC, f"{SPEC}/properties/crossplane"][: 1 + team.is_second]
    ways = [f"{one}/x-kubernetes-preserve-unknown-fields" for one in opened]
    added: list[manifest.Manifest] = [{"op": "add", "path": one, "value": True} for one in ways]
    await team.app.json_patch(crd, added, manager="dev")
    every: manifest.Manifest = {key: one for spec in attempts for key, one in spec.items()}
    for size in range(90, 102):
        last = {**every, "size": size}
        await eventually(partial(team.keeps, "steady", last), within=LONG)
    await team.road.repair()
    await team.has_size("steady", size)
    place = (*team.road.place.reach, f"--context={OTHER}", f"-n={TEAM}")
    until = ("--for=condition=Ready", "--timeout=60s", f"{team.kind.resource}/steady")
    waiting = await asyncio.create_subprocess_exec("kubectl", *place, "wait", *until)
    assert await waiting.wait() == 0
    await team.claim("taker", last)

    for then, now in zip(before, await team.composites("steady"), strict=True):
        assert manifest.put(now, 1, "spec", "size")["spec"] == then["spec"]
        assert generation(now) == generation(then) + len(attempts) + 1
    assert await team.composed("steady") == parts
    assert len(await team.composed("taker")) == len(team.parts)
    await team.is_without("steady")
    await team.is_without("taker")
    found = [await team.plane.get(one) or {} for one in theirs]
    assert [manifest.uid_of(one) for one in found if not manifest.is_deleting(one)] == uids
    assert not manifest.get_map(found[-1], "spec", "claimRef")
    for one in theirs:
        await remove(team.plane, one)


def attempts_of(team: Team) -> list[manifest.Manifest]:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": THEIRS, "namespace": HOME}
    stack = {"apiVersion": team.kind.api_version, "kind": team.composite.kind, "name": THEIRS}
    found: list[manifest.Manifest] = [{"resourceRef": stack}, {"resourceRefs": [config]}]
    if team.is_second:
        found += [{"crossplane": {"resourceRefs": one}} for one in ([], [config], [stack])]
    return found


async def test_secrets_of_another_kind_stay_above(team: Team) -> None:
    await team.claim("wide")
    assert "wide-internal" in await team.composed("wide")
    one = Developer(team.app, "named")
    await (one.claim_a_composite_resource if team.is_second else one.claim_a_database)()
    assert await developer.ask(await one.credentials(), "SELECT 1") == ["1"]
    assert "wide-internal" not in await one.secrets()
    await one.is_rid_of(*([DATABASE] if team.is_second else [BINDING, INSTANCE]))
    await team.is_without("wide")


async def test_nothing_is_made_again_while_its_kind_goes(team: Team) -> None:
    """With the only claim of a kind in its space, whose copy is to be made again. The last."""
    kind, second = team.kind, team.is_second
    binding = Ref(team.app.name, API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, kind.resource)
    await note(team.app, binding, keys.RECREATE, keys.RECREATE_ALWAYS)
    await team.claim("lone")
    count, lone = await team.road.databases(), team.above(kind, "lone")
    # Another tenant's takes longer to go, and the kind is there as long.
    slow = Ref(team.plane.name, kind, "default", "slow")
    made = manifest.put(
        build(kind, "slow", namespace="default", spec=ONE),
        ["x.example/hold"],
        "metadata",
        "finalizers",
    )
    await team.plane.create(made, kind, manager="platform")
    definition = Ref(team.plane.name, refs.COMPOSITE_DEFINITION, "", team.composite.resource)
    await remove(team.plane, definition)
    if second:  # of those, a definition deletes none
        await remove(team.plane, lone)
        await remove(team.plane, slow)
    await eventually(partial(team.is_rid_of, lone), within=LONG)
    await eventually(partial(waits, team, "lone"), within=LONG)
    until = time.monotonic() + LATER
    while time.monotonic() < until:
        assert await team.is_rid_of(lone)
        await asyncio.sleep(0.1)
    for part, of in team.parts.items():  # a busy Crossplane takes longer
        await eventually(partial(team.is_rid_of, team.above(of, f"lone-{part}")), within=LONG)
    await team.plane.merge_patch(slow, {"metadata": {"finalizers": None}}, manager="platform")
    await eventually(partial(team.is_rid_of, definition), within=LONG)
    await eventually(lambda: has(team.road, 0), within=LONG)
    # Once the kind is there again, what was asked for is done.
    by = replace(refs.COMPOSITE_DEFINITION, version="v2" if second else "v1")
    await team.plane.apply(team.definition, by, manager="klutchctl", force=True)
    await eventually(lambda: has(team.road, count), within=LONG)
    await Developer(team.app, "lone").is_ready(kind)
    await note(team.app, binding, keys.RECREATE, None)
    await team.is_without("lone")


async def waits(team: Team, name: str) -> bool:
    said = conditions.get(await team.app.get(team.below(team.kind, name)), "Synced")
    going = f"CompositeResourceDefinition {team.composite.resource} is being deleted"
    return said is not None and said.reason == "RecreationHeld" and going in said.message
