"""A konnector's token, asked all the time while the backend works at what it stands for."""

import asyncio
import contextlib
import itertools
import json
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

import pytest

from bind.settings import Settings
from reconciler import api
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import build
from reconciler.controller.program import Term
from reconciler.core import names, refs
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE, NAMESPACE, SECRET, Kind, Ref
from reconciler.core.times import format_time
from reconciler.kube.connection import Connection, NoCredential
from reconciler.kube.requests import MERGE_PATCH, path_of
from tests.support import removal
from tests.support.backend import backend
from tests.support.eventually import eventually
from tests.support.offers import CREDENTIALS, offered
from tests.support.raw import http_session
from tests.support.served_spaces import (
    APP,
    Damage,
    Space,
    a_space,
    claim,
    damaged_and_repaired,
    gone,
)

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
pytestmark = pytest.mark.timeout(900)  # on a busy machine
RECONCILES = 200
TIMES = 100  # that each forbidden thing is asked for at least
# Of these reconciles any could give or take a right.
GRANTING = ("binderrole", "clusterbinding", "servicenamespace")
CONFIG: Manifest = {"resource": "configmaps", "version": "v1"}


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
        return {**kept, "metadata": {"name": "another", "namespace": ref.namespace}}
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


@dataclass
class Scene:
    """Two served spaces; the konnector has the token of the first."""

    backend: Term
    spaces: tuple[Space, Space]
    konnector: Konnector
    needed: list[Question]
    taken: int = 0  # how many rights of the konnector are out of order by our own hand
    taken_ever: int = 0

    @property
    def cluster(self):
        return self.spaces[0].cluster

    def reconciles(self) -> int:
        """Return how many times rights were looked at."""
        found = self.backend.metrics.registry.collect()
        samples = [each for one in found if one.name == "klutch_reconcile" for each in one.samples]
        ends = [each for each in samples if each.name == "klutch_reconcile_total"]
        return int(sum(each.value for each in ends if each.labels["controller"] in GRANTING))

    async def asks_for_all_that_is_forbidden(self) -> None:
        asked = forbidden(*self.spaces)
        while True:
            found = await self.konnector.all_statuses(asked)
            assert {str(one): status for one, status in found.items() if status != 403} == {}

    async def does_all_that_it_must(self) -> None:
        while True:
            before = self.taken_ever
            whole = not self.taken
            found = await self.konnector.all_statuses(self.needed)
            if whole and self.taken_ever == before:
                assert {str(one): it for one, it in found.items() if not works(it)} == {}

    @contextlib.asynccontextmanager
    async def without(self) -> AsyncIterator[None]:
        """Within the block a right is missing by our own hand; at its end all are back."""
        self.taken += 1
        self.taken_ever += 1
        yield
        await eventually(self.may_do_all_that_it_must)
        self.taken -= 1

    async def may_do_all_that_it_must(self) -> bool:
        quick = [one for one in self.needed if one.verb != "watch"]
        found = await self.konnector.all_statuses(quick)
        assert {str(one): it for one, it in found.items() if not works(it)} == {}
        return True


def works(status: int) -> bool:
    """Return if a call was allowed: an object that changed meanwhile is no matter of rights."""
    return status in (200, 201, 409)


@contextlib.asynccontextmanager
async def staged(control_plane, namespace) -> AsyncIterator[Scene]:
    cluster = control_plane.cluster
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as own,
        a_space(cluster, offer) as other,
        backend(control_plane.connection, Settings()) as made,
    ):
        for space in (own, other):
            await space.served()
            for kind in (offer.kind, SECRET):
                await cluster.create(build(kind, COPY, namespace=space.home), kind, manager="tests")
        token = b64decode(await own.token()).decode()
        async with Konnector(control_plane.connection, token) as konnector:
            yield Scene(made, (own, other), konnector, await needed(own))


