"""Access files, and who may bind what, under each mode; and how answers are kept."""

from pathlib import Path
from typing import Any, Final, cast

import orjson
import pytest

from bind.door import access, authorizer
from bind.door.access import Access, Rule, TrustedIssuer
from bind.door.authorizer import Mode, Reviews, access_file
from bind.door.catalogue import Offer
from bind.door.identity import Identity, Naming, Refused
from reconciler.core.errors import ConfigError, Forbidden, Unreachable
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource
from reconciler.kube.cluster import Writer
from reconciler.kube.requests import Request

HEAD: Final = "apiVersion: bind.klutchctl.dev/v1alpha1\nkind: Access\n"
CI: Final = "https://ci.example.org"
OFFER: Final = Offer(
    "shop", "caches", GroupResource("shop.example", "caches"), "Cache", "cache", "Namespaced"
)
ALICE: Final = Identity(
    CI,
    "repo:example/shop:main",
    "ci:alice",
    ("ci:team-a", "ci:team-b"),
    first=False,
    claims=(("plan", ("gold", "new")),),
)


def parsed(text: str) -> Access:
    return access.parse((HEAD + text).encode(), "/etc/door/access.yaml")


def test_an_issuer_is_read() -> None:
    found = parsed(
        """
issuers:
- alias: ci
  url: https://ci.example.org
  audiences: [https://bind.example.org]
  algorithms: [RS256]
  jwksFile: keys/ci.json
  username: {claim: actor, prefix: "ci:"}
  groups: {claim: teams, prefix: "ci:"}
  require: {owner: [example, other]}
"""
    )
    assert found.issuers == (
        TrustedIssuer(
            "ci",
            CI,
            ("https://bind.example.org",),
            ("RS256",),
            jwks_file="/etc/door/keys/ci.json",
            naming=Naming("actor", "ci:", "teams", "ci:"),
            require={"owner": ("example", "other")},
        ),
    )


def test_users_of_an_issuer_are_not_called_like_those_of_another_unless_it_is_said() -> None:
    (issuer,) = parsed(
        "issuers: [{alias: ci, url: https://ci.example.org, audiences: [x]}]"
    ).issuers
    assert issuer.naming == Naming("sub", f"{CI}#", "groups", f"{CI}#")


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("issuers: [ci]", True),
        ("issuers: [https://ci.example.org]", True),
        ("issuers: [https://idp.example.org]", False),
        ('issuers: [ci], subjects: ["repo:example/*"]', True),
        ('issuers: [ci], subjects: ["repo:example/shop"]', False),
        ('issuers: [ci], subjects: ["repo:example/shop:main"]', True),
        ('issuers: [ci], subjects: ["*"]', True),
        ('groups: ["ci:team-b", "ci:x"]', True),
        ("groups: [team-b]", False),
        ("issuers: [ci], claims: {plan: [silver, gold]}", True),
        ("issuers: [ci], claims: {plan: [silver]}", False),
        ("issuers: [ci], claims: {plan: [gold], none: [x]}", False),
        ("templates: [shop/caches]", True),
        ("templates: [shop/queues, other/caches]", False),
        (
            'issuers: [ci], subjects: ["repo:*"], groups: ["ci:team-a"], templates: [shop/caches]',
            True,
        ),
        ('issuers: [ci], subjects: ["user:*"], groups: ["ci:team-a"]', False),
    ],
)
def test_a_rule_allows_where_all_that_it_says_is_so(rule: str, allowed: bool) -> None:
    found = parsed(
        "issuers: [{alias: ci, url: https://ci.example.org, audiences: [x]}]\n"
        f"allow: [{{{rule}}}]\n"
    )
    assert found.allows(ALICE, OFFER) == allowed


def test_one_rule_that_allows_is_enough_and_none_is_not() -> None:
    assert not parsed("").allows(ALICE, OFFER)
    assert Access(rules=(Rule(subjects=("x",)), Rule(subjects=("repo:*",)))).allows(ALICE, OFFER)


