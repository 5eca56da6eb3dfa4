"""T7 of klutch-osb: which Secrets it writes, where, and that claims stay as they were written.

Each attack gets through with its roles alone, so that what refuses it is the policy.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.blueprints.broker_policy import policy
from reconciler.blueprints.objects import build
from reconciler.core import keys, names, refs
from reconciler.core.manifest import Manifest, put, uid_of
from reconciler.core.refs import Kind
from tests.support import policed, removal
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.osb_scenes import BINDING, INSTANCE, OsbScene, served
from tests.support.raw import http_session
from tests.support.shipped_accounts import SPACES, Ground, ground, held, of_brokers

CORE = "/api/v1/namespaces"
USER = policed.user_of(names.OSB_NAMESPACE, keys.MANAGER_OSB)
TYPE, CONNECTION = "servicebinding.io/Database", "connection.crossplane.io/v1alpha1"


def owner(api: str = BINDING.api_version, kind: str = BINDING.kind, **more: Any) -> Any:
    return {
        "apiVersion": api,
        "kind": kind,
        "name": "orders",
        "uid": "u",
        "controller": True,
    } | more


def secret(
    namespace: str, of_type: str = TYPE, *owners: Any, name: str = "made"
) -> policed.Attempt:
    body = {"metadata": {"name": name, "ownerReferences": list(owners)}, "type": of_type}
    return policed.Attempt("POST", f"{CORE}/{namespace}/secrets", body)


def allowed(place: Ground) -> dict[str, policed.Attempt]:
    composed = owner("dataservices.anynines.com/v1", "ServiceBinding")
    own = f"{CORE}/{place.home}/secrets/brokered"
    return {
        "credentials": secret(place.home, TYPE, owner()),
        "credentials of a claim that is in no service namespace": secret(
            place.other, TYPE, owner()
        ),
        "credentials of a composition": secret(place.home, CONNECTION, composed),
        "other credentials": policed.merged(own, stringData={"a": "c"}),
        "no credentials": policed.Attempt("DELETE", own),
    }


def attacks(place: Ground, scene: OsbScene) -> dict[str, policed.Attempt]:
    claims = f"/apis/{INSTANCE.api_version}/namespaces/{scene.namespace}/{INSTANCE.plural}"
    own, theirs = f"{CORE}/{place.home}/secrets", f"{CORE}/{place.other}/secrets"
    token = policed.of_token(place.home, "x", "default").body
    owned = {**token["metadata"], "ownerReferences": [owner()]}
    return {
        **{
            f"credentials in {one}": secret(one, TYPE, owner())
            for one in ("kube-system", names.KLUTCH_NAMESPACE, names.OSB_NAMESPACE, place.space)
        },
        "a Secret of another type": secret(place.home, "Opaque", owner()),
        "a Secret of no type": secret(place.home, "", owner()),
        "a token": policed.Attempt("POST", own, {**token, "metadata": owned}),
        "a token, by an apply": policed.applied(
            own,
            "x",
            apiVersion="v1",
            kind="Secret",
            **{**token, "metadata": {**owned, "name": "x"}},
        ),
        "a bootstrap token": secret(place.home, "bootstrap.kubernetes.io/token", owner()),
        "a kubeconfig in a space": secret(place.space, "Opaque", name="kubeconfig"),
        "credentials of nobody": secret(place.home, TYPE),
        "credentials of another kind": secret(place.home, TYPE, owner("apps/v1", "Deployment")),
        "credentials that nothing controls": secret(place.home, TYPE, owner(controller=False)),
        "the content of a stranger's Secret": policed.merged(
            f"{theirs}/own", stringData={"a": "c"}
        ),
        "a stranger's Secret as one's own": policed.merged(
            f"{theirs}/own", metadata={"ownerReferences": [owner()]}
        ),
        "a stranger's Secret gone": policed.Attempt("DELETE", f"{theirs}/own"),
        "credentials of another platform": policed.merged(f"{own}/foreign", stringData={"a": "c"}),
        "credentials of another platform gone": policed.Attempt("DELETE", f"{own}/foreign"),
        "another plan for a claim": policed.merged(f"{claims}/orders", spec={"plan": "big"}),
        "a claim that is kept when it goes": policed.merged(
            f"{claims}/orders", spec={"deletionPolicy": "Retain"}
        ),
    }


def with_any_rights(place: Ground) -> dict[str, policed.Attempt]:
    """Return what its roles do not let it do either."""
    return {
        "a ConfigMap": policed.Attempt(
            "POST", f"{CORE}/{place.home}/configmaps", {"metadata": {"name": "x"}}
        ),
        "a lease elsewhere": policed.Attempt(
            "POST",
            f"/apis/coordination.k8s.io/v1/namespaces/{place.home}/leases",
            {"metadata": {"name": "klutch-osb"}},
        ),
        "a namespace": policed.Attempt("POST", CORE, {"metadata": {"name": "x"}}),
    }


async def laid_out(live: LiveCluster, place: Ground) -> list[tuple[Kind, Manifest]]:
    """Make credentials of a binding that is there, others without owner, and that binding."""
    claim = build(BINDING, "orders", namespace=place.home, spec={"instanceRef": "orders"})
    claim = await live.cluster.create(claim, BINDING, manager="tests")
    made = [
        build(refs.SECRET, name, namespace=place.home, type=TYPE, stringData={"a": "b"})
        for name in ("brokered", "foreign")
    ]
    # One whose owner is not there is collected.
    made[0] = put(made[0], [owner(uid=uid_of(claim))], "metadata", "ownerReferences")
    for one in made:
        await live.cluster.apply(one, refs.SECRET, manager="tests", force=True)
    return [*((refs.SECRET, one) for one in made), (BINDING, claim)]


async def as_administrator(
    live: LiveCluster, tried: Mapping[str, policed.Attempt]
) -> dict[str, str]:
    """Return what the account is told where it has all rights; "" where it gets through."""
    headers = {"Impersonate-User": USER, "Impersonate-Group": "system:masters"}
    async with http_session(live.connection) as session:
        found = {name: await one.sent(session, headers) for name, one in tried.items()}
    return {name: text if status == 403 else "" for name, (status, text) in found.items()}


@pytest.mark.parametrize("spaces_of", SPACES)
async def test_the_policy_lets_it_do_its_work_and_nothing_else(control_plane, namespace, spaces_of):
    live = control_plane
    async with ground(live, spaces_of) as place, served(live, namespace) as scene:
        await scene.claim()
        account = of_brokers(place)
        good, bad, any_rights = allowed(place), attacks(place, scene), with_any_rights(place)
        tried = {**good, **bad}
        async with held(live, account) as token:
            made = await laid_out(live, place)

            async def statuses() -> dict[str, tuple[int, str]]:
                found = await policed.answers(live.connection, token, list(tried.values()))
                return dict(zip(tried, found, strict=True))

            async def bitten() -> bool:
                stopped = {name: one for name, one in (await statuses()).items() if one[0] >= 300}
                assert not stopped, stopped
                return True

            await eventually(bitten)
            assert not any((await as_administrator(live, any_rights)).values())
            async with policed.enforced(live.cluster, live.connection, account.policies, USER):
                found = await statuses()
                refused = await as_administrator(live, any_rights)
            for kind, one in made:
                await removal.remove_manifest(live.cluster, kind, one)
        await scene.delete(INSTANCE)
    assert {name: found[name][1] for name in good if found[name][0] >= 300} == {}
    assert {name for name in bad if found[name][0] < 300} == set()
    assert {name for name, text in refused.items() if policed.REFUSED not in text} == set()
    for name in bad:
        assert found[name][0] == 403, found[name]
        assert policed.REFUSED in found[name][1], found[name]
    said = [found[name][1] for name in bad] + [*refused.values()]
    assert all(any(rule.message in text for text in said) for rule in policy().rules)
