"""What a pull request changes in the files, how grave it is, and that no field is unseen."""

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin, Problem
from reconciler.fleet import values
from reconciler.fleet.load import load_valid_part
from reconciler.reports.pr_diff import Edit, Effect, edits
from tests.support import fleets
from tests.support.fleet_texts import (
    BINDING,
    CLUSTER,
    CONTROL_PLANE,
    POLICY,
    TEMPLATE,
    document,
    tree,
)


def loaded(changes):
    problems: list[Problem] = []
    found = load_valid_part(tree(changes), problems)
    assert problems == []
    assert found is not None
    return found


def found(base, head):
    """Return the edits as texts, with their differences below them."""
    return [line for edit in edits(loaded(base), loaded(head)) for line in lines(edit)]


def lines(edit: Edit):
    words = (edit.effect, edit.kind, edit.name, edit.resource, *edit.clusters)
    yield " ".join(filter(None, words))
    for one in edit.fields:
        yield f"  {one.path} {one.before!r} {one.after!r}"


def binding(more, name="db"):
    return document("Binding", name, f"{{template: pg, clusters: {{names: [shop]}}, {more}}}")


def claims(*names, **more):
    state = "".join(f", {key}: {value}" for key, value in more.items())
    listed = ", ".join(names)
    return (
        f"claims: [{{resource: secrets, version: v1, owner: Provider, names: [{listed}]{state}}}]"
    )


DB = "bindings/db.yaml"
ALL = "{resource: secrets, version: v1, owner: Provider, names: ['*']}"
OPEN = {
    "templates/pg.yaml": TEMPLATE.replace("claims: [", f"claims: [{ALL}, ").replace(
        "names: [a, b]", "names: ['*'], namespaces: [kube-system]"
    )
}
SECRETS = "/claims/secrets v1 of Provider"
PLAIN = {DB: binding("deletionPolicy: Release")}
SECOND = CLUSTER.replace("shop", "mall")
UNITS = {
    "nothing": (PLAIN, PLAIN),
    "other places": (PLAIN, {DB: f"# one line more\n{PLAIN[DB]}"}),
    "another order of claims": ({DB: binding(claims("a", "b"))}, {DB: binding(claims("b", "a"))}),
    "a Binding more": ({DB: None}, {}),
    "a Binding less": ({}, {DB: None}),
    "a Binding less that keeps": ({DB: binding("deletionPolicy: Block")}, {DB: None}),
    "a Binding less that deletes": ({DB: binding("deletionPolicy: Delete")}, {DB: None}),
    "another name": (PLAIN, {DB: binding("deletionPolicy: Release", "new")}),
    "other parameters": (
        {DB: binding("parameters: {size: 1, zones: [a, b]}")},
        {DB: binding("parameters: {size: 2, zones: [x, a, b]}")},
    ),
    "another deletionPolicy": (PLAIN, {DB: binding("deletionPolicy: Delete")}),
    "a wider claim": ({DB: binding(claims("a"))}, {DB: binding(claims("a", "b"))}),
    "a narrower claim": ({DB: binding(claims("a", "b"))}, {DB: binding(claims("a"))}),
    "a claim that is accepted now": (
        {DB: binding(claims("a", state="Rejected"))},
        {DB: binding(claims("a"))},
    ),
    "a claim that asks for fewer labels": (
        {DB: binding(claims("a", labels="{a: b, c: d}"))},
        {DB: binding(claims("a", labels="{a: b}"))},
    ),
    "a claim that opens a namespace of the cluster itself": (
        {**OPEN, DB: binding(claims("a"))},
        {**OPEN, DB: binding(claims("a", namespaces="[kube-system]"))},
    ),
    "a claim on objects in no namespace, then in all": (
        {DB: binding(claims("a", namespaces="[]"))},
        {DB: binding(claims("a"))},
    ),
    "a claim more than none": ({DB: binding("claims: []")}, {DB: binding(claims("a"))}),
    "a wider claim and other parameters": (
        {DB: binding(f"{claims('a')}, parameters: {{size: 1}}")},
        {DB: binding(f"{claims('b')}, parameters: {{size: 2}}")},
    ),
    "alike in several clusters": (
        {"clusters/mall.yaml": SECOND},
        {"clusters/mall.yaml": SECOND, DB: None},
    ),
    "a cluster more that it selects": ({}, {"clusters/mall.yaml": SECOND}),
}


def fleet(prune, name="acme"):
    return {"fleet.yaml": document("Fleet", name, f"{{include: ['*/*.yaml'], prune: {prune}}}")}


