"""T19: with hashed names, no app cluster takes the service namespace or the space of another."""

import pytest

from bind.service_namespace.decide import decide, obstacle
from bind.service_namespace.facts import Mapped, Seen, chosen, leaving
from reconciler.core import keys, names
from reconciler.core.decision import Create
from reconciler.core.manifest import annotations_of, name_of, namespace_of
from reconciler.core.refs import NAMESPACE
from tests.support.space_objects import CONTROL_PLANE, NOW, SPACE, live, mapping, space

KEY = Mapped(SPACE, "dev")
(HASHED,) = KEY.hashed(f"uid-of-{SPACE}")
(EARLIER,) = KEY.hashed("earlier")
MARK = {keys.API_SERVICE_NAMESPACE: KEY.mark, keys.SPACE_UID: f"uid-of-{SPACE}"}


def namespace(name, annotations=MARK):
    return live(NAMESPACE, name, metadata={"annotations": annotations})


def seen(*there, **facts):
    known = {"mapping": mapping(), "space": space(), "hashing": True, **facts}
    return Seen(CONTROL_PLANE, KEY, namespaces=there, **known)


CHOSEN = {
    "a new one": (seen(), HASHED),
    "somebody else has the plain name": (seen(namespace(KEY.target, {})), HASHED),
    "it is there already": (seen(namespace(KEY.target)), KEY.target),
    "the status told the plain name": (seen(mapping=mapping(namespace=KEY.target)), KEY.target),
    "a new one, where names are plain": (seen(hashing=False), KEY.target),
    "a hashed one, where names are plain by now": (
        seen(namespace(HASHED), hashing=False), HASHED,
    ),
    "one that was deleted": (seen(hashing=False, mapping=mapping(namespace=HASHED)), HASHED),
    "one of a space that was there before": (
        seen(namespace(EARLIER, MARK | {keys.SPACE_UID: "earlier"})), HASHED,
    ),
    "unless a person gave it to this one": (
        seen(
            namespace(EARLIER, MARK | {keys.SPACE_UID: "earlier"}),
            space=space(annotations={keys.CONFIRM_SPACE: "earlier"}),
        ),
        EARLIER,
    ),
    "which has the present uid from then on": (
        seen(
            namespace(EARLIER),
            space=space(annotations={keys.CONFIRM_SPACE: "earlier"}),
        ),
        EARLIER,
    ),
    "a space that is gone": (seen(space=None), KEY.target),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "want"), CHOSEN.values(), ids=CHOSEN.keys())
def test_what_it_is_called(facts, want):
    assert chosen(facts) == want


def test_a_new_one_is_known_also_without_its_space():
    (task,) = decide(seen(), scope="Namespaced", now=NOW).tasks
    made, rights = task.steps
    assert isinstance(made, Create)
    assert isinstance(rights, Create)
    assert (name_of(made.manifest), namespace_of(rights.manifest)) == (HASHED, HASHED)
    left = namespace(HASHED, dict(annotations_of(made.manifest)))
    assert leaving(seen(left, mapping=None, space=None)) == left


KEPT = {
    "a copy under another name": namespace("restored"),
    "that of another space": namespace(HASHED, MARK | {keys.SPACE_UID: "other"}),
    "of nobody": namespace(HASHED, {keys.SPACE_UID: f"uid-of-{SPACE}"}),
}


@pytest.mark.parametrize("live", KEPT.values(), ids=KEPT.keys())
def test_what_is_not_surely_ours_does_not_go(live):
    assert leaving(seen(live, mapping=None)) is None


LONG = Mapped(SPACE, "x" * 63)
NEW, OLD = LONG.hashed(f"uid-of-{SPACE}")
JUST = Mapped(SPACE, "x" * (63 - len(SPACE) - 1))


@pytest.mark.parametrize(
    ("home", "stated", "want", "length"),
    [
        (LONG, "", NEW, 58),
        (LONG, OLD, OLD, 63),
        (LONG, "of-somebody-else", NEW, 58),
        (JUST, JUST.target, JUST.target, 63),
        (JUST, "", JUST.hashed(f"uid-of-{SPACE}")[0], 58),
    ],
)
@pytest.mark.parametrize("hashing", [True, False])
def test_a_new_name_has_58_characters_and_an_earlier_one_stays(home, stated, want, length, hashing):
    there = mapping(home.name, namespace=stated)
    facts = Seen(CONTROL_PLANE, home, mapping=there, space=space(), hashing=hashing)
    assert (obstacle(facts), chosen(facts), len(want)) == (None, want, length)


def test_no_two_are_called_the_same():
    reported = {
        names.hashed_service_namespaces(space_, name, uid)[0]
        for space_, name in (("a", "b-c"), ("a-b", "c"), ("a", "b"))
        for uid in ("1", "2")
    }
    assert len(reported) == 6
    assert not any(names.label_problem(one) for one in reported)
