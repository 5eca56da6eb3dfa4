"""klutch-bind and konnectors of a sandbox: their commands, and the rights that they are given."""

from pathlib import Path

import yaml

from klutchctl.sandbox.addons import agents
from klutchctl.sandbox.state import Layout, Member, Role, State
from reconciler.core.manifest import get_text, name_of
from reconciler.core.refs import GroupResource
from tests.support.worlds import template

BOX = Layout(Path("/box"))
EU, US = Member("eu", Role.CONTROL_PLANE, 20001), Member("us", Role.CONTROL_PLANE, 20002)
MILL = Member("mill-1", Role.APP_CLUSTER, 20003)
KNOWN = State(1, 2, (EU, US, MILL), agents={"eu": 20011, "us": 20012, "mill-1": 20013})
SECRETS = {"group": "", "resource": "secrets", "version": "v1"}


OFFERS = agents.offered(
    [
        template("forges.shop.example"),
        template("keys.shop.example", [{**SECRETS, "selector": {"owner": "Provider"}}]),
        template("notes.example", [{**SECRETS, "resource": "configmaps"}]),
    ]
)


def given(member):
    """Return what the program of a cluster is given, by kind and name, and its rights."""
    agent = agents.of(member)
    shipped = [one for path in agent.manifests() for one in yaml.safe_load_all(path.read_text())]
    made = list(agents.rights(agent, shipped, OFFERS))
    return {(get_text(one, "kind"), name_of(one)): one for one in made}


def test_klutch_bind_has_rights_on_what_is_offered_and_on_nothing_else():
    made = given(EU)
    services = made["ClusterRole", "klutch-bind-services"]
    assert agents.granted(services["rules"]) == {
        (group, plural, verb)
        for group, plural in [
            ("shop.example", "forges"),
            ("shop.example", "keys"),
            ("example", "notes"),
            ("", "secrets"),
            ("", "configmaps"),
        ]
        for verb in ("get", "list", "watch", "update", "patch", "delete", "create")
    }
    assert {
        ("ClusterRole", "klutch-bind-own"),
        ("ClusterRole", "klutch-bind-control-plane-mode"),
        ("ClusterRole", "klutch-bind-front-door"),
        ("ValidatingAdmissionPolicy", "klutch-bind"),
        ("Namespace", "klutch-bind"),
    } < made.keys()


def test_a_konnector_has_what_is_shipped_under_names_that_no_fleet_uses():
    made = given(MILL)
    rules = made["ClusterRole", "sandbox-klutch-bind-konnector-services"]["rules"]
    rights = agents.granted(rules)
    assert ("shop.example", "forges", "patch") in rights
    assert ("shop.example", "forges", "delete") not in rights, "only their owners delete instances"
    assert ("", "secrets", "delete") in rights
    assert ("anynines.com", "backups", "get") not in rights
    assert ("ClusterRole", "klutch-bind-konnector") not in made
    for (kind, _), one in made.items():
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            assert (one["roleRef"]["kind"], one["roleRef"]["name"]) in made
            (subject,) = one["subjects"]
            account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            assert account == agents.of(MILL).user


def test_claims_of_both_sides_come_down_and_those_of_consumers_do_not():
    claims = [{**SECRETS, "selector": {"owner": "Consumer"}}]
    found = agents.offered([template("keys.shop.example", claims)])
    assert found.services == {GroupResource("shop.example", "keys")}
    assert [one.down for one in found.claimed] == [False]
    assert {one.down for one in OFFERS.claimed} == {True}
