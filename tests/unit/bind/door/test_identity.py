"""Identities that tokens prove, and their spaces."""

from typing import Any, Final

import pytest

from bind.bounds import owner_of
from bind.door import sessions
from bind.door.identity import Identity, Naming, identity_of, owner_key, space_identity, space_name
from bind.door.refusals import Refused
from reconciler.oidc.tokens import Claims

ISSUER: Final = "https://idp.example.org"
OIDC: Final = Naming("email", "oidc:", "teams", "oidc:")


def said(raw: dict[str, Any], subject: str = "alice") -> Claims:
    return Claims(ISSUER, subject, raw, 0.0)


def test_an_identity_has_the_claims_that_it_is_known_by() -> None:
    raw = {"email": "a@example.org", "teams": ["a", "b"], "sub": "alice", "plan": True, "org": "x"}
    found = identity_of(said(raw), OIDC, first=True, keep={"plan", "org", "none"})
    assert found == Identity(
        ISSUER,
        "alice",
        "oidc:a@example.org",
        ("oidc:a", "oidc:b"),
        claims=(("none", ()), ("org", ("x",)), ("plan", ("true",))),
    )


@pytest.mark.parametrize("teams", [None, {}, 7.5, [7, None, {}], [""]])
def test_groups_that_are_none_are_left_out(teams: object) -> None:
    found = identity_of(said({"email": "a", "teams": teams}), OIDC, first=True)
    assert found.groups == ()


@pytest.mark.parametrize(
    "claims",
    [
        said({"email": "\ud800"}),
        said({"email": "a", "teams": ["b", "\udfff"]}),
        said({"email": "a"}, subject="\udabc"),
    ],
)
def test_halves_of_characters_name_nobody(claims: Claims) -> None:
    with pytest.raises(Refused) as refused:
        identity_of(claims, OIDC, first=True)
    assert refused.value.code == "invalid_token"


@pytest.mark.parametrize("email", [None, "", 7, ["a"], "x" * 256])
def test_without_a_user_there_is_no_identity(email: object) -> None:
    with pytest.raises(Refused) as refused:
        identity_of(said({"email": email}), OIDC, first=True)
    assert refused.value.code == "invalid_token"


def test_too_many_groups_are_refused_and_not_cut() -> None:
    with pytest.raises(Refused) as refused:
        identity_of(said({"email": "a", "teams": [f"g{n}" for n in range(201)]}), OIDC, first=True)
    assert refused.value.code == "forbidden"


def test_no_subject_of_the_first_provider_looks_like_one_of_another() -> None:
    claims = said({"email": "a"}, subject="https://ci.example.org|alice")
    with pytest.raises(Refused):
        identity_of(claims, OIDC, first=True)
    assert identity_of(claims, OIDC, first=False).subject == claims.subject


IDENTITIES: Final = [
    Identity(ISSUER, "alice", ""),
    Identity(ISSUER, "alice#1", ""),
    Identity(ISSUER, "alice|bob", ""),
    Identity(ISSUER, "alice", "", first=False),
    Identity("https://ci.example.org", "alice", "", first=False),
    Identity("https://ci.example.org", "alice#1", "", first=False),
    Identity("https://ci.example.org", "|alice", "", first=False),
    Identity("https://ci.example.org", "repo:a/b", "", first=False),
]


def test_no_two_identities_and_app_clusters_share_a_space() -> None:
    annotations = [space_identity(one, cid) for one in IDENTITIES for cid in ("1", "2", "1-1")]
    assert len(set(annotations)) == len(annotations)
    named = {space_name("cluster-", one) for one in annotations}
    assert len(named) == len(annotations)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_owner_of_a_space_is_read_from_it(identity: Identity) -> None:
    assert owner_of(space_identity(identity, "4ceiSr")) == owner_key(identity)


def test_the_original_would_find_the_same_space() -> None:
    assert space_identity(Identity(ISSUER, "CgVhbGljZRIEbW9jaw", ""), "4ceiSr") == (
        "CgVhbGljZRIEbW9jaw#4ceiSr"
    )


def test_spaces_of_klutchctl_have_no_owner_here() -> None:
    assert owner_of("klutchctl:fleet/edge") == ""


def test_a_session_keeps_the_claims_that_rules_ask_for() -> None:
    keys = sessions.Keys(b"k" * sessions.KEY_BYTES)
    known = Identity(ISSUER, "alice", "oidc:a", ("oidc:b",), claims=(("plan", ("gold", "new")),))
    session = sessions.Session(known, sessions.Wish(), 100.0)
    text = session.sealed(keys, sessions.SESSION)
    assert sessions.Session.opened(keys, sessions.SESSION, text, 100.0) == session
