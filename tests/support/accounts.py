"""ServiceAccounts for tests, their tokens, and when API servers have heard of their rights."""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.blueprints.objects import build
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    SERVICE_ACCOUNT,
    Kind,
)
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Writer
from reconciler.kube.connection import Connection, Token

if TYPE_CHECKING:
    from tests.support.clusters import LiveCluster

ROBOT: Final = "robot"
_TOKEN_REQUEST: Final = Kind("", "v1", "TokenRequest", "serviceaccounts")
_MANAGER: Final = "tests"


async def token_of(
    cluster: Writer,
    namespace: str,
    account: str = ROBOT,
    *,
    seconds: int = 3600,
    audience: str = "",
) -> str:
    """Return a new token of a ServiceAccount, valid for so long; "": for the API server."""
    audiences = {"audiences": [audience]} if audience else {}
    request: Manifest = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": _TOKEN_REQUEST.kind,
        "metadata": {"name": account, "namespace": namespace},
        "spec": {"expirationSeconds": seconds, **audiences},
    }
    answer = await cluster.create(request, _TOKEN_REQUEST, manager=_MANAGER, subresource="token")
    return get_text(answer, "status", "token")


def with_token(way: Connection, token: str) -> Connection:
    return replace(way, credential=Token(Secret(token)))


async def may_read(way: Connection, kind: Kind = NAMESPACE, namespace: str = "") -> bool:
    """Return whether the API server has heard of the rights."""
    with suppress(ClusterError):
        async with KubeCluster(way) as cluster:
            await cluster.first_page(kind, namespace=namespace, limit=1)
            return True
    return False


def administrator(namespace: str, account: str, *, name: str) -> Manifest:
    """Return the ClusterRoleBinding by which an account may do all there is."""
    to = {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": "cluster-admin"}
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": account, "namespace": namespace}
    return build(CLUSTER_ROLE_BINDING, name, roleRef=to, subjects=[subject])


async def create_robot(cluster: Writer, namespace: str) -> None:
    """Create the service account `robot`."""
    account = build(SERVICE_ACCOUNT, ROBOT, namespace=namespace)
    await cluster.create(account, SERVICE_ACCOUNT, manager=_MANAGER)


async def robot_token(live: "LiveCluster", namespace: str) -> str:
    """Create a robot without any rights, and return a token of it."""
    await create_robot(live.cluster, namespace)
    return await token_of(live.cluster, namespace, seconds=600)


async def robot_connection(live: "LiveCluster", namespace: str) -> Connection:
    """Create a robot without any rights, and return a connection as it."""
    return with_token(live.connection, await robot_token(live, namespace))


async def token_for_all(cluster: Writer, namespace: str) -> str:
    """Create a robot that may do all there is, by a ClusterRoleBinding with the namespace's name.

    Return a token of it that is valid for an hour.
    """
    await create_robot(cluster, namespace)
    rights = administrator(namespace, ROBOT, name=namespace)
    await cluster.create(rights, CLUSTER_ROLE_BINDING, manager=_MANAGER)
    return await token_of(cluster, namespace)
