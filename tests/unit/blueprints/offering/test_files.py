"""What a catalogue becomes, and what files keep of one that was there before."""

from random import Random

import pytest

from reconciler.api.osb import OfferingChoice
from reconciler.blueprints.offering.catalogue import CatalogueFault
from reconciler.blueprints.offering.files import Narrowing
from reconciler.core.manifest import canonical, get, get_text, get_texts, indented
from tests.support.offerings import crd, made, plan, service, spec_of
from tests.support.random_catalogues import Catalogues


def enum_of(output, plural="dbinstances"):
    return get_texts(spec_of(output, plural), "properties", "plan", "enum")


def shuffled(value, random):
    """Return a document with the keys of its objects in another order."""
    if isinstance(value, dict):
        keys = random.sample(list(value), len(value))
        return {key: shuffled(value[key], random) for key in keys}
    return [shuffled(one, random) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(8))
def test_any_catalogue_gives_the_same_files_again_also_without_its_last_plans(seed):
    services = Catalogues(seed).catalogue()["services"]
    first = made(*services)
    again = shuffled(services[::-1], Random(seed))
    assert indented(made(*again, before=first).files) == indented(first.files)
    fewer = [{**one, "plans": one["plans"][:1]} for one in services]
    assert indented(made(*fewer, before=first).files) == indented(first.files)


def test_schemas_that_are_too_large_to_keep_leave_their_names_and_ids():
    wide = [
        plan(f"p{place}", {"properties": {f"x{place}": {"description": "x" * 50_000}}})
        for place in range(4)
    ]
    before = made(service(*wide))
    assert len(canonical(crd(before))) < 100_000
    assert enum_of(made(service(*wide[:2]), before=before)) == ["p0", "p1", "p2", "p3"]


def test_plans_are_sorted_and_a_single_one_is_the_default():
    assert enum_of(made(service(plan("small"), plan("big")))) == ["big", "small"]
    default = ("properties", "plan", "default")
    assert get(spec_of(made(service(plan("small"), plan("big")))), *default) is None
    assert get(spec_of(made(service(plan("small")))), *default) == "small"


def test_a_plan_that_vanished_stays_until_narrowing_is_allowed():
    before = made(service(plan("small"), plan("big")))
    after = made(service(plan("small")), before=before)
    assert enum_of(after) == ["big", "small"]
    assert after.warnings == (
        "offering db: plan big is no longer offered: it stays until --allow-narrowing",
    )
    assert enum_of(made(service(plan("small")), before=before, allow=True)) == ["small"]
    assert made(service(plan("small")), before=after).files == after.files


def test_an_offering_that_vanished_stays_until_narrowing_is_allowed():
    before = made(service(plan("small")), service(plan("tiny"), name="mq"))
    after = made(service(plan("small")), before=before)
    assert after.files == before.files
    assert after.warnings == ("offering mq is no longer offered: it stays until --allow-narrowing",)
    gone = made(service(plan("small")), before=before, allow=True)
    assert gone.before - gone.files.keys() == {
        "crds/mqinstances.services.acme.example.yaml",
        "crds/mqbindings.services.acme.example.yaml",
        "fleet/acme-mq.yaml",
    }


def test_an_offering_that_is_renamed_keeps_its_kinds():
    before = made(service(plan("small")))
    after = made(service(plan("small"), name="database", id="service-db"), before=before)
    assert get_text(crd(after), "spec", "names", "kind") == "DbInstance"


