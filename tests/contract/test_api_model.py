"""The model of an API server proves itself on a real one: same calls, same answers."""

import difflib
import json
import os
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.errors import AlreadyExists, NotServed, Rejected
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from tests.kit.api_model import ApiModel
from tests.kit.wire import Wires
from tests.support.clusters import LiveCluster
from tests.support.conformance import GADGET, KINDS, WIDGET, Operations, Player, crd_of, namespaced
from tests.support.eventually import eventually
from tests.support.observing import established

SEEDS = range(int(os.environ.get("SEEDS", "1")))
OPERATIONS = 300


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[Cluster]:
    wires = Wires({"http://model": ApiModel()})
    with wires.plugged():
        async with KubeCluster(Connection("control-plane/model", "http://model")) as cluster:
            await _defined(cluster)
            yield cluster


@pytest.fixture(scope="module")
async def real(control_plane: LiveCluster) -> Cluster:
    await _defined(control_plane.cluster)
    return control_plane.cluster


async def _defined(cluster: Cluster) -> None:
    for kind in (WIDGET, GADGET):
        try:
            await cluster.create(crd_of(kind, status=kind == WIDGET), CRD, manager="tests")
        except AlreadyExists:
            continue
        await established(cluster, kind)


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_operations(real: Cluster, model: Cluster, seed: int) -> None:
    """Answers, objects and events are the same after each of hundreds of calls."""
    name = f"test-{seed}-{uuid.uuid4().hex[:8]}"
    operations = Operations(random.Random(seed))
    async with namespaced(real, name) as one, namespaced(model, name) as other:
        since = [await _versions(player) for player in (one, other)]
        for number in range(OPERATIONS):
            operation = operations.operation()
            was, answer = await one.play(operation), await other.play(operation)
            if answer != was:
                pytest.fail(_difference(number, operation, was, answer), pytrace=False)
            if operation.verb == "delete" or operation.body.get("metadata", {}).get(
                "ownerReferences"
            ):
                await _same_state(one, other)
        await _same_state(one, other)
        for kind in KINDS:
            theirs = await other.events(kind, since[1][kind], 0)
            count = sum(map(len, theirs.values()))
            ours = await one.events(kind, since[0][kind], count)
            for key in {*ours, *theirs}:
                was, answer = ours.get(key, []), theirs.get(key, [])
                if answer != was:
                    why = _difference(OPERATIONS, f"events of {kind} {key}", was, answer)
                    pytest.fail(why, pytrace=False)


FIXED = {
    "scope": {"scope": "Cluster"},
    "kind": {"names": {"kind": "Other"}},
    "plural": {"names": {"plural": "others"}},
    "group": {"group": "other.klutchctl.test"},
    "scope and kind": {"scope": "Cluster", "names": {"kind": "Other"}},
    "list kind": {"names": {"listKind": "Others"}},
    "short names": {"names": {"shortNames": ["oth"]}},
}


@pytest.mark.parametrize("spec", FIXED.values(), ids=FIXED)
async def test_fields_of_a_crd_that_never_change(real: Cluster, model: Cluster, spec: Any) -> None:
    answers = [await _patched(cluster, spec) for cluster in (real, model)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", [GADGET, CRD], ids=lambda kind: kind.plural)
async def test_a_kind_is_served_in_its_scope_alone(
    real: Cluster, model: Cluster, kind: Kind
) -> None:
    other = replace(kind, namespaced=not kind.namespaced)
    for cluster in (real, model):
        with pytest.raises(NotServed):
            await cluster.get(Ref(cluster.name, other, "default" * other.namespaced, "x"))


async def _patched(cluster: Cluster, spec: Any) -> Any:
    ref = Ref(cluster.name, CRD, "", GADGET.resource)
    try:
        return (await cluster.merge_patch(ref, {"spec": spec}, manager="tests"))["spec"]
    except Rejected as error:
        return str(error).partition(": ")[2]  # without the name of the cluster


async def _versions(player: Player) -> dict[Any, str]:
    return {kind: (await player.cluster.list(kind)).resource_version for kind in KINDS}


async def _same_state(one: Player, other: Player) -> None:
    wanted = await other.state(*KINDS)

    async def is_same() -> bool:
        found = await one.state(*KINDS)
        assert found == wanted, _difference(0, "the state", found, wanted)
        return True

    await eventually(is_same, within=10)


def _difference(number: int, operation: Any, real: Any, model: Any) -> str:
    lines = [f"after operation {number}, {operation}, (real, model):"]
    return "\n".join([*lines, *_differing(real, model, "")])


def _differing(real: Any, model: Any, at: str) -> Iterator[str]:
    if isinstance(real, dict) and isinstance(model, dict):
        for key in {**real, **model}:
            yield from _differing(real.get(key, "absent"), model.get(key, "absent"), f"{at} {key}")
    elif isinstance(real, list | tuple) and type(real) is type(model) and len(real) == len(model):
        for index, pair in enumerate(zip(real, model, strict=True)):
            yield from _differing(*pair, f"{at} {index}")
    elif isinstance(real, list) and isinstance(model, list):
        was, is_ = ([json.dumps(one, sort_keys=True) for one in side] for side in (real, model))
        yield from (f"{at}: {line}" for line in difflib.ndiff(was, is_) if line[0] in "+-")
    elif real != model:
        yield f"{at}: {real!r} != {model!r}"
