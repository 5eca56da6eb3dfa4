"""What is kept from one pass over a repository to the next, and what is not."""

import functools

import pytest

from reconciler.core.errors import Origin, Problem
from reconciler.fleet.files import LoadCache
from reconciler.fleet.load import load, load_valid_part
from tests.support.bad_fleets import INVALID
from tests.support.fleet_texts import (
    ACB_CONTROL_PLANE,
    CLUSTER,
    GOOD,
    POLICY,
    TEMPLATE,
    document,
    tree,
)

IN = "kubeconfigContext: ${cluster.name}"
CAFE = document("Cluster", "cafe", f"{{access: {{{IN}}}, controlPlane: eu}}", labels="{env: prod}")
VARIED = {
    "fleet.yaml": document("Fleet", "acme", "{include: ['*/*.yaml'], vars: {size: small}}"),
    "clusters/shop.yaml": document(
        "Cluster",
        "shop",
        "{access: {kubeconfigContext: '${vars.size}'}, controlPlane: eu}",
        labels="{env: prod}",
    ),
    "bindings/db.yaml": document(
        "Binding",
        "db",
        "{template: pg, clusters: {matchLabels: {env: prod}}, dependsOn: [other], "
        "parameters: {at: '${cluster.labels.env}', size: '${vars.size}'}}",
    ),
    "bindings/other.yaml": document(
        "Binding",
        "other",
        "{resources: [{group: gi.o, resource: others}], clusters: {names: [shop]}}",
    ),
}


def varied(path, old, new):
    assert old in VARIED[path]
    return {path: VARIED[path].replace(old, new)}


CHANGES = {
    "nothing": {},
    "another cluster": {"clusters/cafe.yaml": CAFE},
    "another label": varied("clusters/shop.yaml", "env: prod", "env: prod, a: b"),
    "a label that selects": varied("clusters/shop.yaml", "env: prod", "env: test"),
    "a variable": varied("fleet.yaml", "small", "large"),
    "fewer files": varied("fleet.yaml", "['*/*.yaml']", "['clusters/*.yaml', 'planes/*.yaml']"),
    "an include that matches nothing": varied("fleet.yaml", "'*/*.yaml'", "'*/*.yaml', x/*.yaml"),
    "a variable that is gone": varied("fleet.yaml", "size: small", ""),
    "another label value": {
        **varied("clusters/shop.yaml", "env: prod", "env: test"),
        **varied("bindings/db.yaml", "matchLabels: {env: prod}", "names: [shop]"),
    },
    "names instead of labels": varied(
        "bindings/db.yaml", "matchLabels: {env: prod}", "names: [shop]"
    ),
    "a cluster that does not exist": varied("bindings/other.yaml", "[shop]", "[cafe]"),
    "one that does": {
        "clusters/cafe.yaml": CAFE,
        **varied("bindings/other.yaml", "[shop]", "[cafe]"),
    },
    "other claims": {"templates/pg.yaml": TEMPLATE.replace("[a, b]", "[a]")},
    "another resource": {"templates/pg.yaml": TEMPLATE.replace("pgs", "pgsqls")},
    "another template": {"templates/pg.yaml": TEMPLATE.replace("name: pg", "name: mysql")},
    "a mode": {"planes/eu.yaml": ACB_CONTROL_PLANE},
    "another resource to wait for": varied("bindings/other.yaml", "others", "more"),
    "nothing to wait for": {"bindings/other.yaml": None},
    "a line above": {"bindings/db.yaml": "# more\n" + VARIED["bindings/db.yaml"]},
    "a policy": {"policies/p.yaml": POLICY},
    "no YAML": {"bindings/other.yaml": "a: ["},
}


@functools.cache
def read_without(change):
    return load(tree({**VARIED, **CHANGES[change]}))


@pytest.mark.parametrize("before", CHANGES)
def test_with_a_cache_a_repository_is_read_as_without(before):
    for change in CHANGES:
        cache = LoadCache()
        load(tree({**VARIED, **CHANGES[before]}), cache)
        assert load(tree({**VARIED, **CHANGES[change]}), cache) == read_without(change)


@pytest.mark.parametrize("name", INVALID)
def test_what_was_wrong_is_not_remembered_for_what_is_right(name):
    cache, wrong = LoadCache(), tree(INVALID[name])
    for files in (tree(), wrong, wrong, tree()):
        assert load(files, cache) == load(files)


def documents(changes, cache):
    found = load_valid_part(tree(changes), [], cache)
    assert found is not None
    return {one.origin.path: one for one in found.repository.documents}


def test_only_a_file_that_changed_is_read_again():
    cache = LoadCache()
    before = documents({}, cache)
    after = documents({"clusters/shop.yaml": CLUSTER + "# more\n"}, cache)
    read = {path for path in before if after[path] is not before[path]}
    assert read == {"clusters/shop.yaml"}


def test_units_of_a_binding_that_nothing_changes_are_the_same():
    cache = LoadCache()
    other = GOOD["bindings/db.yaml"].replace("db", "other").replace("template: pg", "RESOURCES")
    other = other.replace("RESOURCES", "resources: [{group: gi.o, resource: others}]")
    before, after = (
        load(tree({"bindings/other.yaml": text}), cache)[0]
        for text in (other, other.replace("env: prod}}}", "env: prod}}, deletionPolicy: Block}"))
    )
    assert before is not None
    assert after is not None
    assert {key.resource for key in before.units if before.units[key] is after.units[key]} == {
        "pgs"
    }
    assert before.units != after.units


def test_what_a_pass_does_not_use_is_forgotten():
    cache = LoadCache()
    values = []
    for use in (True, True, False, True):
        cache.begin()
        if use:
            values.append(cache.recall("x", (1,), lambda _: object(), problems=[]))
    assert values[0] is values[1]
    assert values[1] is not values[2]


def test_problems_are_remembered_too():
    cache = LoadCache()
    problems: list[Problem] = []
    problem = Problem(Origin("x"), "code", "message")
    for _ in range(2):
        cache.begin()
        cache.recall("x", (1,), lambda found: found.append(problem), problems=problems)
    assert problems == [problem, problem]
