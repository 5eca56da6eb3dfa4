"""Administrators with a name of their own, so that an audit log tells their writes from others'."""

import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from reconciler.blueprints import rbac, space
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE_BINDING, SERVICE_ACCOUNT, Kind, Ref
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.role_holders import as_holder, kubeconfig

_NAMESPACE: Final = "default"
_MANAGER: Final = "tests"
_TOKEN_REQUEST: Final = Kind("", "v1", "TokenRequest", "serviceaccounts")


class Operator(NamedTuple):
    """One administrator of some clusters; `user` is its name in audit logs."""

    kubeconfig: Path
    user: str


@asynccontextmanager
async def operator(lives: Collection[LiveCluster], folder: Path) -> AsyncIterator[Operator]:
    """Let somebody new administer the clusters for as long as the block lasts."""
    name = f"operator-{uuid.uuid4().hex[:8]}"
    tokens = {live: await _admitted(live, name) for live in lives}
    yield Operator(kubeconfig(folder, tokens), f"system:serviceaccount:{_NAMESPACE}:{name}")
    for live in tokens:
        for kind, namespace in ((CLUSTER_ROLE_BINDING, ""), (SERVICE_ACCOUNT, _NAMESPACE)):
            await live.cluster.delete(
                Ref(live.name, kind, namespace, name),
                preconditions=Preconditions(uid=None),
                propagation=Propagation.BACKGROUND,
            )


async def _admitted(live: LiveCluster, name: str) -> str:
    """Make a ServiceAccount an administrator, and return a token of it."""
    account = space.service_account(_NAMESPACE, name, marks=UNMARKED)
    await live.cluster.create(account, SERVICE_ACCOUNT, manager=_MANAGER)
    given = rbac.cluster_role_binding("cluster-admin", name, marks=UNMARKED)
    subject = {"kind": SERVICE_ACCOUNT.kind, "namespace": _NAMESPACE, "name": name}
    made: Manifest = {
        **build(CLUSTER_ROLE_BINDING, name),
        "roleRef": given["roleRef"],
        "subjects": [subject],
    }
    await live.cluster.create(made, CLUSTER_ROLE_BINDING, manager=_MANAGER)
    request: Manifest = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": _TOKEN_REQUEST.kind,
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"expirationSeconds": 3600},
    }
    answer = await live.cluster.create(
        request, _TOKEN_REQUEST, manager=_MANAGER, subresource="token"
    )
    token = get_text(answer, "status", "token")
    async with as_holder(live, token) as holder:

        async def hears() -> bool:
            with suppress(Forbidden):
                await holder.list(CLUSTER_ROLE_BINDING)
                return True
            return False

        await eventually(hears)
    return token
