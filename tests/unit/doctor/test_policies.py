"""Which admission policies an apply should be held to, and whether they are there."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.blueprints import policies as shipped
from reconciler.doctor import diagnosis, policies
from reconciler.doctor.diagnosis import Level, Mend
from reconciler.doctor.rights import Side, Task, scope_of_fleet
from reconciler.fleet.values import Konnector, Mode, Rbac
from tests.support import fleets

PLANE, APP = Side.CONTROL_PLANE, Side.APP_CLUSTER
OWN = "system:serviceaccount:klutch-bind:klutchctl-acme-apply"


def scope(mode=Mode.DIRECT, *, deploy=False, rbac=Rbac.MINIMAL, **claim: Any):
    cluster = fleets.app_cluster(konnector=Konnector(deploy=deploy, rbac=rbac))
    unit = fleets.unit(claims=(fleets.claim(**claim),))
    made = fleets.fleet(
        control_planes=[fleets.control_plane(mode=mode)], clusters=[cluster], units=[unit]
    )
    return scope_of_fleet(replace(made, name="acme"))


EXPECTED = {
    # side, scope, user, names
    "an administrator": (PLANE, scope(), "admin", []),
    "the account": (PLANE, scope(), OWN, ["klutchctl-acme-apply"]),
    "an administrator, and a konnector": (APP, scope(deploy=True), "a", ["klutch-bind-konnector"]),
    "the account, and no konnector": (APP, scope(), OWN, ["klutchctl-acme-apply"]),
    "the account of a konnector elsewhere": (
        APP, scope(Mode.APP_CLUSTER_BINDING), OWN,
        ["klutchctl-acme-apply", "klutch-bind-konnector"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("side", "what", "user", "names"), EXPECTED.values(), ids=EXPECTED)
def test_who_is_there_decides_what_is_expected(side, what, user, names):
    assert [one.name for one in policies.expected(side, what, user)] == names


@pytest.mark.parametrize("side", Side)
def test_a_plan_needs_none(side):
    assert policies.manifests(Task.PLAN, side, scope()) == ()
    assert policies.manifests(Task.APPLY, side, scope())


def test_permission_claims_that_name_namespaces_bound_the_konnector():
    (_, bounded) = policies.wanted(APP, scope(namespaces=("shop",)))
    assert bounded == shipped.konnector(["shop"], anywhere=False)
    (_, anywhere) = policies.wanted(APP, scope())
    assert anywhere == shipped.konnector()


def test_only_a_fleet_with_full_rights_may_give_any():
    for rbac, bounded in ((Rbac.MINIMAL, True), (Rbac.FULL, False)):
        (own, _) = policies.wanted(APP, scope(deploy=True, rbac=rbac))
        assert ("object.?rules" in own.rules[-1].expression) is bounded


def live() -> Any:
    return [dict(one) for one in shipped.konnector().manifests()]


def without_deny(made, bound):
    return made, {"spec": {**bound["spec"], "validationActions": ["Audit"]}}


def narrowed(made, bound):
    return made, {"spec": {**bound["spec"], "matchResources": {}}}


def of_others(made, bound):
    return made, {"spec": {**bound["spec"], "policyName": "other"}}


def fails_open(made, bound):
    return {"spec": {**made["spec"], "failurePolicy": "Ignore"}}, bound


def says_less(made, bound):
    return {"spec": {**made["spec"], "validations": []}}, bound


def absent(made, bound):
    return None, bound


def unbound(made, bound):
    return made, None


def changed_by_the_server(made, bound):
    return {**made, "spec": {**made["spec"], "matchPolicy": "Equivalent"}}, bound


CHANGES = {
    False: (without_deny, narrowed, of_others, fails_open, says_less, absent, unbound),
    True: (changed_by_the_server, lambda *both: both),
}


@pytest.mark.parametrize(
    ("change", "holds"), [(one, holds) for holds, all_ in CHANGES.items() for one in all_]
)
def test_a_policy_counts_only_as_it_was_printed(change, holds):
    assert policies.in_force(shipped.konnector(), *change(*live())) is holds


def test_what_is_missing_is_a_warning_with_the_command():
    found = diagnosis.policies(["b", "a"])
    assert (found.level, found.mend) == (Level.WARNING, Mend.RIGHTS)
    assert "a, b" in found.message
    assert diagnosis.policies([]).level is Level.OK
    old = diagnosis.policies((), served=False)
    assert (old.level, old.mend) == (Level.WARNING, None)
    assert "1.30" in old.message
