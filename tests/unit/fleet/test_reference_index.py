"""A label selector in one line, as kubectl takes it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.core.errors import ConfigError
from reconciler.fleet import reference_index, wording

CLUSTERS = {
    "eu-1": {"env": "prod", "region": "eu", "x.io/tier": "gold"},
    "eu-2": {"env": "test", "region": "eu", "beta": ""},
    "us-1": {"env": "prod", "region": "us"},
    "bare": {},
}

MEANT = {
    "equal": ("env=prod", "eu-1 us-1"),
    "equal, twice": ("env==prod", "eu-1 us-1"),
    "equal to nothing": ("beta=", "eu-2"),
    "not equal holds without the label": ("env!=prod", "bare eu-2"),
    "one of": ("region in (eu,us)", "eu-1 eu-2 us-1"),
    "one of, one of them empty": ("beta in (,x)", "eu-2"),
    "none of": ("region notin (eu)", "bare us-1"),
    "present": ("beta", "eu-2"),
    "absent": ("!beta", "bare eu-1 us-1"),
    "a key with a prefix": ("x.io/tier=gold", "eu-1"),
    "all of them": ("env=prod,region in (eu,us),!beta", "eu-1 us-1"),
    "spaces": (" env = prod , region  in ( eu , us ) , ! beta ", "eu-1 us-1"),
    "a key that is an operator elsewhere": ("in", ""),
    "nothing has it": ("env=dev", ""),
}


@pytest.mark.parametrize(("text", "meant"), MEANT.values(), ids=MEANT.keys())
def test_what_is_meant(text, meant):
    assert (
        reference_index.selected(reference_index.parse_label_query(text), CLUSTERS) == meant.split()
    )


REFUSED = {
    "nothing": ("", "an empty part is no condition"),
    "a comma too many": ("env=prod,", "an empty part is no condition"),
    "no key": ("=prod", "'=prod' is no condition"),
    "two values": ("env=prod test", "'env=prod test' is no condition"),
    "an order": ("env>3", "'env>3' is no condition"),
    "an open list": ("env in (a,b", "'env in (a' is no condition"),
    "no list": ("env in a", "'env in a' is no condition"),
    "a list of lists": ("env in ((a))", "is no condition"),
    "a bad key": ("-env=prod", "'-env' is not a label key"),
    "a long key": (f"{'k' * 64}=prod", "is not a label key"),
    "a bad value": ("env=_", "'_' is not a label value"),
    "a bad value in a list": ("env in (a,b c)", "'b c' is not a label value"),
    "a reference": ("env=${vars.x}", "is not a label value"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(text, says):
    with pytest.raises(ConfigError) as caught:
        reference_index.parse_label_query(text)
    assert says in caught.value.message
    assert "kubectl" in caught.value.hint


@given(st.text(alphabet="abin(),!=<> \n\x1b/.${}", max_size=40))
@example("a in (" * 100)
def test_any_text_is_a_selector_or_refused_in_words_that_print(text):
    said = ""
    try:
        reference_index.parse_label_query(text)
    except ConfigError as error:
        said = error.message
    assert said.isprintable()


def test_labels_are_bounded_and_those_that_were_asked_for_come_first():
    pairs = [("zone", "a"), *(("app", f"a{n:02}") for n in range(30))]
    assert wording.labels([]) == "They have no labels"
    said = wording.labels(pairs * 2, first={"zone"})
    assert said.startswith("Their labels: zone=a, app=a00, ")
    assert said.endswith("app=a18 and 11 more")
