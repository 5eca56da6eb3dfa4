"""What the example operator decides about a ServiceBinding, and which password a role has."""

import base64

import pytest

from postgresql_operator.binding import Seen, decide
from postgresql_operator.wire import ROTATE
from postgresql_server.scram import fits
from postgresql_server.works import LetIn, Place, Role, ShutOut
from reconciler.core.decision import Apply, Create
from reconciler.core.manifest import annotations_of, get_text, get_text_map, uid_of
from reconciler.core.secret import Secret
from tests.unit.services.objects import (
    CLUSTER,
    DATABASE,
    FRESH,
    LOGIN,
    PLACE,
    Gist,
    binding,
    gist,
    instance,
    secret,
    verifier_of,
)

KNOWN = Role(frozenset({DATABASE}), verifier_of("known"))
ELSEWHERE = Role(frozenset({"instance_0"}), verifier_of("known"))
NEW = binding()
BOUND = binding(phase="Ready")


def rotating(to, **how):
    return binding(annotations={ROTATE: to}, **how)


def seen(live=BOUND, *, served=instance(), role=KNOWN, found=secret(), place=PLACE):  # noqa: B008
    return Seen(CLUSTER, live, instance=served, place=place, role=role, secret=found, fresh=FRESH)


READY = ("Ready", {"Bound": "True"})
STAYS: Gist = ([], [], *READY)
MADE = (["LetIn"], ["Create Secret"], *READY)
RENEWED = (["LetIn"], ["Apply Secret"], *READY)
GOES: Gist = (["ShutOut"], ["Delete Secret", "release ServiceBinding"], "", {})


def waits(reason, phase="Pending"):
    return [], [], phase, {"Bound": reason}


CASES = {
    "a new one is held before anything is made for it": (
        seen(binding(held=False), role=None, found=None),
        ([], ["hold ServiceBinding"], "", {}),
    ),
    "what is held gets a role and a Secret": (seen(NEW, role=None, found=None), MADE),
    "agreement is silence": (seen(), STAYS),
    "without its instance it waits, and holds nothing": (
        seen(binding(held=False), served=None, role=None, found=None),
        waits("InstanceNotReady"),
    ),
    "with one that is not ready, too": (
        seen(NEW, served=instance(phase="Failed"), role=None, found=None),
        waits("InstanceNotReady"),
    ),
    "what was bound says so, and stays": (seen(served=None), waits("InstanceNotReady", "")),
    "an instance that goes takes no new one": (
        seen(
            binding(held=False),
            served=instance(phase="Deleting", deleting=True),
            role=None,
            found=None,
        ),
        waits("InstanceDeleting"),
    ),
    "and serves the old ones until they go": (
        seen(served=instance(phase="Deleting", deleting=True)),
        STAYS,
    ),
    "a crash between the role and the Secret is healed by a new password": (
        seen(NEW, found=None),
        MADE,
    ),
    "so is one within a rotation": (seen(role=Role(KNOWN.member_of, verifier_of("next"))), RENEWED),
    "a Secret that was deleted is made with a new password": (seen(found=None), MADE),
    "a role that was deleted, too": (seen(role=None), RENEWED),
    "a password that was edited counts for nothing": (seen(found=secret("guessed")), RENEWED),
    "one that is no text, too": (seen(found=secret() | {"data": {"password": "//8="}}), RENEWED),
    "a new value asks for a rotation": (seen(rotating("2", phase="Ready")), RENEWED),
    "each value for one": (seen(rotating("2", phase="Ready"), found=secret(rotation="2")), STAYS),
    "another value for another": (
        seen(rotating("3", phase="Ready"), found=secret(rotation="2")),
        RENEWED,
    ),
    "no value asks for nothing": (seen(found=secret(rotation="2")), STAYS),
    "a server that moved reaches the Secret, with the same password": (
        seen(place=Place("127.0.0.1", 6543)),
        ([], ["Apply Secret"], *READY),
    ),
    "a Secret of somebody else is left alone": (
        seen(NEW, role=None, found=secret(owner="other")),
        ([], [], "", {"Bound": "SecretTaken"}),
    ),
    "a role of an instance that had this name is made anew": (
        seen(role=ELSEWHERE),
        (["ShutOut", "LetIn"], ["Apply Secret"], *READY),
    ),
    "what goes is shut out, then forgotten": (seen(binding(deleting=True)), GOES),
    "also where the instance is gone": (seen(binding(deleting=True), served=None), GOES),
    "a Secret of somebody else stays": (
        seen(binding(deleting=True), found=secret(owner="other")),
        (["ShutOut"], ["release ServiceBinding"], "", {}),
    ),
    "one that others hold is none of our business": (
        seen(binding(deleting=True, held=False)),
        ([], [], "", {}),
    ),
}