async def claims_change(scene: Scene) -> None:
    """By the template, and by hand, which the template undoes."""
    own = scene.spaces[0]
    for claims in ([CREDENTIALS, CONFIG], [CREDENTIALS]):
        await claim(scene.cluster, own.offer, claims)
        await given(scene, claims)
    for space in scene.spaces:
        more: Manifest = {"spec": {"permissionClaims": [CREDENTIALS, CONFIG]}}
        await space.patch(space.export, more)
    await given(scene, [CREDENTIALS])


async def given(scene: Scene, claims: list[Manifest]) -> None:
    """Wait until exports and rights are as claimed."""
    wanted = sorted(get_text(one, "resource") for one in claims)

    async def so():
        for space in scene.spaces:
            export, role = await space.at(space.export), await space.at(space.role)
            claimed = [one["resource"] for one in export["spec"]["permissionClaims"]]
            allowed = [one["resources"][0] for one in role["rules"]]
            if (sorted(claimed), sorted(allowed)) != (wanted, sorted([*wanted, "databases"])):
                return False
        return True

    await eventually(so)


async def app_namespaces_come_and_go(scene: Scene) -> None:
    for space in scene.spaces:
        await space.make(API_SERVICE_NAMESPACE, "guest")
    for space in scene.spaces:
        home = names.service_namespace(space.name, "guest")
        mapping = space.ref(API_SERVICE_NAMESPACE, "guest")

        async def reported(space=space, mapping=mapping, home=home):
            return get_text(await space.at(mapping), "status", "namespace") == home

        await eventually(reported)
        await removal.remove(space.cluster, mapping)
        await gone(space.cluster, space.everywhere(NAMESPACE, home))


async def hearts_beat(scene: Scene) -> None:
    for space in scene.spaces:
        beat = {"lastHeartbeatTime": format_time(datetime.now(UTC)), "heartbeatInterval": "5m0s"}
        await space.patch(space.binding, {"status": beat}, subresource="status")


async def rights_are_damaged(scene: Scene) -> None:
    roles = [one.role for one in scene.spaces]
    bindings = [ref for one in scene.spaces for ref in (one.in_space, one.in_home)]
    of_all = scene.spaces[0].everywhere(CLUSTER_ROLE, names.BINDER)
    for damage, places in (
        (Damage.emptied, [*roles, *bindings]),
        (Damage.removed, [*roles, *bindings]),
        (Damage.misled, bindings),
        (Damage.emptied, [of_all]),
        (Damage.removed, [of_all]),
    ):
        async with scene.without():
            done = (damaged_and_repaired(scene.cluster, ref, damage) for ref in places)
            await asyncio.gather(*done)


CHURN = (claims_change, hearts_beat, app_namespaces_come_and_go, hearts_beat, rights_are_damaged)


async def test_no_right_flaps(control_plane, namespace):
    mark = control_plane.audit.mark()
    async with staged(control_plane, namespace) as scene:
        await eventually(scene.may_do_all_that_it_must)  # the API server hears of it by and by
        begun = scene.reconciles()
        asking = forbidden(*scene.spaces)
        assert len(asking) == 20

        def enough() -> bool:
            asked = min(scene.konnector.answers[one].total() for one in asking)
            return scene.reconciles() - begun >= RECONCILES and asked >= TIMES

        async with asyncio.TaskGroup() as group:
            loops = (scene.asks_for_all_that_is_forbidden, scene.does_all_that_it_must)
            running = [group.create_task(one()) for one in loops]
            for churn in itertools.cycle(CHURN):
                await churn(scene)
                if enough():
                    break
            for one in running:
                one.cancel()
    written = control_plane.audit.writes_since(mark)
    ours = [one for one in written if one.agent == "klutch-bind"]
    assert {one.resource for one in ours} >= {"clusterroles", "rolebindings"}
    # Those that other tests left behind may be taken away.
    everywhere = [one for one in ours if one.resource == "clusterrolebindings"]
    assert {one.verb for one in everywhere} <= {"delete"}
