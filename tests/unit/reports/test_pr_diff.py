"""What a pull request changes in the files, and how grave it is."""

import pytest

from reconciler.core.decision import FieldChange
from reconciler.core.errors import Problem
from reconciler.fleet.load import load_valid_part
from reconciler.reports.pr_diff import Edit, Effect, edits
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
ALL = "{resource: secrets, version: v1, owner: Provider}"
OPEN = {
    "templates/pg.yaml": TEMPLATE.replace("claims: [", f"claims: [{ALL}, ").replace(
        "names: [a, b]", "namespaces: [kube-system]"
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
def test_what_is_told_of_a_change(cases, request, golden):
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


def test_a_list_that_is_only_longer_is_told_whole():
    base = {DB: binding("parameters: {zones: [a]}")}
    (edit,) = edits(loaded(base), loaded({DB: binding("parameters: {zones: [a, a]}")}))
    (field,) = edit.fields
    assert field == FieldChange("/parameters/zones", None, None)
    assert (field.before, field.after) == (["a"], ["a", "a"])
