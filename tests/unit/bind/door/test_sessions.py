"""Sealed texts: for one purpose, for one time, by one installation."""

from dataclasses import replace

import pytest

from bind.door import sessions
from bind.door.identity import Identity
from bind.door.sessions import CODE, LOGIN, SESSION, UI, Code, Keys, Login, Session, Visit, Wish

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
