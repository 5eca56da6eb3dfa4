"""What another provider hears of a claimed resource of which nothing is synced yet."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from konnector.permission_claim.controller import ClaimedResource
from reconciler.core.errors import ClusterError, NotServed, Unreachable
from reconciler.core.refs import SECRET, ObjectKey, Ref

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
