"""No field of what people write is unseen by reviewers, also none that comes later."""

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from reconciler.core.origin import Origin
from reconciler.fleet.load import load_what_is_right
from reconciler.fleet.values import (
    Access,
    AppCluster,
    ControlPlane,
    DeletionPolicy,
    Konnector,
    Mode,
    Unit,
    UnitKey,
)
from reconciler.reports.pr_diff import Effect, edits
from tests.support import fleets
from tests.support.fleet_texts import tree

OTHER: dict[str, Any] = {
    "access": Access(context="other"),
    "adopt": "other",
    "mode": Mode.APP_CLUSTER_BINDING,
    "labels": {"a": "b"},
    "konnector": Konnector(deploy=True),
    "app_cluster_binding": ("other", "other"),
    "parameters": {"a": 1},
    "template_namespaces": ("klutch-bind",),
    "claims": (fleets.claim(names=("a",)),),
    "deletion_policy": DeletionPolicy.BLOCK,
    "depends_on": (UnitKey("shop", "x", "ys"),),
}
THINGS: dict[Any, tuple[Any, set[str]]] = {
    AppCluster: (fleets.app_cluster(), {"suspended"}),
    ControlPlane: (fleets.control_plane(), {"pretty_name"}),
    Unit: (
        fleets.unit(),
        {"binding", "template", "claims", "deletion_policy", "depends_on", "labels"},
    ),
}
FIELDS = [
    (kind, field.name)
    for kind in THINGS
    for field in fields(kind)
    if field.name not in {"name", "key", "origin"}
]


def loaded(thing):
    found = load_what_is_right(tree(), [])
    assert found is not None
    fleet = found.fleet
    match thing:
        case AppCluster():
            fleet = replace(fleet, clusters={thing.name: thing})
        case ControlPlane():
            fleet = replace(fleet, control_planes={thing.name: thing})
        case _:
            fleet = replace(fleet, units={thing.key: thing})
    return replace(found, fleet=fleet)


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_change_of_each_field_is_an_edit(kind, field):
    thing, harmless = THINGS[kind]
    changed = replace(thing, **{field: OTHER.get(field, "other")})
    (edit,) = edits(loaded(thing), loaded(changed))
    assert edit.fields
    if field in harmless:
        assert edit.effect is Effect.CHANGE
    else:
        assert edit.effect is (Effect.REPLACE if field == "parameters" else Effect.RIGHTS)


@dataclass(frozen=True)
class LaterCluster(AppCluster):
    trusts_more: str = ""


@dataclass(frozen=True)
class LaterUnit(Unit):
    trusts_more: str = ""


LATER: dict[str, tuple[Any, Any]] = {
    "cluster": (LaterCluster, AppCluster),
    "unit": (LaterUnit, Unit),
}


@pytest.mark.parametrize(("later", "kind"), LATER.values(), ids=LATER.keys())
def test_a_field_that_comes_later_decides_over_rights(later, kind):
    thing, _ = THINGS[kind]
    values = {field.name: getattr(thing, field.name) for field in fields(thing)}
    before, after = later(**values), later(**values, trusts_more="anybody")
    (edit,) = edits(loaded(before), loaded(after))
    assert edit.effect is Effect.RIGHTS
    assert [one.path for one in edit.fields] == ["/trustsMore"]


def test_a_place_is_no_field():
    thing = fleets.app_cluster()
    assert edits(loaded(thing), loaded(replace(thing, origin=Origin("x.yaml", 9, 9)))) == ()
