"""ServiceAccounts on real clusters: administrators, or with the roles that klutchctl prints."""

import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from reconciler.blueprints import objects
from reconciler.blueprints.objects import UNMARKED
from reconciler.core import names, refs
from reconciler.core.manifest import Manifest, get_bool, get_text
from reconciler.doctor import policies, rights
from reconciler.doctor.diagnosis import Question, questions
from reconciler.doctor.examine import ACCESS_REVIEW
from reconciler.doctor.rights import Side, Task, needed, scope_of_fleet
from reconciler.fleet.values import Fleet
from reconciler.kube.client import KubeCluster
from tests.support import policed, removal
from tests.support.accounts import administrator, may_read, token_of, with_token
from tests.support.deployed import KINDS
from tests.support.eventually import eventually
from tests.support.observing import context

if TYPE_CHECKING:
    from tests.support.clusters import LiveCluster

_MANAGER: Final = "tests"
_SHARED: Final = "default"  # a namespace that every cluster has


@asynccontextmanager
async def role_holder(
    live: "LiveCluster", fleet: Fleet, task: Task, side: Side
) -> AsyncIterator[str]:
    """Give the roles to their ServiceAccount, and take them away again; yield a token of it.

    The admission policies that are printed with them are in force as long.
    """
    scope = scope_of_fleet(fleet)
    made = rights.manifests(task, side, scope)
    policy = policies.manifests(task, side, scope)
    user = policed.user_of(names.KLUTCH_NAMESPACE, rights.account(fleet.name, task))
    try:
        for manifest in made:
            kind = KINDS[get_text(manifest, "kind")]
            await live.cluster.apply(manifest, kind, manager=_MANAGER, force=True)
        token = await token_of(
            live.cluster, names.KLUTCH_NAMESPACE, rights.account(fleet.name, task)
        )
        asked = questions(needed(task, side, scope_of_fleet(fleet)))
        async with as_holder(live, token) as holder:

            async def hears():
                return all([await _may(holder, question) for question in asked])

            await eventually(hears)
        async with policed.enforced(live.cluster, live.connection, policy, user):
            yield token
    finally:
        for manifest in made:
            await _remove(live, manifest)


class Operator(NamedTuple):
    """One administrator of some clusters; `user` is its name in audit logs."""

    kubeconfig: Path
    user: str


@asynccontextmanager
async def operator(lives: "Collection[LiveCluster]", folder: Path) -> AsyncIterator[Operator]:
    """Let somebody new administer the clusters for as long as the block lasts.

    So an audit log tells its writes from those of others.
    """
    name = f"operator-{uuid.uuid4().hex[:8]}"
    account = objects.service_account(_SHARED, name, marks=UNMARKED)
    made: Sequence[Manifest] = (account, administrator(_SHARED, name, name=name))
    tokens = {}
    for live in lives:
        for manifest in made:
            kind = KINDS[get_text(manifest, "kind")]
            await live.cluster.create(manifest, kind, manager=_MANAGER)
        tokens[live] = await token_of(live.cluster, _SHARED, name)
        way = with_token(live.connection, tokens[live])
        await eventually(partial(may_read, way, refs.CLUSTER_ROLE_BINDING))
    yield Operator(kubeconfig(folder, tokens), policed.user_of(_SHARED, name))
    for live in tokens:
        for manifest in made:
            await _remove(live, manifest)


async def _may(cluster: KubeCluster, question: Question) -> bool:
    """Ask the API server, which hears of a new role a little later."""
    named = {key: value for key, value in asdict(question).items() if value}
    review: Manifest = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.kind,
        "spec": {"resourceAttributes": named},
    }
    answer = await cluster.create(review, ACCESS_REVIEW, manager=_MANAGER)
    return get_bool(answer, "status", "allowed")


async def _remove(live: "LiveCluster", manifest: Manifest) -> None:
    kind = KINDS[get_text(manifest, "kind")]
    if kind == refs.NAMESPACE:  # other tests share it
        return
    await removal.remove_manifest(live.cluster, kind, manifest)


@asynccontextmanager
async def as_holder(live: "LiveCluster", token: str) -> AsyncIterator[KubeCluster]:
    """Connect with a token instead of as an administrator."""
    async with KubeCluster(with_token(live.connection, token)) as cluster:
        yield cluster


def kubeconfig(folder: Path, tokens: "dict[LiveCluster, str]") -> Path:
    whole: dict[str, Any] = {}
    for live, token in tokens.items():
        one = yaml.safe_load(context(live, live.context, user={"token": token}))
        for key, value in one.items():
            whole[key] = whole.get(key, []) + value if isinstance(value, list) else value
    path = folder / f"kubeconfig-{uuid.uuid4().hex[:8]}"
    path.write_text(yaml.safe_dump(whole))
    return path
