"""The kubeconfig of a konnector: a plan says when it differs from its source, and who mends it."""

import pytest

from reconciler import api
from reconciler.apply import Status, approval
from reconciler.core import names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, SERVICE_ACCOUNT, Ref
from reconciler.planning.changes import Action
from tests.support import scenes
from tests.support.scenes import PLANE, acting, applied, change, shop
from tests.support.worlds import POSTGRES

SPACE = names.direct_space("acme", "shop")
COPY = names.kubeconfig_secret(SPACE)
OLD = api.token_digest("a token that was revoked")
ANOTHER: Manifest = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {}}
NEW = "https://new.example:6443"
MOVED = scenes.fleet(
    scenes.plane(mode=f"Direct, endpoint: {NEW!r}"), scenes.cluster(), scenes.binding()
)
SERVER, TOKEN = "/data/kubeconfig/server", "/data/kubeconfig/token"


def stale():
    """Return a world in which the copy holds another token than its source."""
    here = applied()
    change(here, "shop", SECRET, COPY, OLD, "data", names.KUBECONFIG, "token")
    return here


def revoked(*kinds):
    """Return a world whose space lost the token, or the account and so its token."""
    here = applied()
    for kind in kinds:
        here.remove(PLANE, kind, names.BINDER)
    return here


def refused(here, type_="Connected", reason="Unauthorized", message="refused"):
    """Let the konnector report that its token is not taken any more."""
    said = {"type": type_, "status": "False", "reason": reason, "message": message}
    change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, [said], "status", "conditions")
    return here


def lines(plan):
    return [(one.action.value, one.ref.name, [f.path for f in one.fields]) for one in acting(plan)]


def copy_in(plan):
    (line,) = [one for one in plan.changes if one.ref.name == COPY]
    return line


def blind(here, fleet):
    here.blind = True
    try:
        return here.plan(fleet)
    finally:
        here.blind = False


def chosen(here, server="https://10.0.0.1:6443"):
    """Let somebody who knows the app cluster's network choose the address in the copy."""
    change(here, "shop", SECRET, COPY, server, "data", names.KUBECONFIG, "server")
    change(here, "shop", SECRET, COPY, [ANOTHER], "metadata", "managedFields")
    here.note()


@pytest.mark.parametrize("silent", [False, True], ids=["konnector lives", "is silent"])
def test_a_revoked_token_is_written_at_once(silent):
    here = stale()
    here.silent |= {SPACE} if silent else set()
    (line,) = acting(here.plan(shop()))
    assert (line.action, line.ref.name) == (Action.UPDATE, COPY)
    assert [field.path for field in line.fields] == [TOKEN]
    assert line.reason.startswith("its token is revoked")
    assert line.before, "an apply must see that it has changed meanwhile"
    here.apply(here.plan(shop()))
    assert acting(here.plan(shop())) == []


@pytest.mark.parametrize("kinds", [[SECRET], [SECRET, SERVICE_ACCOUNT]], ids=str)
def test_one_apply_mends_all_that_a_lost_token_was_in(kinds):
    here = revoked(*kinds)
    plan = here.plan(shop())
    assert lines(plan) == [
        *(("create", names.BINDER, list[str]()) for _ in kinds),
        ("update", names.KUBECONFIG, [TOKEN]),
        ("update", COPY, [TOKEN]),
    ]
    before = here.get(Ref("shop", SECRET, names.KLUTCH_NAMESPACE, COPY))
    here.apply(plan)
    after = here.get(Ref("shop", SECRET, names.KLUTCH_NAMESPACE, COPY))
    assert api.kubeconfig_facts_of(after) != api.kubeconfig_facts_of(before)
    assert acting(here.plan(shop())) == acting(blind(here, shop())) == []


REFUSALS = {
    "ours": {},
    "the original": {
        "type_": "Heartbeating",
        "reason": "ClusterBindingUpdateFailed",
        "message": "Unauthorized",
    },
}


@pytest.mark.parametrize("said", REFUSALS.values(), ids=REFUSALS)
def test_a_plan_without_secrets_believes_a_konnector_that_is_refused(said):
    here = refused(revoked(SECRET), **said)
    assert lines(blind(here, shop())) == lines(here.plan(shop()))
    # What a cluster says of itself has nothing written that is right.
    assert acting(refused(applied(), **said).plan(shop())) == []


@pytest.mark.parametrize(
    "here", [refused(revoked(SECRET)), revoked(SECRET, SERVICE_ACCOUNT), refused(stale())]
)
def test_an_apply_does_of_such_a_plan_what_it_finds_to_be_so(here):
    plan = here.plan(shop())
    found = approval.match(blind(here, shop()), plan)
    assert {one.status for one in found.refused} <= {Status.UNCHANGED}
    assert [one.ref for one in found.lines["shop"]] == [one.ref for one in acting(plan)]


@pytest.mark.parametrize("sees", [True, False], ids=["apply", "plan"])
@pytest.mark.parametrize("silent", [False, True], ids=["konnector lives", "is silent"])
def test_a_new_address_goes_to_both_by_one_apply(silent, sees):
    here = applied()
    here.silent |= {SPACE} if silent else set()
    plan = here.plan(MOVED) if sees else blind(here, MOVED)
    assert lines(plan) == [("update", names.KUBECONFIG, [SERVER]), ("update", COPY, [SERVER])]
    why = copy_in(plan).reason
    assert why.startswith("leads to the old address")
    assert ("konnector tries the new one" in why) is not silent
    here.apply(plan)
    assert acting(here.plan(MOVED)) == acting(blind(here, MOVED)) == []


def test_a_konnector_that_the_old_address_cuts_off_is_not_waited_for():
    here = refused(applied(), reason="ControlPlaneUnreachable")
    assert "its konnector is cut off; apply writes the new" in copy_in(here.plan(MOVED)).reason


def test_a_copy_that_holds_no_kubeconfig_is_written():
    here = applied()
    change(here, "shop", SECRET, COPY, "(rubbish)", "data", names.KUBECONFIG)
    line = copy_in(here.plan(shop()))
    assert line.action is Action.UPDATE
    assert line.reason.startswith("contains no kubeconfig")
