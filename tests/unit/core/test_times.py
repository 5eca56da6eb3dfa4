"""Go durations and RFC 3339 times, read and written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from reconciler.core.times import (
    age,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
    people_read,
)


def span(**parts):
    return timedelta(**parts)


BOTH_WAYS = {
    "5m0s": span(minutes=5),
    "2m30s": span(seconds=150),
    "0s": span(),
    "1h0m0s": span(hours=1),
    "25h1m1s": span(hours=25, minutes=1, seconds=1),
    "1s": span(seconds=1),
}


@pytest.mark.parametrize(("text", "value"), BOTH_WAYS.items(), ids=BOTH_WAYS.keys())
def test_durations_both_ways(text, value):
    assert parse_duration(text) == value
    assert format_duration(value) == text


READ_ONLY = {
    "0": span(),
    "-0": span(),
    "+5m": span(minutes=5),
    "1m0.000001s": span(minutes=1, microseconds=1),
    "1.05ms": span(microseconds=1050),
    "-2m30s": span(seconds=-150),
    "-1.5ms": span(microseconds=-1500),
    "1.5h": span(minutes=90),
    "30d": span(days=30),
    ".5s": span(milliseconds=500),
    "5.s": span(seconds=5),
    "1s1h": span(seconds=3601),
    "1000000us": span(seconds=1),
    "1000000\u00b5s": span(seconds=1),
    "1000000\u03bcs": span(seconds=1),
    "1000ms": span(seconds=1),
    "1999ns": span(microseconds=1),
    "-1999ns": span(microseconds=-1),
    "999ns": span(),
    "0.3333333333333333333333333h": span(minutes=20) - span(microseconds=1),
    "00000000000000000000000001s": span(seconds=1),
    "2562047h47m16.854775807s": span(microseconds=9_223_372_036_854_775),
    "-2562047h47m16.854775808s": span(microseconds=-9_223_372_036_854_775),
}


@pytest.mark.parametrize(("text", "value"), READ_ONLY.items(), ids=READ_ONLY.keys())
def test_other_durations_that_go_reads(text, value):
    assert parse_duration(text) == value


def test_people_read_a_span_without_what_is_zero():
    for text in ("0s", "45s", "10m", "20m10s", "1h", "1h30m", "10h5s", "30d", "2d1h", "1d10m"):
        assert people_read(parse_duration(text)) == text


def test_an_age_has_one_unit():
    ages = {"-1h": "0s", "0s": "0s", "59.9s": "59s", "60s": "1m", "23h59m": "23h", "400d": "400d"}
    assert {text: age(parse_duration(text)) for text in ages} == ages


NOT_DURATIONS = {
    "nothing": ("", "not a duration"),
    "a sign": ("-", "not a duration"),
    "no unit": ("5", "not a duration"),
    "no unit at the end": ("1h5", "not a duration"),
    "no number": ("s", "unit without a number"),
    "a bare point": (".s", "unit without a number"),
    "an unknown unit": ("5w", "unknown unit 'w'"),
    "a blank": ("5m 0s", "unknown unit 'm '"),
    "a sign inside": ("1h-5m", "unknown unit 'h-'"),
    "two points": ("1.2.3s", "not a duration"),
    "digits of another script": ("\u0665s", "unit"),
    "one nanosecond too many": ("2562047h47m16.854775808s", "out of range"),
    "one too few": ("-2562047h47m16.854775809s", "out of range"),
    "a huge number": ("9" * 900 + "h", "out of range"),
    "a flood": ("0h" * 501, "too long"),
    "overflow by the unit": ("9223372036854775807h", "out of range"),
}


@pytest.mark.parametrize(("text", "why"), NOT_DURATIONS.values(), ids=NOT_DURATIONS.keys())
def test_what_is_not_a_duration(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 250


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

TIMES = {
    "2026-01-31T12:00:00Z": NOON,
    "2026-01-31T14:30:00+02:30": NOON,
    "2026-01-31T07:00:00-05:00": NOON,
    "2026-01-31T12:59:00+00:59": NOON,
    "2026-01-31T12:00:00.25Z": NOON.replace(microsecond=250_000),
    "2026-01-31T12:00:00.123456789Z": NOON.replace(microsecond=123_456),
    "2024-02-29T23:59:59Z": datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC),
}


@pytest.mark.parametrize(("text", "value"), TIMES.items(), ids=TIMES.keys())
def test_times(text, value):
    parsed = parse_time(text)
    assert parsed == value
    assert parsed.tzinfo is UTC


NOT_TIMES = [
    "",
    "2026-01-31",
    "2026-01-31 12:00:00Z",
    "2026-01-31T12:00:00",
    "2026-01-31T12:00:00.Z",
    "2026-02-30T12:00:00Z",
    "2026-01-31T24:00:00Z",
    "2026-01-31T12:00:60Z",
    "2026-01-31T12:00:00+24:00",
    "2026-01-31T12:00:00+01:60",
    "0001-01-01T00:00:00+01:00",
    "0000-01-01T00:00:00Z",
    "2026-01-31T12:00:00Z\n",
]


@pytest.mark.parametrize("text", NOT_TIMES)
def test_what_is_not_a_time(text):
    with pytest.raises(ValueError, match="is not a"):
        parse_time(text)


WRITTEN = {
    "whole seconds": (NOON, "2026-01-31T12:00:00Z"),
    "parts of a second are cut": (NOON.replace(microsecond=999_999), "2026-01-31T12:00:00Z"),
    "another zone": (
        datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))),
        "2026-01-31T12:00:00Z",
    ),
    "an early year": (datetime(9, 1, 1, tzinfo=UTC), "0009-01-01T00:00:00Z"),
}


@pytest.mark.parametrize(("time", "want"), WRITTEN.values(), ids=WRITTEN.keys())
def test_times_are_written_as_kubernetes_does(time, want):
    assert format_time(time) == want


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        format_time(NOON.replace(tzinfo=None))
