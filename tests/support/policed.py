"""Admission policies on real clusters: when they are in force, and what they refuse to whom."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiohttp

from reconciler.blueprints import policies
from reconciler.blueprints.policies import Policy
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import ADMISSION_POLICY, ADMISSION_POLICY_BINDING
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection, NoCredential
from reconciler.kube.requests import APPLY_PATCH, MERGE_PATCH
from tests.support import removal
from tests.support.eventually import eventually
from tests.support.raw import http_session

REFUSED: Final = "ValidatingAdmissionPolicy"
TOKEN: Final = "kubernetes.io/service-account-token"
_KINDS: Final = {one.kind: one for one in (ADMISSION_POLICY, ADMISSION_POLICY_BINDING)}
_JSON: Final = "application/json"


def user_of(namespace: str, account: str) -> str:
    """Return how API servers call a ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{account}"


def konnector_policy(namespace: str, account: str) -> Policy:
    """Return a konnector's for another account, of which nobody else has one by that name."""
    policy, user = policies.konnector(), user_of(namespace, account)
    return Policy(account, f"request.userInfo.username == '{user}'", policy.rules, policy.variables)


@asynccontextmanager
async def enforced(
    cluster: Cluster, connection: Connection, made: Iterable[Manifest], user: str
) -> AsyncIterator[None]:
    """Apply policies and wait until they are in force for a user; take them away at the end."""
    held = [(_KINDS[get_text(one, "kind")], one) for one in made]
    try:
        for kind, one in held:
            await cluster.apply(one, kind, manager="operator", force=True)
        if held:
            await in_force(connection, user)
        yield
    finally:
        for kind, one in held:
            await removal.remove_manifest(cluster, kind, one)


async def in_force(connection: Connection, user: str) -> None:
    """Wait until the API server refuses to this user what no policy lets anybody do.

    It has all rights for this question, so that nothing else can be the reason.
    """
    attack = of_token("kube-system", "probe", "default")
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
    async with http_session(connection) as session:

        async def refused() -> bool:
            status, text = await attack.sent(session, headers)
            assert status in (201, 403), text
            return status == 403 and REFUSED in text

        await eventually(refused)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write, as an API server is asked for it. Nothing is stored."""

    method: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    content: str = _JSON

    async def sent(
        self, session: aiohttp.ClientSession, headers: Mapping[str, str]
    ) -> tuple[int, str]:
        apply = "&fieldManager=attacker&force=true" if self.content == APPLY_PATCH else ""
        async with session.request(
            self.method,
            f"{self.path}{'&' if '?' in self.path else '?'}dryRun=All{apply}",
            # A body of a DELETE would count in place of the query.
            json=None if self.method == "DELETE" else self.body,
            headers={**headers, "Content-Type": self.content},
        ) as answer:
            return answer.status, await answer.text()


def of_token(namespace: str, name: str, account: str) -> Attempt:
    """Return the making of a Secret that will hold the never-ending token of an account."""
    notes = {"kubernetes.io/service-account.name": account}
    body = {"metadata": {"name": name, "annotations": notes}, "type": TOKEN}
    return Attempt("POST", f"/api/v1/namespaces/{namespace}/secrets", body)


def applied(path: str, name: str, **body: Any) -> Attempt:
    return Attempt("PATCH", f"{path}/{name}", body, APPLY_PATCH)


def merged(path: str, **body: Any) -> Attempt:
    return Attempt("PATCH", path, body, MERGE_PATCH)


async def answers(
    connection: Connection, token: str, attempts: Sequence[Attempt]
) -> list[tuple[int, str]]:
    headers = {"Authorization": f"Bearer {token}"}
    async with http_session(replace(connection, credential=NoCredential())) as session:
        return [await one.sent(session, headers) for one in attempts]
