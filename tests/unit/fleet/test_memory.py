"""What is kept from one pass over a repository to the next, and what is not."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.origin import Origin
from reconciler.core.problems import Problem
from reconciler.fleet.load import load, load_what_is_right
from reconciler.fleet.memory import Memory
from tests.support.bad_fleets import INVALID
from tests.support.fleet_texts import CLUSTER, GOOD, POLICY, TEMPLATE, document, tree

CAFE = document(
    "Cluster", "cafe", "{access: {kubeconfigContext: cafe}, controlPlane: eu}", labels="{env: prod}"
)
CHANGES = {
    "nothing": {},
    "another cluster": {"clusters/cafe.yaml": CAFE},
    "another label": {"clusters/shop.yaml": CLUSTER.replace("prod", "test")},
    "a variable": {
        "fleet.yaml": document("Fleet", "acme", "{include: ['*/*.yaml'], vars: {size: small}}")
    },
    "a parameter of a cluster": {
        "bindings/db.yaml": document(
            "Binding",
            "db",
            "{template: pg, clusters: {matchLabels: {env: prod}}, "
            "parameters: {at: '${cluster.labels.env}', size: '${vars.size}'}}",
        )
    },
    "other claims": {"templates/pg.yaml": TEMPLATE.replace("[a, b]", "[a]")},
    "another resource": {"templates/pg.yaml": TEMPLATE.replace("pgs", "pgsqls")},
    "a mode": {
        "planes/eu.yaml": document(
            "ControlPlane", "eu", "{access: {kubeconfigContext: cp}, mode: AppClusterBinding}"
        )
    },
    "a dependency": {
        "bindings/db.yaml": document(
            "Binding", "db", "{template: pg, clusters: {names: [shop]}, dependsOn: [other]}"
        ),
        "bindings/other.yaml": document(
            "Binding",
            "other",
            "{resources: [{group: g.io, resource: others}], clusters: {matchLabels: {env: prod}}}",
        ),
    },
    "a line above": {"bindings/db.yaml": "# more\n" + GOOD["bindings/db.yaml"]},
    "a policy": {"policies/p.yaml": POLICY},
    **{name: row[0] for name, row in INVALID.items()},
}


@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=2, max_size=4), st.data())
def test_with_a_memory_a_repository_is_read_as_without(steps, data):
    memory = Memory()
    for step in steps:
        more = data.draw(st.sampled_from(sorted(CHANGES)))
        files = tree({**CHANGES[step], **CHANGES[more]})
        assert load(files, memory) == load(files)


def documents(changes, memory):
    found = load_what_is_right(tree(changes), [], memory)
    return {one.origin.path: one for one in found.repository.documents}


def test_only_a_file_that_changed_is_read_again():
    memory = Memory()
    before = documents({}, memory)
    after = documents({"clusters/shop.yaml": CLUSTER + "# more\n"}, memory)
    read = {path for path in before if after[path] is not before[path]}
    assert read == {"clusters/shop.yaml"}


def test_units_of_a_binding_that_nothing_changes_are_the_same():
    memory = Memory()
    other = GOOD["bindings/db.yaml"].replace("db", "other").replace("template: pg", "RESOURCES")
    other = other.replace("RESOURCES", "resources: [{group: g.io, resource: others}]")
    (before, _), (after, _) = (
        load(tree({"bindings/other.yaml": text}), memory)
        for text in (other, other.replace("env: prod}}}", "env: prod}}, deletionPolicy: Block}"))
    )
    assert {key.resource for key in before.units if before.units[key] is after.units[key]} == {
        "pgs"
    }
    assert before.units != after.units


def test_what_a_pass_does_not_use_is_forgotten():
    memory = Memory()
    values = []
    for use in (True, True, False, True):
        memory.begin()
        if use:
            values.append(memory.recall("x", (1,), lambda _: object(), problems=[]))
    assert values[0] is values[1]
    assert values[1] is not values[2]


def test_problems_are_remembered_too():
    memory, told = Memory(), []
    problem = Problem(Origin("x"), "code", "message")
    for _ in range(2):
        memory.begin()
        memory.recall("x", (1,), lambda found: found.append(problem), problems=told)
    assert told == [problem, problem]
