"""Laws of the pure core, for whatever hypothesis comes up with."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import assume, example, given
from hypothesis import strategies as st

from reconciler.blueprints.objects import with_defaults
from reconciler.core import conditions, field_set, names
from reconciler.core.manifest import canonical, covers, digest, drop, get, put
from reconciler.core.normalize import canonical_quantity, normalize
from reconciler.core.secret import HIDDEN, redact, scrub
from reconciler.core.server_side_apply import unstated
from reconciler.core.times import (
    format_duration,
    format_time,
    parse_duration,
    parse_time,
    people_read,
)
from tests.support.json_values import json_values

# A deadline would test the machine.

JSONS = json_values(st.text(max_size=8), 12, size=4)
OBJECTS = st.dictionaries(st.text(max_size=4), JSONS, max_size=4)
LABELS = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\Z")


def outcome(read, text):
    """Return what was read, or the sentence of its ValueError. Other errors fail the test."""
    try:
        return read(text)
    except ValueError as error:
        return str(error)


# Manifests


@given(JSONS)
def test_every_value_covers_itself(value):
    assert covers(value, value)


@given(OBJECTS, OBJECTS)
def test_more_in_the_live_object_never_uncovers(live, more):
    assert covers({**more, **live}, {k: v for k, v in live.items() if v is not None})


# A null and an empty value state that something is absent: {"a": 1} covers {}, and {} covers
# {"a": None}, which the first does not.
PRESENT = st.recursive(
    st.booleans() | st.integers(-2, 2) | st.text(max_size=1),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from("ab"), inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)


@given(JSONS | PRESENT, JSONS | PRESENT, PRESENT)
def test_covering_what_is_present_is_transitive(one, two, three):
    if covers(one, two) and covers(two, three):
        assert covers(one, three)


@given(JSONS)
def test_equal_values_have_one_canonical_form(value):
    text = canonical(value)
    assert canonical(json.loads(text)) == text
    assert digest(value) == digest(json.loads(json.dumps(value)))


@given(JSONS, JSONS)
def test_one_canonical_form_means_equal_values(one, two):
    if canonical(one) == canonical(two):
        assert covers(one, two)
        assert covers(two, one)


@given(OBJECTS, JSONS, st.lists(st.text(max_size=4), min_size=1, max_size=4))
def test_what_was_put_is_there_until_dropped(manifest, value, path):
    changed = put(manifest, value, *path)
    assert get(changed, *path) == value
    assert get(drop(changed, *path), *path) is None


# Conditions

CONDITIONS = st.builds(
    conditions.Condition,
    type=st.sampled_from([conditions.READY, "A", "B", "C", "Connected"]),
    status=st.sampled_from([conditions.TRUE, conditions.FALSE, conditions.UNKNOWN]),
    severity=st.sampled_from(["", conditions.ERROR, conditions.WARNING, conditions.INFO]),
    reason=st.sampled_from(["", "R", "S"]),
    message=st.sampled_from(["", "m", "n"]),
    last_transition_time=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    extra=st.dictionaries(st.sampled_from(["x", "y"]), st.integers(), max_size=2),
)
LISTS = st.lists(CONDITIONS, max_size=6, unique_by=lambda each: each.type)
CLOCK = st.integers(0, 10**7).map(lambda s: datetime(2026, 2, 1, tzinfo=UTC) + timedelta(seconds=s))


@given(LISTS, CONDITIONS, CLOCK, CLOCK)
def test_setting_twice_is_setting_once(held, new, now, later):
    once = conditions.set_condition(held, new, now=now)
    assert conditions.set_condition(once, new, now=later) == once


@given(LISTS, CONDITIONS, CLOCK)
def test_a_set_touches_its_type_only_and_orders_the_list(held, new, now):
    after = conditions.set_condition(held, new, now=now)
    assert after == conditions.ordered(after)
    assert {c for c in after if c.type != new.type} == {c for c in held if c.type != new.type}
    assert [c.type for c in after].count(new.type) == 1


@given(LISTS, CONDITIONS, CLOCK)
def test_the_time_moves_only_with_what_is_said(held, new, now):
    old = next((c for c in held if c.type == new.type), None)
    [after] = [c for c in conditions.set_condition(held, new, now=now) if c.type == new.type]
    kept = old.last_transition_time if old is not None and old.agrees_with(after) else ""
    assert after.last_transition_time == (kept or format_time(now))


@given(LISTS.flatmap(lambda held: st.tuples(st.just(held), st.permutations(held))))
def test_the_summary_does_not_depend_on_the_order(lists):
    held, shuffled = lists
    assert conditions.summary(held) == conditions.summary(shuffled)


@given(LISTS, CLOCK, CLOCK)
def test_the_summary_is_stable(held, now, later):
    once = conditions.summarize(held, now=now)
    assert conditions.summarize(once, now=later) == once


@given(LISTS)
def test_ready_is_true_without_any_false_and_with_a_true(held):
    ready = conditions.summary(held)
    statuses = {c.status for c in held if c.type != conditions.READY}
    assert (ready is not None and ready.status == conditions.TRUE) == (
        conditions.TRUE in statuses and conditions.FALSE not in statuses
    )


@given(LISTS)
def test_conditions_survive_the_wire(held):
    assert conditions.parse(conditions.dump(held)) == tuple(held)


@given(st.lists(JSONS, max_size=4))
def test_any_json_can_be_read_as_conditions(items):
    assert all(condition.type for condition in conditions.parse(items))


# Times


@given(st.integers(0, 106_000 * 86_400).map(lambda seconds: timedelta(seconds=seconds)))
def test_durations_survive_the_wire(span):
    assert parse_duration(format_duration(span)) == parse_duration(people_read(span)) == span


@given(st.text(alphabet="0123456789.hmsunµ+- ", max_size=30))
@example("1h" * 40_000)
def test_any_text_is_a_duration_or_a_value_error(text):
    result = outcome(parse_duration, text)
    assert isinstance(result, timedelta) or len(result) < 250


@given(
    st.datetimes(
        min_value=datetime(1, 1, 3),  # noqa: DTZ001 - hypothesis adds the zone
        max_value=datetime(9999, 12, 29),  # noqa: DTZ001
        timezones=st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))),
    )
)
def test_times_survive_the_wire(time):
    assert parse_time(format_time(time)) == time.replace(microsecond=0)
    assert parse_time(time.isoformat()) == time


@given(st.text(alphabet="0123456789-:TZ+.", max_size=30))
def test_any_text_is_a_time_or_a_value_error(text):
    result = outcome(parse_time, text)
    if isinstance(result, datetime):
        assert result.tzinfo is UTC
    else:
        assert "is not a" in result


# Names


@given(LABELS, LABELS)
def test_names_of_a_direct_unit_are_labels(fleet, cluster):
    space = names.direct_space(fleet, cluster)
    assert names.label_problem(space) == ""
    assert re.fullmatch(r"cluster-[a-z2-7]{10}", space)
    assert names.label_problem(names.kubeconfig_secret(space)) == ""
    # The longest app namespace for which a service namespace still fits.
    assert names.label_problem(names.service_namespace(space, "n" * 44)) == ""


@given(st.tuples(LABELS, LABELS), st.tuples(LABELS, LABELS))
def test_direct_units_have_spaces_and_identities_of_their_own(one, other):
    assume(one != other)
    assert names.direct_space(*one) != names.direct_space(*other)
    assert names.direct_identity(*one) != names.direct_identity(*other)


@given(LABELS, LABELS)
def test_no_login_can_claim_a_direct_space(fleet, cluster):
    assert "#" not in names.direct_identity(fleet, cluster)


@given(st.text(max_size=80), st.text(max_size=80))
@example("x" * 300, "y" * 300)
def test_request_names_are_labels_for_whatever_names(binding, template):
    assume(not any(0xD800 <= ord(c) <= 0xDFFF for c in template))
    assert names.label_problem(names.export_request(binding, template)) == ""


@given(LABELS, LABELS, LABELS)
def test_requests_of_one_binding_differ_by_template(binding, one, other):
    assume(one != other)
    assert names.export_request(binding, one) != names.export_request(binding, other)


@given(LABELS, LABELS)
def test_a_copy_leads_back_to_its_claim(space, name):
    copy = names.copy_name(space, name)
    assert names.claim_name(space, copy) == name
    assert names.subdomain_problem(copy) == ""


@given(LABELS, LABELS, LABELS)
def test_names_in_one_space_are_injective(space, one, other):
    assume(one != other)
    assert names.copy_name(space, one) != names.copy_name(space, other)
    assert names.service_namespace(space, one) != names.service_namespace(space, other)
    assert names.space_cluster_role(one) != names.space_cluster_role(other)


# Values


@given(st.integers(0, 10**12), st.sampled_from(["", "k", "M", "Ki", "Mi", "m", "e3", "u"]))
def test_a_canonical_quantity_is_its_own(number, suffix):
    once = canonical_quantity(f"{number}{suffix}")
    assert canonical_quantity(once) == once


@given(st.text(max_size=12) | st.text(alphabet="0123456789.eEkMinum+-", max_size=8))
def test_any_text_is_a_quantity_or_a_value_error(text):
    result = outcome(canonical_quantity, text)
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", result) or "is not a quantity" in result


KINDS = st.sampled_from(
    [
        ("apps/v1", "Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("klutch.anynines.com/v1alpha1", "APIServiceBinding"),
        ("klutch.anynines.com/v1alpha1", "APIServiceExportRequest"),
        ("klutch.anynines.com/v1alpha1", "AppClusterBinding"),
        ("v1", "Secret"),
        ("v1", "Namespace"),
    ]
)
PATHS = st.sampled_from(
    [
        ("rules",),
        ("subjects",),
        ("roleRef",),
        ("data",),
        ("stringData",),
        ("metadata", "labels"),
        ("spec", "permissionClaims"),
        ("spec", "resources"),
        ("spec", "apiExports"),
        ("spec", "strategy"),
        ("spec", "konnector", "overrides"),
        ("spec", "template", "spec", "containers"),
    ]
)


@st.composite
def manifests(draw):
    """Objects of the kinds that have rules, with anything at all where the rules look."""
    version, kind = draw(KINDS)
    manifest = {"apiVersion": version, "kind": kind}
    for _ in range(draw(st.integers(0, 3))):
        manifest = put(manifest, draw(JSONS), *draw(PATHS))
    return manifest


@given(manifests())
def test_normalising_takes_anything_and_is_idempotent(manifest):
    once = normalize(manifest)
    assert normalize(once) == once
    assert covers(once, once)


@given(manifests())
def test_completing_takes_anything_and_is_idempotent(manifest):
    once = with_defaults(manifest)
    assert with_defaults(once) == once


# Secrets

VALUES = st.text(alphabet=st.characters(codec="utf-8"), min_size=8, max_size=40)


@example(data={"key": "apiVersi"}, plain={}, note=False)
@given(
    data=st.dictionaries(LABELS, VALUES, min_size=1, max_size=4),
    plain=st.dictionaries(LABELS, VALUES, max_size=4),
    note=st.booleans(),
)
def test_no_value_of_a_secret_is_shown(data, plain, note):
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    record = json.dumps({"data": encoded}) if note else "; ".join(data.values())
    shown = repr(redact(secret_with(encoded, plain, record)))
    # A value may be a word that stands there anyway, such as a field's name or a key.
    without = repr(secret_with(dict.fromkeys(data, ""), dict.fromkeys(plain, ""), ""))
    for value in (*data.values(), *plain.values(), *encoded.values()):
        for written in (value, repr(value)[1:-1]):
            assert written not in shown or written in without


def secret_with(data, plain, record):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"uid": "u", "annotations": {"record": record}},
        "data": data,
        "stringData": plain,
    }


@given(
    st.lists(st.text(alphabet="abcd", min_size=4, max_size=9), max_size=4),
    st.text(alphabet="abcd "),
)
def test_nothing_is_left_of_a_scrubbed_secret(secrets, text):
    cleaned = scrub(f"{text}{''.join(secrets)}", tuple(secrets))
    assert not any(secret in cleaned.replace(HIDDEN, "\n") for secret in secrets)


# Managed fields

STEPS = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'v:"y"', "i:0"])
FIELDS = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(STEPS | st.just("."), inner, max_size=3),
    max_leaves=8,
).map(lambda fields: clean(fields))


def clean(fields):
    """Make `.` a leaf, as it always is."""
    return {step: {} if step == "." else clean(parts) for step, parts in fields.items()}


def managed(*entries):
    return {
        "metadata": {
            "resourceVersion": "1",
            "managedFields": [
                {"manager": manager, "operation": operation, "fieldsV1": fields}
                for manager, operation, fields in entries
            ],
        }
    }


@given(FIELDS, FIELDS, FIELDS)
def test_a_takeover_keeps_every_path_and_leaves_nothing_to_take(applied, created, theirs):
    live = managed(("us", "Apply", applied), ("us", "Update", created), ("them", "Update", theirs))
    patch = field_set.created_to_applied(live, manager="us")
    assert patch is not None
    after = put(live, patch[1]["value"], "metadata", "managedFields")
    roots = {()}
    assert owned_by(after, "us") - roots == owned_by(live, "us") - roots
    assert owned_by(after, "them") == owned_by(live, "them")
    assert field_set.created_to_applied(after, manager="us") is None


def owned_by(live, manager):
    """Return the paths of all entries of a manager, one by one."""
    entries = [entry for entry in field_set.entries_of(live) if field_set.is_by(entry, (manager,))]
    return {path for entry in entries for path in field_set.paths(field_set.fields_of(entry))}


@given(FIELDS, FIELDS)
def test_field_sets_are_sets_of_paths(one, other):
    assert set(field_set.paths(field_set.union(one, other))) == {
        *field_set.paths(one),
        *field_set.paths(other),
    }
    assert set(field_set.paths(field_set.difference(one, other))) == {*field_set.paths(one)} - {
        *field_set.paths(other)
    }


@given(FIELDS, OBJECTS)
def test_what_is_stated_as_it_lives_is_never_unstated(fields, held):
    live = {**held, **managed(("us", "Update", fields))}
    assert unstated(field_set.owned(live, "us"), live=live, stated=live) == frozenset()
