"""Who may bind what, under each mode, and how answers are kept."""

from pathlib import Path
from typing import Any, Final, cast

import orjson
import pytest

from bind.door import access, authorizer
from bind.door.authorizer import Mode, Reviews, access_file
from bind.door.catalogue import Offer
from bind.door.identity import Identity
from bind.door.refusals import Refused
from reconciler.core.errors import ConfigError, Forbidden, Unreachable
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource
from reconciler.kube.cluster import Writer
from reconciler.kube.requests import Request

OFFER: Final = Offer(
    "shop", "caches", GroupResource("shop.example", "caches"), "Cache", "cache", "Namespaced"
)
QUEUES: Final = Offer(
    "shop", "queues", GroupResource("shop.example", "queues"), "Queue", "queue", "Namespaced"
)
ALICE: Final = Identity("https://idp.example.org", "alice", "oidc:alice", ("oidc:team-a",))


class Plane(Writer):
    """A control plane that only answers reviews."""

    name = "cp"

    def __init__(self, *answers: object) -> None:
        self.answers, self.requests = list(answers), list[Request]()

    async def send(self, request: Request) -> Manifest:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, type) and issubclass(answer, (Forbidden, Unreachable)):
            raise answer("no", ref=request.ref, verb=request.verb)
        return {
            "kind": "SubjectAccessReview",
            "metadata": {},
            "status": {"allowed": cast("JSON", answer)},
        }

    def pages(self, *_: object) -> Any:
        raise NotImplementedError

    def watch(self, *_: object, **__: object) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_review_asks_for_the_verb_on_the_template() -> None:
    plane = Plane(True)
    assert await Reviews(plane, Time()).may_bind(ALICE, OFFER)
    (request,) = plane.requests
    assert request.target.partition("?")[0] == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert request.method == "POST"
    assert orjson.loads(request.body or b"")["spec"] == {
        "user": "oidc:alice",
        "groups": ["oidc:team-a"],
        "resourceAttributes": {
            "verb": "bind",
            "group": "example-backend.klutch.anynines.com",
            "resource": "apiserviceexporttemplates",
            "namespace": "shop",
            "name": "caches",
        },
    }


async def test_a_review_asks_for_the_list_of_all_bindings() -> None:
    plane = Plane(True)
    assert await Reviews(plane, Time()).may_see_all(ALICE)
    (request,) = plane.requests
    assert orjson.loads(request.body or b"")["spec"]["resourceAttributes"] == {
        "verb": "list",
        "group": "klutch.anynines.com",
        "resource": "clusterbindings",
    }


async def test_answers_are_kept_for_ten_seconds_whatever_they_are() -> None:
    time, plane = Time(), Plane(False, True, False)
    reviews, found = Reviews(plane, time), []
    for now in (100.0, 109.9, 110.0, 119.9, 120.0):
        time.now = now
        found.append(await reviews.may_bind(ALICE, OFFER))
    assert found == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("identity", "offer"),
    [
        (ALICE, QUEUES),
        (Identity(ALICE.issuer, "alice", "oidc:bob", ALICE.groups), OFFER),
        (Identity(ALICE.issuer, "alice", "oidc:alice", ()), OFFER),
    ],
)
async def test_no_answer_is_used_for_another_question(identity: Identity, offer: Offer) -> None:
    reviews = Reviews(Plane(True, False), Time())
    assert await reviews.may_bind(ALICE, OFFER)
    assert not await reviews.may_bind(identity, offer)


@pytest.mark.parametrize("answer", [Forbidden, Unreachable, None, "true"])
async def test_what_is_not_answered_is_refused_and_asked_again(answer: object) -> None:
    reviews = Reviews(Plane(answer, True), Time())
    with pytest.raises(Refused) as refused:
        await reviews.may_bind(ALICE, OFFER)
    assert refused.value.code == "unavailable"
    assert await reviews.may_bind(ALICE, OFFER)


async def test_no_provider_makes_anybody_a_part_of_the_control_plane() -> None:
    plane = Plane(False)
    reviews = Reviews(plane, Time())
    assert not await reviews.may_bind(Identity("x", "x", "system:admin"), OFFER)
    assert not await reviews.may_bind(Identity("x", "x", "x", ("system:masters", "y")), OFFER)
    (request,) = plane.requests
    assert orjson.loads(request.body or b"")["spec"]["groups"] == ["y"]


@pytest.mark.parametrize(
    ("mode", "allowed"), [("Authenticated", True), ("SubjectAccessReview", False), ("Rules", False)]
)
async def test_each_mode_has_its_own_answer(mode: Mode, allowed: bool) -> None:
    made = authorizer.authorizer(
        mode, cluster=Plane(False, False), monotonic=Time(), access=lambda: access.NO_ACCESS
    )
    assert await made.may_bind(ALICE, OFFER) == allowed
    assert not await made.may_see_all(ALICE)


HEAD: Final = "apiVersion: bind.klutchctl.dev/v1alpha1\nkind: Access\n"


def test_an_access_file_is_read_again_and_a_bad_one_is_not_used(tmp_path: Path) -> None:
    time, path = Time(), tmp_path / "access.yaml"
    path.write_text(HEAD)
    file = access_file(path, time)
    found = []
    for text in ("allow: [{subjects: [a]}]", "allow: [{}]", None, "allow: [{subjects: [bc]}]"):
        if text is None:
            path.unlink()
        else:
            path.write_text(HEAD + text)
        found.append([rule.subjects for rule in file().rules])
        time.now += 2
        found.append([rule.subjects for rule in file().rules])
    a, bc = [("a",)], [("bc",)]
    assert found == [[], a, a, a, a, a, a, bc]


@pytest.mark.parametrize("text", [None, "allow: [{}]"])
def test_a_door_does_not_start_with_a_bad_access_file(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "access.yaml"
    if text is not None:
        path.write_text(HEAD + text)
    with pytest.raises(ConfigError, match=r"access\.yaml"):
        access_file(path, Time())
