"""What an access file says, and what is wrong in one."""

from typing import Final

import pytest

from bind.door import access
from bind.door.access import Access, Rule, TrustedIssuer
from bind.door.catalogue import Offer
from bind.door.identity import Identity, Naming
from reconciler.core.errors import ConfigError
from reconciler.core.refs import GroupResource

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
