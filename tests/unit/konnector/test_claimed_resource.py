"""What another provider hears of a claimed resource, or a space, of which nothing is synced yet."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from konnector.binding.controller import INDEXES, Bindings
from konnector.permission_claim.controller import ClaimedResource
from konnector.provider.provider import Provider
from reconciler.api import API_SERVICE_BINDING
from reconciler.controller.metrics import Metrics
from reconciler.core import keys
from reconciler.core.errors import ClusterError, NotServed, Unreachable
from reconciler.core.refs import SECRET, ObjectKey, Ref
from reconciler.kube.store import Store
from tests.support.space_objects import live

# What a cluster answers when it is asked for the kind, and whether the provider has an object.
ANSWERS = {"not served": (NotServed, "none"), "no answer": (Unreachable, "perhaps")}


@pytest.mark.parametrize(("error", "rival"), ANSWERS.values(), ids=ANSWERS)
async def test_a_cluster_that_does_not_answer_is_none_without_the_kind(
    error: type[ClusterError], rival: str
) -> None:
    async def kind(*_: str) -> None:
        raise error("no", ref=Ref("a", SECRET, "", ""), verb="get")

    cluster = SimpleNamespace(kind=kind)
    activity = SimpleNamespace(work=lambda _: nullcontext())
    agent = SimpleNamespace(app=cluster, metrics=SimpleNamespace(activity=activity))
    around = SimpleNamespace(changed=lambda _: None)
    link: Any = SimpleNamespace(agent=agent, plane=cluster, around=around)
    claimed = ClaimedResource(SECRET, link, services=link)
    place = ObjectKey("team-a", "creds")
    assert claimed.has(place) == "perhaps"
    await claimed._look()
    assert claimed.has(place) == rival


def provider(uid: str, *, follows: bool = False) -> Any:
    """Return a provider of the space with this uid, "" where it is not known."""
    made = SimpleNamespace(wants=lambda _: follows)
    found: Any = object.__new__(Provider)
    found.guardian, found.serving = SimpleNamespace(space_uid=uid), SimpleNamespace(syncs=made)
    return found


# The provider of the only binding, what its Secret remembers, whether it may be of space "theirs".
MAY_BRING = {
    "its Secret was never used": (None, "", True),
    "its Secret led there": (None, "theirs", True),
    "its Secret led elsewhere": (None, "other", False),
    "its control plane did not answer yet, nor ever": (provider(""), "", True),
    "its control plane did not answer yet": (provider(""), "theirs", True),
    "its control plane did not answer yet, and is another": (provider(""), "other", False),
    "it is of it, and not followed": (provider("theirs"), "other", True),
    "it is of it, and followed": (provider("theirs", follows=True), "theirs", False),
    "it is of another": (provider("other"), "theirs", False),
}


@pytest.mark.parametrize(("served", "recorded", "expected"), MAY_BRING.values(), ids=MAY_BRING)
def test_a_space_is_unread_while_a_binding_may_be_of_it(
    monkeypatch: pytest.MonkeyPatch, served: Any, recorded: str, expected: bool
) -> None:
    view: Any = SimpleNamespace(store=Store(API_SERVICE_BINDING, INDEXES))
    view.store.put(live(API_SERVICE_BINDING, "databases.shop.example", namespace="klutch-bind"))
    context: Any = SimpleNamespace(metrics=Metrics())
    bindings = Bindings(context, home=context, view=view)
    providers: Any = SimpleNamespace(of=lambda _: served)
    bindings.serve_with(providers)
    secret = live(SECRET, "k", metadata={"annotations": {keys.SPACE_UID: recorded}})
    monkeypatch.setattr(bindings.secrets, "object", lambda _: secret)
    assert bindings.is_unread("theirs") is expected
