"""What a konnector must be able to do on the control plane, and what it must never be able to.

protocol-bind.md B.5, protocol-konnector.md A.8. Each is one real HTTP request; writes are dry
runs, which API servers authorize like any other. Watches end after a second.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from reconciler import api
from reconciler.blueprints.objects import build
from reconciler.core import names, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.connection import Connection, NoCredential
from reconciler.kube.requests import MERGE_PATCH, path_of
from tests.support.raw import http_session
from tests.support.served_spaces import APP, Space

COPY: Final = "orders"  # of an instance and of a Secret in the service namespace
_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_WATCH: Final = "watch=1&timeoutSeconds=1"


@dataclass(frozen=True, slots=True)
class Question:
    """A verb on an object, or on all of a kind in a namespace or everywhere ("")."""

    verb: str
    ref: Ref
    subresource: str = ""
    body: Manifest = field(default_factory=dict, hash=False)

    @property
    def target(self) -> str:
        listed = self.verb in ("list", "watch", "create")
        ref = replace(self.ref, name="") if listed else self.ref
        path = path_of(ref, subresource=self.subresource)
        query = {"get": "", "list": "limit=1", "watch": _WATCH}.get(self.verb, "dryRun=All")
        return f"{path}?{query}" if query else path

    def __str__(self) -> str:
        kind = f"{self.ref.kind.plural}/{self.subresource}".strip("/")
        return f"{self.verb} {kind} {self.ref.namespace}/{self.ref.name}"


class Konnector:
    """Asks an API server with a konnector's token. `answers` counts statuses by question."""

    def __init__(self, connection: Connection, token: str) -> None:
        self._session = http_session(replace(connection, credential=NoCredential()))
        self._headers = {"Authorization": f"Bearer {token}"}
        self.answers: dict[Question, Counter[int]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, question: Question) -> int:
        """Return the status of the answer, and count it."""
        headers, data = dict(self._headers), None
        if question.verb in ("create", "update", "patch"):
            patch = question.verb == "patch"
            headers["Content-Type"] = MERGE_PATCH if patch else "application/json"
            data = json.dumps(question.body)
        async with self._session.request(
            _METHODS[question.verb], question.target, headers=headers, data=data
        ) as answer:
            await answer.read()
        self.answers.setdefault(question, Counter())[answer.status] += 1
        return answer.status

    async def all_statuses(self, asked: "list[Question]") -> Mapping[Question, int]:
        """Ask all, a few at a time."""
        turn = asyncio.Semaphore(8)

        async def one(question: Question) -> int:
            async with turn:
                return await self.ask(question)

        return dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))


async def needed(space: Space) -> list[Question]:
    """Return every verb that a konnector uses, on what is there now."""
    found = [
        (space.ref(api.CLUSTER_BINDING, names.CLUSTER_BINDING), ("get", "list", "watch")),
        (space.export, ("get", "list", "watch")),
        (space.ref(refs.SECRET, names.BINDER), ("get", "list", "watch")),
        (space.everywhere(refs.NAMESPACE, space.name), ("get",)),
        (space.ref(api.API_SERVICE_NAMESPACE, APP), tuple(_METHODS)),
        (space.ref(api.API_SERVICE_EXPORT_REQUEST, space.offer.name), tuple(_METHODS)),
        (_copy(space, space.offer.kind), tuple(_METHODS)),
        (_copy(space, refs.SECRET), tuple(_METHODS)),
    ]
    asked = list[Question]()
    for ref, verbs in found:
        live = await space.at(ref)
        assert live is not None, ref
        asked += [Question(verb, ref, body=_body(verb, ref, live)) for verb in verbs]
    for ref in (space.binding, space.export):
        live = await space.at(ref)
        asked += [
            Question(verb, ref, "status", _body(verb, ref, live))
            for verb in ("get", "update", "patch")
        ]
    return asked


def _copy(space: Space, kind: Kind) -> Ref:
    return Ref(space.cluster.name, kind, space.home, COPY)


def _body(verb: str, ref: Ref, live: Any) -> Manifest:
    if verb == "create":
        kept = {key: value for key, value in live.items() if key not in ("metadata", "status")}
        metadata = {"name": "another", "namespace": ref.namespace}
        return {**kept, "metadata": metadata}
    return live if verb == "update" else {"metadata": {"annotations": {"tests": "yes"}}}


def forbidden(own: Space, other: Space) -> list[Question]:
    """Return twenty things that the konnector of `own` may not do."""
    return [*_of_others(other), *_of_the_space(own), *_of_everybody(own)]


def _of_others(other: Space) -> Iterator[Question]:
    yield Question("get", other.everywhere(refs.NAMESPACE, other.name))
    yield Question("list", other.ref(refs.SECRET, ""))
    yield Question("get", other.ref(refs.SECRET, names.BINDER))
    yield Question("list", other.ref(api.API_SERVICE_EXPORT, ""))
    yield Question("list", Ref(other.cluster.name, refs.SECRET, other.home, ""))
    yield Question("get", _copy(other, other.offer.kind))
    made = build(refs.SECRET, "planted", namespace=other.home)
    yield Question("create", Ref(other.cluster.name, refs.SECRET, other.home, ""), body=made)


def _of_the_space(own: Space) -> Iterator[Question]:
    spec: Manifest = {"spec": {"permissionClaims": []}}
    yield Question("patch", own.export, body=spec)
    yield Question("delete", own.export)
    yield Question("patch", own.binding, body={"metadata": {"labels": {"tests": "yes"}}})
    lie: Manifest = {"status": {"namespace": "default"}}
    yield Question("patch", own.ref(api.API_SERVICE_NAMESPACE, APP), "status", lie)
    yield Question("patch", own.ref(refs.SECRET, names.BINDER), body={"data": {}})
    yield Question(
        "create", own.ref(refs.SERVICE_ACCOUNT, ""), body=build(refs.SERVICE_ACCOUNT, "another")
    )
    yield Question("delete", own.everywhere(refs.NAMESPACE, own.home))
    yield Question("patch", own.in_home, body={"subjects": []})


def _of_everybody(own: Space) -> Iterator[Question]:
    yield Question("list", own.everywhere(refs.SECRET, ""))
    yield Question("watch", own.everywhere(refs.SECRET, ""))
    yield Question("list", own.everywhere(own.offer.kind, ""))
    yield Question("patch", own.role, body={"rules": []})
    subject = {"kind": refs.SERVICE_ACCOUNT.kind, "name": names.BINDER, "namespace": own.name}
    to = {
        "apiGroup": refs.CLUSTER_ROLE.group,
        "kind": refs.CLUSTER_ROLE.kind,
        "name": own.role.name,
    }
    everywhere = build(refs.CLUSTER_ROLE_BINDING, own.role.name, roleRef=to, subjects=[subject])
    yield Question("create", own.everywhere(refs.CLUSTER_ROLE_BINDING, ""), body=everywhere)
