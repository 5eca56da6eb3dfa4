"""T23: a template in a namespace that the files do not name offers nothing."""

import pytest

from reconciler.core.manifest import put
from reconciler.planning.changes import Action
from tests.support.scenes import binding, cluster, fleet, of_unit, plane
from tests.support.worlds import POSTGRES, World, crd, template

MINE = {"group": "", "resource": "secrets", "version": "v1"}
CLAIM = {**MINE, "selector": {"owner": "Provider", "names": ["a"], "namespaces": ["*"]}}
WIDER = {**MINE, "selector": {"owner": "Provider", "names": ["*"], "namespaces": ["*"]}}
CLAIMS = ", claims: [{resource: secrets, version: v1, owner: Provider}]"


def at(*namespaces):
    """Return the document of a control plane whose templates count in these namespaces."""
    return plane().replace("mode:", f"templateNamespaces: [{', '.join(namespaces)}], mode:")


def world(*templates):
    """Return a world in which a template of the service stands in these namespaces."""
    offered = [
        put(template(POSTGRES, [claim]), namespace, "metadata", "namespace")
        for namespace, claim in templates
    ]
    return World(control_plane=[crd(POSTGRES), *offered], clusters={"shop": []})


def planned(here, document):
    return here.plan(fleet(document, cluster(), binding(more=CLAIMS)))


ROWS = {
    "all, where none is named": (plane(), False),
    "one that is named": (at("a-tenant", "platform"), False),
    "another one": (at("platform"), True),
}


@pytest.mark.parametrize(("document", "blocked"), ROWS.values(), ids=ROWS.keys())
def test_a_template_of_a_tenant(document, blocked):
    made = planned(world(("a-tenant", WIDER)), document)
    assert (of_unit(made) == {Action.BLOCKED}) is blocked


def test_the_claims_are_those_of_the_namespace_that_counts():
    here = world(("a-tenant", WIDER), ("platform", CLAIM))
    said = {document: planned(here, document).id for document in (plane(), at("platform"))}
    assert len({*said.values()}) == 2
    only = world(("platform", CLAIM))
    assert [one.after for one in planned(here, at("platform")).changes] == [
        one.after for one in planned(only, at("platform")).changes
    ]
