"""No field of what people write is unseen by reviewers, also none that comes later."""

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from reconciler.core.errors import Origin
from reconciler.fleet.load import load_valid_part
from reconciler.fleet.values import (
    Access,
    AppCluster,
    Claim,
    ControlPlane,
    DeletionPolicy,
    Konnector,
    Mode,
    Owner,
    Rbac,
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
    found = load_valid_part(tree(), [])
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


PARTS: dict[str, tuple[Any, Any]] = {
    "access": (fleets.app_cluster(), Access()),
    "konnector": (fleets.app_cluster(), Konnector()),
    "claims": (fleets.unit(), fleets.claim()),
}
CHANGED: dict[str, Any] = {
    "secret": ("name", "key"),
    "in_cluster": True,
    "deploy": True,
    "rbac": Rbac.FULL,
    "overrides": {"a": 1},
    "owner": Owner.CONSUMER,
    "names": ("a",),
    "namespaces": ("a",),
    "labels": ((("a", "b"),),),
    "accepted": False,
}
PARTS_FIELDS = [(name, one.name) for name in PARTS for one in fields(PARTS[name][1])]


def with_part(name, part):
    thing, _ = PARTS[name]
    return loaded(replace(thing, **{name: (part,) if name == "claims" else part}))


@pytest.mark.parametrize(
    ("name", "field"), [one for one in PARTS_FIELDS if one != ("claims", "origin")]
)
def test_a_change_within_a_field_is_an_edit(name, field):
    part = PARTS[name][1]
    other = replace(part, **{field: CHANGED.get(field, "other")})
    (edit,) = edits(with_part(name, part), with_part(name, other))
    assert edit.fields


@dataclass(frozen=True)
class LaterClaim(Claim):
    reaches_more: str = ""


def test_a_claim_that_may_reach_further_by_a_later_field_decides_over_rights():
    known = fleets.claim()
    values = {field.name: getattr(known, field.name) for field in fields(known)}
    before, after = LaterClaim(**values), LaterClaim(**values, reaches_more="anything")
    (edit,) = edits(with_part("claims", before), with_part("claims", after))
    assert edit.effect is Effect.RIGHTS
    assert "reachesMore anything" in str(edit.fields[0].after)


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
