"""Service accounts for tests: clients that are not administrators."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.blueprints.objects import build
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, SERVICE_ACCOUNT, Kind
from reconciler.core.secret import Secret
from reconciler.kube.cluster import Writer
from reconciler.kube.connection import Connection, Token

if TYPE_CHECKING:
    from tests.support.clusters import LiveCluster

NAME: Final = "robot"
_TOKEN_REQUEST: Final = Kind("", "v1", "TokenRequest", "serviceaccounts")


async def create_robot(cluster: Writer, namespace: str) -> None:
    """Create the service account `robot`."""
    metadata = {"name": NAME, "namespace": namespace}
    account: Manifest = {"apiVersion": "v1", "kind": SERVICE_ACCOUNT.kind, "metadata": metadata}
    await cluster.create(account, SERVICE_ACCOUNT, manager="tests")


async def request_token(cluster: Writer, namespace: str, *, seconds: int) -> str:
    """Return a token of the robot that is valid for so long."""
    request: Manifest = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": _TOKEN_REQUEST.kind,
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"expirationSeconds": seconds},
    }
    answer = await cluster.create(request, _TOKEN_REQUEST, manager="tests", subresource="token")
    return get_text(answer, "status", "token")


async def robot_token(live: "LiveCluster", namespace: str) -> Token:
    """Create a robot without any rights, and return a token of it."""
    await create_robot(live.cluster, namespace)
    return Token(Secret(await request_token(live.cluster, namespace, seconds=600)))


async def robot_connection(live: "LiveCluster", namespace: str) -> Connection:
    """Create a robot without any rights, and return a connection as it."""
    return replace(live.connection, credential=await robot_token(live, namespace))


async def token_for_all(cluster: Writer, namespace: str) -> str:
    """Create a robot that may do all there is, by a ClusterRoleBinding with the namespace's name.

    Return a token of it that is valid for an hour.
    """
    await create_robot(cluster, namespace)
    to = {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": "cluster-admin"}
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": NAME, "namespace": namespace}
    rights = build(CLUSTER_ROLE_BINDING, namespace, roleRef=to, subjects=[subject])
    await cluster.create(rights, CLUSTER_ROLE_BINDING, manager="tests")
    return await request_token(cluster, namespace, seconds=3600)
