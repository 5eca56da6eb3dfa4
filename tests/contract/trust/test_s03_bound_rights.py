"""S3: `klutchctl bind` gives a konnector no right without the policy that bounds it (law 5)."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klutchctl.binding import Rights, konnector
from klutchctl.binding.app_cluster import AppCluster
from klutchctl.binding.konnector import Decision
from klutchctl.binding.progress import SENTENCES, BindEnded, Progress
from klutchctl.binding.response import Wanted
from reconciler.core import names, refs
from reconciler.core.manifest import name_of, put
from tests.support.accounts import token_of
from tests.support.binding_objects import SECRETS
from tests.support.bound_scenes import BIND, read, remove
from tests.support.clusters import LiveCluster
from tests.support.observing import Hand
from tests.support.policed import Attempt, answers, in_force, of_token, user_of

IMAGE = "registry.example/konnector@sha256:aa"
ROLE = names.KONNECTOR_CLUSTER_ROLE
POLICIES = (refs.ADMISSION_POLICY, refs.ADMISSION_POLICY_BINDING)
GLOBAL = (*POLICIES, refs.CLUSTER_ROLE_BINDING, refs.CLUSTER_ROLE)
DATABASES = refs.GroupResource("shop.example", "databases")


def served(*namespaces: str) -> Any:
    claim = {**SECRETS, "selector": {"namespaces": namespaces, "owner": "Provider"}}
    accepted = {**claim, "state": "Accepted"}
    return konnector.with_bound([], [(Wanted(DATABASES), [accepted])], "kubeconfig-x")


@contextlib.asynccontextmanager
async def installed(
    app: LiveCluster, said: list[str], decision: Decision, *namespaces: str, rights: Any = "Minimal"
) -> AsyncIterator[None]:
    """Install a konnector for a claim on Secrets; all of it goes at the end."""
    try:
        cluster = AppCluster(app.cluster, Progress(write=said.append))
        await cluster.install(decision, Rights(rights), served(*namespaces))
        yield
    finally:
        await remove(app, refs.DEPLOYMENT, BIND, names.KONNECTOR)
        await remove(app, refs.SERVICE_ACCOUNT, BIND, names.KONNECTOR)
        for kind in GLOBAL:
            await remove(app, kind, "", ROLE)


def secret_in(namespace: str) -> Attempt:
    body = {"metadata": {"name": "s"}, "data": {}}
    return Attempt("POST", f"/api/v1/namespaces/{namespace}/secrets", body)


@pytest.mark.parametrize("rights", list(Rights))
async def test_a_konnector_gets_its_policy_before_its_rights(app_cluster, in_app: Hand, rights):
    del in_app
    mark = app_cluster.audit.mark()
    decision = Decision(IMAGE, fresh=True)
    async with installed(app_cluster, [], decision, "default", rights=rights):
        written = [one.resource for one in app_cluster.audit.writes_since(mark)]
        order = [one.plural for one in (*POLICIES, refs.CLUSTER_ROLE_BINDING, refs.SERVICE_ACCOUNT)]
        assert [one for one in written if one in order] == order
        await in_force(app_cluster.connection, user_of(BIND, names.KONNECTOR))
        token = await token_of(app_cluster.cluster, BIND, names.KONNECTOR)
        attempts = [
            of_token("kube-system", "stolen", "default"),
            secret_in("kube-system"),
            secret_in("kube-public"),
            secret_in("default"),
        ]
        found = [status for status, _ in await answers(app_cluster.connection, token, attempts)]
        assert found == [403, 403, 403, 201]


async def test_a_konnector_that_has_rights_without_a_policy_is_bounded_with_the_next_bind(
    app_cluster, in_app: Hand
):
    del in_app
    said = list[str]()
    unbound = Decision(IMAGE, fresh=True, policy=False)
    async with installed(app_cluster, said, unbound, "default"):
        assert await read(app_cluster, refs.CLUSTER_ROLE_BINDING, "", ROLE) is not None
        assert await read(app_cluster, refs.ADMISSION_POLICY, "", ROLE) is None
        # The second one reaches more, and so does the policy.
        for reach in (["default"], ["default", "kube-public"]):
            cluster = AppCluster(app_cluster.cluster, Progress(write=said.append))
            await cluster.install(Decision(), Rights.MINIMAL, served(*reach))
            policy = await read(app_cluster, refs.ADMISSION_POLICY, "", ROLE)
            assert name_of(await read(app_cluster, POLICIES[1], "", ROLE)) == ROLE
            assert ("kube-public" in str(policy["spec"]["validations"][0])) == (len(reach) > 1)


async def test_what_somebody_else_keeps_is_left_and_what_denies_nothing_ends_the_bind(
    app_cluster, in_app: Hand
):
    del in_app
    said, mark = list[str](), app_cluster.audit.mark()
    policy, binding = konnector.policy(served("shop")).manifests()
    elsewhere = {"namespaceSelector": {"matchLabels": {"policed": "yes"}}}
    narrow = put(binding, elsewhere, "spec", "matchResources")
    for made, kind in ((policy, POLICIES[0]), (narrow, POLICIES[1])):
        await app_cluster.cluster.create(made, kind, manager="operator")
    with pytest.raises(BindEnded, match="narrows its policy"):
        async with installed(app_cluster, said, Decision(IMAGE, fresh=True), "default"):
            raise AssertionError
    assert said == [SENTENCES["policy-kept"].format(name=ROLE) + "\n"]
    assert not [one for one in app_cluster.audit.writes_since(mark) if one.verb != "delete"
                and one.resource in ("clusterroles", "clusterrolebindings")]  # fmt: skip