def test_the_claims_that_rules_ask_for_are_known() -> None:
    found = parsed("allow: [{claims: {plan: [x]}}, {claims: {org: [x], plan: [z]}}]")
    assert found.claims == {"plan", "org"}


ISSUER: Final = "issuers:\n- {alias: ci, url: https://ci.example.org, audiences: [x]"


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("issuer: []", "3:1", "issuer is none of"),
        (f"{ISSUER}, requires: {{a: [b]}}}}", "4:60", "requires is none of"),
        (f"{ISSUER}, require: {{a: b}}}}", "4:73", "must be a list"),
        (f"{ISSUER}, require: {{a: []}}}}", "4:73", "no value"),
        (f"{ISSUER}, algorithms: [HS256]}}", "4:72", "HS256 is none of"),
        ("issuers: [{alias: a, url: http://x.example, audiences: [x]}]", "3:27", "https URL"),
        ('issuers: [{alias: a, url: "https://x/|y", audiences: [x]}]', "3:27", "https URL"),
        ("issuers: [{alias: a, url: https://x.example}]", "3:11", "audiences is empty"),
        ("issuers: [{url: https://x.example, audiences: [x]}]", "3:11", "alias is missing"),
        (
            f"{ISSUER}}}\n- {{alias: ci, url: https://x, audiences: [x]}}",
            "4:1",
            "ci is there twice",
        ),
        ("allow: [{}]", "3:9", "allow everything"),
        ("allow: [{subjects: []}]", "3:20", "subjects is empty"),
        ("allow: [{groups: null}]", "3:18", "groups is empty"),
        ('allow: [{subjects: ["a*b"]}]', "3:20", "not its end"),
        ("allow: [{templates: [caches]}]", "3:21", "NAMESPACE/NAME"),
        ("allow: [{issuers: [unknown]}]", "3:19", "no alias"),
        ("allow: {subjects: [x]}", "3:8", "must be a list"),
        (f"{ISSUER}}}\nallow: [{{subjects: [x]}}]", "5:20", "subjects of any issuer"),
        (f"{ISSUER}}}\nallow: [{{claims: {{a: [b]}}}}]", "5:18", "claims of any issuer"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, at: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        parsed(text)
    assert str(raised.value).startswith(f"/etc/door/access.yaml:{at}: ")


@pytest.mark.parametrize(
    "content", [b"", b"kind: Access", HEAD.replace("Access", "Fleet").encode()]
)
def test_another_document_is_no_access_file(content: bytes) -> None:
    with pytest.raises(ConfigError):
        access.parse(content, "access.yaml")


QUEUES: Final = Offer(
    "shop", "queues", GroupResource("shop.example", "queues"), "Queue", "queue", "Namespaced"
)
PERSON: Final = Identity("https://idp.example.org", "alice", "oidc:alice", ("oidc:team-a",))


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
    assert await Reviews(plane, Time()).may_bind(PERSON, OFFER)
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
    assert await Reviews(plane, Time()).may_see_all(PERSON)
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
        found.append(await reviews.may_bind(PERSON, OFFER))
    assert found == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("identity", "offer"),
    [
        (PERSON, QUEUES),
        (Identity(PERSON.issuer, "alice", "oidc:bob", PERSON.groups), OFFER),
        (Identity(PERSON.issuer, "alice", "oidc:alice", ()), OFFER),
    ],
)
async def test_no_answer_is_used_for_another_question(identity: Identity, offer: Offer) -> None:
    reviews = Reviews(Plane(True, False), Time())
    assert await reviews.may_bind(PERSON, OFFER)
    assert not await reviews.may_bind(identity, offer)


@pytest.mark.parametrize("answer", [Forbidden, Unreachable, None, "true"])
async def test_what_is_not_answered_is_refused_and_asked_again(answer: object) -> None:
    reviews = Reviews(Plane(answer, True), Time())
    with pytest.raises(Refused) as refused:
        await reviews.may_bind(PERSON, OFFER)
    assert refused.value.code == "unavailable"
    assert await reviews.may_bind(PERSON, OFFER)


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
    assert await made.may_bind(PERSON, OFFER) == allowed
    assert not await made.may_see_all(PERSON)


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