NARROWS = {
    "a known offering has another id": (
        [service(plan("small"))], [service(plan("small"), id="new")],
        "offering db has another id: it is another one",
    ),
    "a known plan has another id": (
        [service(plan("small"))], [service(plan("small", id="new"))],
        "offering db: plan small has another id",
    ),
    "instances cannot leave their plan any more": (
        [service(plan("small", plan_updateable=True))], [service(plan("small"))],
        "offering db: plan small: instances can no longer leave it",
    ),
    "instances can no longer be bound": (
        [service(plan("small"))], [service(plan("small"), bindable=False)],
        "offering db: plan small: its instances can no longer be bound",
    ),
    "a parameter is required now": (
        [service(plan("small", {"properties": {"a": {"type": "string"}}}))],
        [service(plan("small", {"properties": {"a": {"type": "string"}}, "required": ["a"]}))],
        "offering db: plan small: parameters.a: that it has to be there is new",
    ),
    "a value is gone": (
        [service(plan("small", {"properties": {"a": {"enum": ["x", "y"]}}}))],
        [service(plan("small", {"properties": {"a": {"enum": ["x"]}}}))],
        "offering db: plan small: parameters.a: which values it may have is new",
    ),
    "a bound is tighter": (
        [service(plan("small", {"properties": {"a": {"type": "integer", "maximum": 9}}}))],
        [service(plan("small", {"properties": {"a": {"type": "integer", "maximum": 8}}}))],
        "offering db: plan small: parameters.a: its maximum is new",
    ),
    "a type is another one": (
        [service(plan("small", {"properties": {"a": {"type": "integer"}}}))],
        [service(plan("small", {"properties": {"a": {"type": "string"}}}))],
        "offering db: plan small: parameters.a: its type is new",
    ),
    "a parameter of bindings is gone": (
        [service(plan("small", bind={"properties": {"a": {}}, "additionalProperties": False}))],
        [service(plan("small", bind={"properties": {"b": {}}, "additionalProperties": False}))],
        "offering db: plan small: bindings: parameters.a: that it is no parameter is new",
    ),
    "a parameter can no longer be changed": (
        [service(plan("small", {"properties": {"a": {"type": "string"}}}))],
        [service(plan("small", {"properties": {"a": {"type": "string"}}},
                      {"properties": {"b": {"type": "string"}}}))],
        "offering db: plan small: parameters.a: that it cannot be changed is new",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "sentence"), NARROWS.values(), ids=NARROWS)
def test_what_takes_something_away_is_not_written_unless_allowed(before, after, sentence):
    old = made(*before)
    with pytest.raises(Narrowing) as caught:
        made(*after, before=old)
    assert caught.value.sentences == (sentence,)
    assert made(*after, before=old, allow=True).files != old.files


WIDENS = {
    "a plan more": [service(plan("small", {"type": "object"}), plan("big"))],
    "a parameter more": [service(plan("small", {"properties": {"a": {"type": "string"}}}))],
    "an offering more": [service(plan("small", {"type": "object"})), service(plan("x"), name="y")],
}


@pytest.mark.parametrize("after", WIDENS.values(), ids=WIDENS)
def test_what_widens_is_written(after):
    assert made(*after, before=made(service(plan("small", {"type": "object"})))).warnings == ()


REFUSED = {
    "a name without words": ([service(plan("small"), name="!!")], (), "no kind follows"),
    "one that is too long": ([service(plan("small"), name="x" * 52)], (), "set a shorter `kind`"),
    "two alike": (
        [service(plan("a"), name="my-db"), service(plan("b"), name="My DB")], (), "have one kind",
    ),
    "a choice of an offering that is none": (
        [service(plan("small"))], (OfferingChoice("mq"),), "there is no offering 'mq', but db",
    ),
    "a choice of a plan that is none": (
        [service(plan("small"))], (OfferingChoice("db", plans=("big",)),), "has no plan 'big'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("services", "choices", "part"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_named_is_refused(services, choices, part):
    with pytest.raises(CatalogueFault) as caught:
        made(*services, choices=choices)
    assert part in "; ".join(caught.value.problems)


STEMS = {
    "postgresql-db": "PostgresqlDb",
    "my.Service 2": "MyService2",
    "3scale": "S3scale",
    "Größe": "Groe",
}


@pytest.mark.parametrize(("name", "stem"), STEMS.items(), ids=STEMS)
def test_a_kind_is_called_after_the_words_of_its_offering(name, stem):
    output = made(service(plan("small"), name=name))
    assert get_text(crd(output, f"{stem.lower()}instances"), "spec", "names", "kind") == (
        f"{stem}Instance"
    )