@pytest.mark.parametrize(("facts", "want"), CASES.values(), ids=CASES.keys())
def test_decide(facts, want):
    assert gist(decide(facts)) == want


def values(manifest):
    data = get_text_map(manifest, "data")
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def step_of(facts):
    ((task,), works) = decide(facts).decision.tasks, decide(facts).works
    (step,) = task.steps
    assert isinstance(step, Create | Apply)
    return step.manifest, works


def test_a_moved_server_costs_no_password():
    made, works = step_of(seen(place=Place("127.0.0.1", 6543)))
    assert works == ()
    assert (values(made)["password"], values(made)["port"]) == ("known", "6543")


def test_a_secret_is_overwritten_only_as_it_was_looked_at():
    made, _ = step_of(seen(found=secret("guessed")))
    assert uid_of(made) == uid_of(secret())
    assert get_text(made, "metadata", "resourceVersion") == "3"


def test_the_secret_notes_which_rotation_it_is_of():
    made, _ = step_of(seen(rotating("2")))
    assert annotations_of(made) == {ROTATE: "2"}


def test_a_name_may_be_chosen():
    chosen, _ = step_of(seen(binding(secret_name="login"), role=None, found=None))
    assert get_text(chosen, "metadata", "name") == "login"


def test_who_had_the_role_before_is_out_before_it_is_made_anew():
    assert decide(seen(role=ELSEWHERE)).works == (ShutOut(LOGIN), LetIn(LOGIN, DATABASE, FRESH))


def test_nothing_that_is_printed_shows_a_password():
    facts = seen(found=secret("guessed"))
    shown = f"{facts} {decide(facts)}"
    for text in ("a-new-password", "guessed", verifier_of("known")):
        assert text not in shown
        assert base64.b64encode(text.encode()).decode() not in shown


# The salt, rounds and password of the exchange in RFC 7677, 3; StoredKey by its formulas.
RFC_7677 = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
    "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)
PASSWORDS = {
    "the password of the RFC": (RFC_7677, "pencil", True),
    "another": (RFC_7677, "pencils", False),
    "a beginning": (RFC_7677, "penci", False),
    "none": (RFC_7677, "", False),
    "one of ours": (verifier_of("a-b_c", rounds=1000), "a-b_c", True),
    "beyond ASCII, which would need preparation": (verifier_of("ä"), "ä", False),
    "no password at all": ("", "", False),
    "an MD5 hash": ("md5a3556571e93b0d20722ba62be61e8c2d", "pencil", False),
    "what is cut off": (RFC_7677[:40], "pencil", False),
    "rounds that take minutes": (RFC_7677.replace("4096", "999999999"), "pencil", False),
    "no rounds": (RFC_7677.replace("4096", "0"), "pencil", False),
    "what is no base64": ("SCRAM-SHA-256$4096:!$!:!", "pencil", False),
}


@pytest.mark.parametrize(("verifier", "password", "want"), PASSWORDS.values(), ids=PASSWORDS.keys())
def test_fits(verifier, password, want):
    assert fits(verifier, Secret(password)) is want
