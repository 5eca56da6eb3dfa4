"""Laws of what is made of a plan: the file reads back, and no output lets text act."""

import json
import re
import unicodedata
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from klutchctl.render import plan_formats
from klutchctl.render.terminal import visible
from reconciler.core.decision import FieldChange
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.refs import Kind, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning import changes, planfile
from tests.support.json_values import json_values

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["```", "\x1b[31m", "</details>", "a\nb", "|", "\ud800", "\u202e", "@team", "secrets"]
)
NUMBERS = st.integers(min_value=0, max_value=10**6)
JSONS = json_values(TEXTS, 4)
KINDS = st.builds(Kind, TEXTS, TEXTS, TEXTS, TEXTS, namespaced=st.booleans())
REFS = st.builds(Ref, TEXTS, KINDS, TEXTS, TEXTS)
UNITS = st.builds(UnitKey, TEXTS, TEXTS, TEXTS)
ORIGINS = st.none() | st.builds(Origin, TEXTS, NUMBERS, NUMBERS)
CHANGES = st.builds(
    changes.Change,
    cluster=TEXTS,
    subject=TEXTS,
    ref=REFS,
    action=st.sampled_from(changes.Action),
    reason=TEXTS,
    origin=ORIGINS,
    unit=st.none() | UNITS,
    before=TEXTS,
    uid=TEXTS,
    after=st.none() | st.dictionaries(TEXTS, JSONS, max_size=3),
    fields=st.lists(st.builds(FieldChange, TEXTS, JSONS, JSONS), max_size=2).map(tuple),
    steps=st.lists(
        st.builds(changes.Step, st.sampled_from(changes.Verb), REFS, TEXTS), max_size=2
    ).map(tuple),
    instances=st.none() | st.integers(min_value=1, max_value=2**31),
    keeps_data=st.booleans(),
)


def tuples(values, size=2):
    return st.lists(values, max_size=size).map(tuple)


PLANS = st.builds(
    changes.Plan,
    fleet=TEXTS,
    revision=TEXTS,
    digest=TEXTS,
    changes=tuples(CHANGES, 3),
    sections=st.dictionaries(TEXTS, TEXTS, max_size=3),
    widened=tuples(
        st.builds(
            changes.WidenedClaim,
            unit=UNITS,
            binding=TEXTS,
            claim=TEXTS,
            before=TEXTS,
            after=TEXTS,
            origin=ORIGINS,
        )
    ),
    held=tuples(st.builds(changes.Tripped, TEXTS, TEXTS, tuples(TEXTS))),
    unseen=tuples(st.builds(changes.UnseenCluster, TEXTS, TEXTS, TEXTS)),
    warnings=tuples(TEXTS),
    clusters_total=NUMBERS,
).map(planfile.identified)


@given(PLANS)
def test_a_plan_file_reads_back(plan):
    content = planfile.dump(plan)
    found = planfile.parse(content, "plan")
    assert found == plan
    assert planfile.dump(found) == content  # before and after of fields are not compared by ==


@given(PLANS)
def test_json_output_is_a_plan_file_too(plan):
    assert planfile.parse(plan_formats.as_json(plan).encode(), "plan") == plan


@given(PLANS, st.data())
def test_a_changed_plan_file_is_refused_or_says_the_same(plan, data):
    document = json.loads(planfile.dump(plan))
    key = data.draw(st.sampled_from(sorted(document)))
    document[key] = data.draw(JSONS)
    try:
        found = planfile.parse(json.dumps(document).encode(), "plan")
    except ConfigError:
        return
    assert planfile.plan_id(found) == plan.id


@given(st.binary(max_size=64) | JSONS.map(lambda value: json.dumps(value).encode()))
def test_no_input_breaks_the_reader(content):
    try:
        planfile.parse(content, "plan")
    except ConfigError as error:
        assert str(error).startswith("plan:")  # noqa: PT017
    else:
        raise AssertionError("that was no plan")


@given(PLANS, st.binary(min_size=1, max_size=3), st.data())
def test_no_byte_changes_a_plan_file_unseen(plan, noise, data):
    content = planfile.dump(plan)
    at = data.draw(st.integers(0, len(content) - 1))
    try:
        found = planfile.parse(content[:at] + noise + content[at + len(noise) :], "plan")
    except ConfigError:
        return
    assert found.id == plan.id


@given(PLANS, TEXTS)
def test_the_id_does_not_know_why_a_cluster_is_unseen(plan, text):
    unseen = tuple(replace(one, reason=text, remedy=text) for one in plan.unseen)
    assert planfile.plan_id(replace(plan, unseen=unseen)) == plan.id


def unprintable(text):
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@given(PLANS)
def test_nothing_in_a_text_acts_on_a_terminal(plan):
    assert unprintable(plan_formats.text(plan)) <= {"\n"}
    assert unprintable(plan_formats.comment(plan)) <= {"\n"}


@given(PLANS)
def test_color_only_adds_to_the_text(plan):
    colored = plan_formats.text(plan, color=True)
    assert re.sub("\x1b\\[[0-9]+m", "", colored) == plan_formats.text(plan)


@given(PLANS)
def test_in_markdown_text_of_others_is_fenced_or_escaped(plan):
    markdown = plan_formats.comment(plan)
    assert len(markdown.encode()) <= plan_formats.MAX_BYTES
    outside = re.sub(r"^(`{3,})text\n.*?^\1\n", "", markdown, flags=re.DOTALL | re.MULTILINE)
    ours = re.sub(r"<code>(?:[A-Za-z0-9 +,-]|&#[0-9]+;)*</code>", "", outside)
    assert re.fullmatch(r"(?:[A-Za-z0-9 ,.:*#\n-]|</?details>|</?summary>)+", ours)


@given(TEXTS)
def test_visible_text_stays_visible(text):
    assert visible(visible(text)) == visible(text)
    assert unprintable(visible(text)) == set()
