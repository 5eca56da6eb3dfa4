"""Identities that tokens prove, their spaces, and sealed texts: for one purpose and time."""

from dataclasses import replace
from typing import Any, Final

import pytest

from bind.bounds import owner_of
from bind.door import sessions
from bind.door.identity import Identity, Naming, Refused, identity_of, owner_key, space_identity
from bind.door.sessions import CODE, LOGIN, SESSION, UI, Code, Keys, Login, Session, Visit, Wish
from reconciler.core import names
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
    assert identity_of(said({"email": "a", "teams": teams}), OIDC, first=True).groups == ()


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
    named = {names.space_name("cluster-", one) for one in annotations}
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


KEYS = Keys(b"a" * 32)
OTHERS = Keys(b"b" * 32)
NOW = 1_800_000_000.0
ALICE = Identity(
    "https://idp.example",
    "alice",
    "oidc:alice",
    ("oidc:team-a", "oidc:team-b"),
    claims=(("department", ("shop", "web")),),
)
WISH = Wish("http://localhost:40123/callback", "h3Xk9a", "4ceiSr", "c" * 43, True, "databases", "g")
LOGGING_IN = Login("state", "nonce", "verifier", WISH, NOW)
SIGNED_IN = Session(ALICE, WISH, NOW)
REDEEMABLE = Code(ALICE, WISH, NOW, id="1", consent=(0, 2))


def test_a_login_comes_back_as_it_was():
    assert Login.opened(KEYS, LOGGING_IN.sealed(KEYS), NOW + 1) == LOGGING_IN


@pytest.mark.parametrize("purpose", [SESSION, UI])
def test_a_session_comes_back_as_it_was(purpose):
    assert Session.opened(KEYS, purpose, SIGNED_IN.sealed(KEYS, purpose), NOW + 1) == SIGNED_IN


@pytest.mark.parametrize(("idle", "known"), [(0, True), (3_600, True), (3_601, False)])
def test_a_visit_ends_after_an_hour_without_a_page(idle, known):
    begun = SIGNED_IN.sealed(KEYS, UI)
    assert (Visit.opened(KEYS, UI, begun, NOW + idle) is not None) == known
    used = Visit(ALICE, WISH, NOW, used=NOW + 5_000).sealed(KEYS, UI)
    assert (Visit.opened(KEYS, UI, used, NOW + 5_000 + idle) is not None) == known


def test_a_visit_ends_eight_hours_after_the_sign_in_however_it_is_used():
    used = Visit(ALICE, WISH, NOW, used=NOW + 8 * 3_600).sealed(KEYS, UI)
    assert Visit.opened(KEYS, UI, used, NOW + 8 * 3_600) is not None
    assert Visit.opened(KEYS, UI, used, NOW + 8 * 3_600 + 1) is None


@pytest.mark.parametrize("consent", [None, (), (0, 2)])
def test_a_code_comes_back_as_it_was(consent):
    code = replace(REDEEMABLE, consent=consent)
    assert Code.opened(KEYS, CODE, code.sealed(KEYS, CODE), NOW + 1) == code


@pytest.mark.parametrize("purpose", [LOGIN, SESSION, CODE, UI])
def test_a_text_opens_until_its_age(purpose):
    text = KEYS.seal(purpose, {"a": 1}, NOW)
    assert KEYS.open(purpose, text, NOW + purpose.age) == {"a": 1}
    assert KEYS.open(purpose, text, NOW + purpose.age + 1) is None


def test_a_text_opens_for_no_other_purpose():
    text = SIGNED_IN.sealed(KEYS, SESSION)
    assert Session.opened(KEYS, UI, text, NOW) is None
    assert Code.opened(KEYS, CODE, text, NOW) is None


def test_others_keys_open_nothing():
    assert Session.opened(OTHERS, SESSION, SIGNED_IN.sealed(KEYS, SESSION), NOW) is None


@pytest.mark.parametrize("cut", [1, 10, 50, -1, -10])
def test_a_text_that_was_cut_opens_nothing(cut):
    assert Session.opened(KEYS, SESSION, SIGNED_IN.sealed(KEYS, SESSION)[:cut], NOW) is None


@pytest.mark.parametrize("text", ["", "a", "ä" * 200, "\x00", "gAAAAA"])
def test_what_is_not_sealed_opens_nothing(text):
    assert Session.opened(KEYS, SESSION, text, NOW) is None


def test_a_former_key_opens_what_it_sealed_and_seals_nothing():
    renewed = Keys(OTHERS.present, (KEYS.present,))
    assert Session.opened(renewed, SESSION, SIGNED_IN.sealed(KEYS, SESSION), NOW) == SIGNED_IN
    assert Session.opened(KEYS, SESSION, SIGNED_IN.sealed(renewed, SESSION), NOW) is None


def test_forms_are_of_one_session_and_page():
    token = KEYS.form_token("session page")
    assert KEYS.is_form_token(token, "session page")
    assert Keys(OTHERS.present, (KEYS.present,)).is_form_token(token, "session page")
    assert not KEYS.is_form_token(token, "session another")
    assert not OTHERS.is_form_token(token, "session page")
    assert not KEYS.is_form_token("ä", "session page")


def test_keys_are_not_shown():
    assert "aaaa" not in repr(KEYS) + repr(Keys(OTHERS.present, (KEYS.present,)))
    assert "verifier" not in repr(LOGGING_IN).replace("verifier=", "")


def test_forty_groups_fit_into_a_cookie():
    groups = tuple(f"oidc:team-{number}-of-some-department" for number in range(40))
    text = replace(SIGNED_IN, identity=replace(ALICE, groups=groups)).sealed(KEYS, SESSION)
    assert len(text) < sessions.MOST


@pytest.mark.parametrize(
    ("kind", "purpose"),
    [(Session, SESSION), (Code, CODE), (Visit, UI), (Login, LOGIN)],
    ids=["session", "code", "visit", "login"],
)
@pytest.mark.parametrize("value", [{}, {"at": NOW, "new": 1}, {"at": NOW, "identity": {}}])
def test_what_another_version_sealed_is_nothing_and_no_defect(kind, purpose, value):
    text = KEYS.seal(purpose, value, NOW)
    given = (KEYS, text, NOW) if kind is Login else (KEYS, purpose, text, NOW)
    assert kind.opened(*given) is None
