"""What konnectors ever had rights to stays noted on the role that the backend keeps."""

import pytest

from bind import rbac_changes
from reconciler.blueprints import rbac
from reconciler.core import keys
from reconciler.core.decision import Patch
from reconciler.core.manifest import JSON, Manifest, get, put
from tests.support.space_objects import deleting, live_like

CLUSTER = "control-plane"


def role(noted: str | None):
    annotations = {} if noted is None else {keys.EVER_EXPORTED: noted}
    live = live_like(rbac.binder_role(), uid="u-1", resourceVersion="7")
    return put(live, annotations, "metadata", "annotations")


def test_an_export_grants_itself_and_what_it_claims():
    claims: list[JSON] = [
        {"group": "", "resource": "secrets"},
        {"group": "b.example", "resource": "users"},
    ]
    export: Manifest = {"metadata": {"name": "dbs.a.example"}, "spec": {"permissionClaims": claims}}
    assert rbac_changes.granted(export) == ["dbs.a.example", "secrets", "users.b.example"]


NOTED = {
    "a role without a note": (None, {"a.x", "b.x"}, "a.x,b.x"),
    "another one comes": ("a.x,c.x", {"b.x"}, "a.x,b.x,c.x"),
    "somebody wrote into it": ("a.x,, c.x,a.x", {"b.x"}, "a.x,b.x,c.x"),
}


@pytest.mark.parametrize(("before", "now", "after"), NOTED.values(), ids=NOTED)
def test_what_is_new_is_noted_beside_what_was(before, now, after):
    live = role(before)
    (step,) = rbac_changes.note(CLUSTER, live, now)
    assert isinstance(step, Patch)
    assert get(step.body, "metadata", "annotations") == {keys.EVER_EXPORTED: after}
    assert get(step.body, "metadata", "uid") == "u-1"
    assert get(step.body, "metadata", "resourceVersion") == "7"
    assert rbac_changes.noted(role(after)) >= now


QUIET = {
    "nothing was exported": (role(None), set[str]()),
    "all of it is noted": (role("a.x,b.x"), {"b.x"}),
    "the role is not there yet": (None, {"a.x"}),
    "the role is on its way out": (deleting(role(None)), {"a.x"}),
}


@pytest.mark.parametrize(("live", "now"), QUIET.values(), ids=QUIET)
def test_nothing_is_written_in_vain(live, now):
    assert rbac_changes.note(CLUSTER, live, now) == ()
