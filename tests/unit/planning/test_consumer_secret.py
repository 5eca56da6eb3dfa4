"""The kubeconfig of a konnector: it mirrors the source itself, for as long as it lives."""

from reconciler.core import names
from reconciler.core.kubeconfig_facts import token_digest
from reconciler.core.manifest import put
from reconciler.core.refs import SECRET
from reconciler.planning.changes import Action
from tests.unit.planning.test_direct_mode import bound

SPACE = names.direct_space("acme", "shop")
OLD = token_digest("a token that was revoked")


def stale():
    """Return a world in which the copy holds another token than its source."""
    here, fleet = bound()
    secret = here.remove("shop", SECRET, names.kubeconfig_secret(SPACE))
    here.clusters["shop"].append(put(secret, OLD, "data", names.KUBECONFIG, "token"))
    return here, fleet


def changed(plan):
    return [one for one in plan.changes if one.action is not Action.NOOP]


def test_a_living_konnector_mirrors_its_kubeconfig_itself():
    here, fleet = stale()
    assert changed(here.plan(fleet)) == []


def test_what_no_konnector_can_mirror_any_more_is_rewritten():
    here, fleet = stale()
    here.silent.add(SPACE)
    (line,) = changed(here.plan(fleet))
    assert line.action is Action.UPDATE
    assert line.ref.name == names.kubeconfig_secret(SPACE)
    assert [field.path for field in line.fields] == ["/data/kubeconfig/token"]
    assert line.before, "an apply must see that it has changed meanwhile"
    here.apply(here.plan(fleet))
    assert changed(here.plan(fleet)) == []


def test_a_silent_konnector_is_no_reason_to_rewrite_what_is_right():
    here, fleet = bound()
    here.silent.add(SPACE)
    assert changed(here.plan(fleet)) == []