def shop(more, labels="{env: prod}"):
    spec = f"{{access: {{kubeconfigContext: shop}}, controlPlane: eu, {more}}}"
    return {"clusters/shop.yaml": document("Cluster", "shop", spec, labels=labels)}


CA = "-----BEGIN CERTIFICATE-----"
TEAM = {"policies/p.yaml": POLICY}
DOCUMENTS = {
    "a budget": (fleet("{maxDeletes: 10}"), fleet("{maxDeletes: 20}")),
    "the name of the fleet": ({}, fleet("{}", "other")),
    "access to a cluster": (
        {},
        {"clusters/shop.yaml": CLUSTER.replace("Context: shop", "Context: bank")},
    ),
    "labels of a cluster": ({}, shop("suspend: {reason: x}", "{env: prod, a: b}")),
    "a cluster is suspended": ({}, shop("suspend: {reason: moving}")),
    "the rights of a konnector": (
        shop("konnector: {rbac: Minimal}"),
        shop("konnector: {rbac: Full}"),
    ),
    "where a control plane is": (
        {},
        {
            "planes/eu.yaml": CONTROL_PLANE.replace(
                "cp}}", "cp}, endpoint: 'https://x.example', prettyName: X}"
            )
        },
    ),
    "what a control plane is called": (
        {},
        {"planes/eu.yaml": CONTROL_PLANE.replace("cp}}", "cp}, prettyName: X}")},
    ),
    "a Policy more": ({}, TEAM),
    "a Policy less": (TEAM, {}),
    "what a Policy allows": (
        TEAM,
        {
            "policies/p.yaml": POLICY.replace("env: prod", "team: a"),
            **shop("", "{env: prod, team: a}"),
        },
    ),
    "a ceiling": (
        {},
        {
            "templates/pg.yaml": TEMPLATE.replace("[a, b]", "[a, b, c]"),
            DB: binding(claims("a", "b")),
        },
    ),
    "a Template more": ({}, {"templates/x.yaml": TEMPLATE.replace("name: pg", "name: x")}),
    "a Template less": ({"templates/x.yaml": TEMPLATE.replace("name: pg", "name: x")}, {}),
}


@pytest.mark.parametrize("cases", [UNITS, DOCUMENTS], ids=["units", "documents"])
def test_what_is_reported_of_a_change(cases, request, golden):
    lines = []
    for name, (base, head) in cases.items():
        before = {DB: binding(claims("a", "b")), **base} if head.get(DB) and not base else base
        lines += [name, *(f"  {line}" for line in found(before, head))]
    golden("".join(f"{line}\n" for line in lines), f"pr-diff.{request.node.callspec.id}.txt")


LEAVING = {"Release": "release", "Delete": "delete", "Block": "block"}


@pytest.mark.parametrize(("policy", "effect"), LEAVING.items())
def test_a_cluster_leaves_as_the_fleet_says(policy, effect):
    before = {"clusters/mall.yaml": SECOND.replace("env: prod", "env: test")}
    prune = fleet(f"{{onClusterLeave: {policy}}}")
    assert found({**before, **prune}, prune) == [f"{effect} Cluster mall"]


def test_the_gravest_come_first():
    base = {
        DB: binding(f"deletionPolicy: Delete, {claims('a')}"),
        "bindings/x.yaml": document(
            "Binding",
            "x",
            "{resources: [{group: g, resource: xs}], clusters: {names: [shop]},"
            " parameters: {a: 1}}",
        ),
        "clusters/mall.yaml": SECOND,
    }
    head = {
        DB: None,
        "bindings/x.yaml": base["bindings/x.yaml"].replace("a: 1", "a: 2"),
        "bindings/new.yaml": BINDING.replace("name: db", "name: new").replace("env: prod", "a: b"),
        "clusters/mall.yaml": SECOND.replace("env: prod", "a: b"),
        "policies/p.yaml": document("Policy", "team", "{paths: ['elsewhere/*']}"),
    }
    effects = [one.effect for one in edits(loaded(base), loaded(head))]
    assert effects == sorted(effects, key=list(Effect).index)
    assert effects[:2] == [Effect.DELETE, Effect.REPLACE]
    assert Effect.RIGHTS in effects
    assert effects[-1] is Effect.ADD


def test_a_list_that_is_only_longer_is_reported_whole():
    base = {DB: binding("parameters: {zones: [a]}")}
    (edit,) = edits(loaded(base), loaded({DB: binding("parameters: {zones: [a, a]}")}))
    (field,) = edit.fields
    assert field == FieldChange("/parameters/zones", None, None)
    assert (field.before, field.after) == (["a"], ["a", "a"])


