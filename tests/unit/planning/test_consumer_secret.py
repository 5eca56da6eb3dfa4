"""The kubeconfig of a konnector: it mirrors the source itself, for as long as it lives."""

from reconciler.api import token_digest
from reconciler.core import names
from reconciler.core.refs import SECRET
from reconciler.planning.changes import Action
from tests.support.scenes import acting, applied, change, shop

SPACE = names.direct_space("acme", "shop")
COPY = names.kubeconfig_secret(SPACE)
OLD = token_digest("a token that was revoked")


def stale():
    """Return a world in which the copy holds another token than its source."""
    here = applied()
    change(here, "shop", SECRET, COPY, OLD, "data", names.KUBECONFIG, "token")
    return here


def test_a_living_konnector_mirrors_its_kubeconfig_itself():
    assert acting(stale().plan(shop())) == []


def test_what_no_konnector_can_mirror_any_more_is_rewritten():
    here = stale()
    here.silent.add(SPACE)
    (line,) = acting(here.plan(shop()))
    assert (line.action, line.ref.name) == (Action.UPDATE, COPY)
    assert [field.path for field in line.fields] == ["/data/kubeconfig/token"]
    assert line.before, "an apply must see that it has changed meanwhile"
    here.apply(here.plan(shop()))
    assert acting(here.plan(shop())) == []


def test_a_silent_konnector_is_no_reason_to_rewrite_what_is_right():
    here = applied()
    here.silent.add(SPACE)
    assert acting(here.plan(shop())) == []