OTHER: dict[str, Any] = {
    "access": values.Access(context="other"),
    "adopt": "other",
    "mode": values.Mode.APP_CLUSTER_BINDING,
    "labels": {"a": "b"},
    "konnector": values.Konnector(deploy=True),
    "app_cluster_binding": ("other", "other"),
    "parameters": {"a": 1},
    "template_namespaces": ("klutch-bind",),
    "claims": (fleets.claim(names=("a",)),),
    "deletion_policy": values.DeletionPolicy.BLOCK,
    "depends_on": (values.UnitKey("shop", "x", "ys"),),
}
THINGS: dict[Any, tuple[Any, set[str]]] = {
    values.AppCluster: (fleets.app_cluster(), {"suspended"}),
    values.ControlPlane: (fleets.control_plane(), {"pretty_name"}),
    values.Unit: (
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


def loaded_of(thing):
    found = load_valid_part(tree(), [])
    assert found is not None
    fleet = found.fleet
    match thing:
        case values.AppCluster():
            fleet = replace(fleet, clusters={thing.name: thing})
        case values.ControlPlane():
            fleet = replace(fleet, control_planes={thing.name: thing})
        case _:
            fleet = replace(fleet, units={thing.key: thing})
    return replace(found, fleet=fleet)


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_change_of_each_field_is_an_edit(kind, field):
    thing, harmless = THINGS[kind]
    changed = replace(thing, **{field: OTHER.get(field, "other")})
    (edit,) = edits(loaded_of(thing), loaded_of(changed))
    assert edit.fields
    if field in harmless:
        assert edit.effect is Effect.CHANGE
    else:
        assert edit.effect is (Effect.REPLACE if field == "parameters" else Effect.RIGHTS)


PARTS: dict[str, tuple[Any, Any]] = {
    "access": (fleets.app_cluster(), values.Access()),
    "konnector": (fleets.app_cluster(), values.Konnector()),
    "claims": (fleets.unit(), fleets.claim()),
}
CHANGED: dict[str, Any] = {
    "secret": ("name", "key"),
    "in_cluster": True,
    "deploy": True,
    "rbac": values.Rbac.FULL,
    "overrides": {"a": 1},
    "owner": values.Owner.CONSUMER,
    "names": ("a",),
    "namespaces": ("a",),
    "labels": ((("a", "b"),),),
    "accepted": False,
}
PARTS_FIELDS = [(name, one.name) for name in PARTS for one in fields(PARTS[name][1])]


def with_part(name, part):
    thing, _ = PARTS[name]
    return loaded_of(replace(thing, **{name: (part,) if name == "claims" else part}))


@pytest.mark.parametrize(
    ("name", "field"), [one for one in PARTS_FIELDS if one != ("claims", "origin")]
)
def test_a_change_within_a_field_is_an_edit(name, field):
    part = PARTS[name][1]
    other = replace(part, **{field: CHANGED.get(field, "other")})
    (edit,) = edits(with_part(name, part), with_part(name, other))
    assert edit.fields


@dataclass(frozen=True)
class LaterClaim(values.Claim):
    reaches_more: str = ""


def test_a_claim_that_may_reach_further_by_a_later_field_decides_over_rights():
    known = fleets.claim()
    values = {field.name: getattr(known, field.name) for field in fields(known)}
    before, after = LaterClaim(**values), LaterClaim(**values, reaches_more="anything")
    (edit,) = edits(with_part("claims", before), with_part("claims", after))
    assert edit.effect is Effect.RIGHTS
    assert "reachesMore anything" in str(edit.fields[0].after)


@dataclass(frozen=True)
class LaterCluster(values.AppCluster):
    trusts_more: str = ""


@dataclass(frozen=True)
class LaterUnit(values.Unit):
    trusts_more: str = ""


LATER: dict[str, tuple[Any, Any]] = {
    "cluster": (LaterCluster, values.AppCluster),
    "unit": (LaterUnit, values.Unit),
}


@pytest.mark.parametrize(("later", "kind"), LATER.values(), ids=LATER.keys())
def test_a_field_that_comes_later_decides_over_rights(later, kind):
    thing, _ = THINGS[kind]
    values = {field.name: getattr(thing, field.name) for field in fields(thing)}
    before, after = later(**values), later(**values, trusts_more="anybody")
    (edit,) = edits(loaded_of(before), loaded_of(after))
    assert edit.effect is Effect.RIGHTS
    assert [one.path for one in edit.fields] == ["/trustsMore"]


def test_a_place_is_no_field():
    thing = fleets.app_cluster()
    assert edits(loaded_of(thing), loaded_of(replace(thing, origin=Origin("x.yaml", 9, 9)))) == ()
