"""Each alert fires where it should, after its time and not before, and else is silent."""

from dataclasses import dataclass, field

import pytest
import yaml

from tests.support import prometheus

KONNECTOR = {"namespace": "klutch-bind", "job": "konnector"}
NO_HEARTBEAT = "By konnector, no heartbeat of a konnector arrives any more."
NO_BEAT = ("35m", "37m", KONNECTOR, "warning", NO_HEARTBEAT)
BACKEND = {"namespace": "klutch-bind", "job": "klutch-bind"}
CONTROLLER = {"namespace": "klutchctl", "job": "controller"}
BOTH = "namespace='klutchctl',job='controller'"
THERE = "namespace='klutch-bind',job='konnector'"
READABLE = f"klutchctl_watch_source_readable{{{BOTH},pod='a'}}"
STANDBY = f"klutchctl_watch_source_readable{{{BOTH},pod='b'}}"
VERIFIED = f"klutchctl_source_verified{{{BOTH},pod='a'}}"
UNSEEN = f"klutchctl_watch_cluster_unseen{{{BOTH},cluster='shop-1'}}"
GUARD = f"klutchctl_watch_guards_held{{{BOTH},guard='max-deletes'}}"
STORMS = f"klutchctl_drift_storms{{{BOTH},control_plane='eu'}}"
BEAT = f"klutch_heartbeat_timestamp_seconds{{{THERE},pod='a'}}"
UP = f"up{{{THERE},pod='a'}}"
ORPHANS = f"klutch_orphaned_copies{{{THERE},resource='databases.example.org'}}"


def rounds(result):
    return f"klutchctl_watch_rounds_total{{{BOTH},pod='a',trigger='drift',result='{result}'}}"


def units(state):
    return f"klutchctl_units{{{BOTH},control_plane='eu',state='{state}'}}"


def held(verb):
    return f"klutch_held_writes_total{{{THERE},verb='{verb}'}}"


def spaces(state):
    return f"klutch_spaces{{namespace='klutch-bind',job='klutch-bind',pod='a',state='{state}'}}"


# A fleet at rest; a round every five samples. Two hundred samples are long enough for every case.
REST = {
    READABLE: "1x200",
    STANDBY: "0x200",
    VERIFIED: "1x200",
    rounds("nothing"): " ".join(f"{number}x4" for number in range(40)),
    GUARD.replace("max-deletes", "none"): "0x200",
    STORMS: "0x200",
    units("Ready"): "200x200",
    units("Progressing"): "0x200",
    units("Degraded"): "0x200",
    units("Unknown"): "0x200",
    units("Suspended"): "7x200",
    units("Released"): "0x200",
    BEAT: "0+60x200",
    UP: "1x200",
    spaces("connected"): "30x200",
    spaces("pending"): "1x200",
    spaces("silent"): "0x200",
    held("create"): "0x200",
    ORPHANS: "0x200",
}


@dataclass(frozen=True)
class Case:
    """What is otherwise than at rest, and what follows; `silent` is when nothing fires yet.

    `warning` is what the same alert says then as a warning, too.
    """

    alert: str
    series: dict[str, str]
    silent: str
    fires: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    severity: str = "critical"
    summary: str = ""
    warning: str = ""


CASES = {
    "the files cannot be read": Case(
        "SourceUnreadable", {READABLE: "1x9 0x60"}, "19m", "21m", CONTROLLER
    ),
    "the files cannot be read for a moment": Case(
        "SourceUnreadable", {READABLE: "1x9 0x5 1x60"}, "30m"
    ),
    "a commit is not signed": Case(
        "SourceUnverified", {VERIFIED: "1x9 0x60"}, "10m", "12m", CONTROLLER
    ),
    "a commit that is not signed is that alone": Case(
        "SourceUnreadable", {READABLE: "1x9 0x60", VERIFIED: "1x9 0x60"}, "60m"
    ),
    "nobody asks for signatures": Case("SourceUnverified", {VERIFIED: "_x60"}, "60m"),
    "rounds stop": Case(
        "RoundsStopped", {rounds("nothing"): "0x4 1x4 2x90"}, "34m", "36m", CONTROLLER
    ),
    "rounds fail, each of them": Case(
        "RoundsStopped",
        {rounds("nothing"): "0x4 1x4 2x90", rounds("failed"): "0+1x90"},
        "34m",
        "36m",
        CONTROLLER,
    ),
    "rounds are held, which is an end, too": Case(
        "RoundsStopped", {rounds("nothing"): "2x90", rounds("held"): "0+1x90"}, "90m"
    ),
    "no round has ended since the start": Case(
        "RoundsStopped", {rounds("nothing"): "_x60"}, "9m", "11m", CONTROLLER
    ),
    "no round can be, as no file can be read": Case(
        "RoundsStopped", {READABLE: "0x90", rounds("nothing"): "2x90"}, "90m"
    ),
    "the controller is gone": Case(
        "RoundsStopped",
        {READABLE: "1x20 stale", STANDBY: "0x20 stale", rounds("nothing"): "0+1x20 stale"},
        "30m",
        "32m",
        CONTROLLER,
    ),
    "another process takes over": Case(
        "RoundsStopped",
        {
            READABLE: "1x20 stale",
            STANDBY: "0x21 1x60",
            rounds("nothing"): "0+1x20 stale",
            rounds("nothing").replace("pod='a'", "pod='b'"): "_x22 1x4 2x4 3x4 4x4 5x20",
        },
        "40m",
    ),
    "a cluster cannot be read": Case(
        "ClusterUnseen",
        {UNSEEN: "_x11 1x60"},
        "25m",
        "27m",
        {"cluster": "shop-1"},
        "warning",
        "Cluster shop-1 cannot be read, so nothing in it is kept right.",
    ),
    "a guard holds": Case(
        "GuardHeld",
        {GUARD: "_x11 3x60"},
        "20m",
        "22m",
        {"guard": "max-deletes"},
        "warning",
        "Guard max-deletes holds back 3 times what the files say.",
    ),
    "a storm is an alert of its own": Case(
        "GuardHeld", {GUARD.replace("max-deletes", "storm"): "3x60"}, "60m"
    ),
    "a field is changed back again and again": Case(
        "DriftStorm",
        {STORMS: "0x9 2x60"},
        "10m",
        "12m",
        {"control_plane": "eu"},
        "warning",
        "2 objects of eu rest, because another manager changes them back again and again.",
    ),
    "a konnector sends no heartbeat": Case("KonnectorSilent", {BEAT: "0+60x20 1200x60"}, *NO_BEAT),
    "a konnector is gone": Case(
        "KonnectorSilent", {BEAT: "0+60x20 stale", UP: "1x20 0x60"}, *NO_BEAT
    ),
    "a konnector serves nothing any more": Case("KonnectorSilent", {BEAT: "0+60x20 stale"}, "60m"),
    "another konnector takes over": Case(
        "KonnectorSilent",
        {BEAT: "0+60x20 1200x90", BEAT.replace("'a'", "'b'"): "_x22 1320+60x90"},
        "90m",
    ),
    "a backend hears nothing of three spaces": Case(
        "KonnectorSilent",
        {spaces("silent"): "0x9 3x60"},
        "14m",
        "16m",
        BACKEND,
        "warning",
        "By klutch-bind, no heartbeat of a konnector arrives any more.",
    ),
    "deletes are held": Case(
        "DeletesHeld", {held("delete"): "_x11 1+1x60"}, "15m", "18m", KONNECTOR, "warning"
    ),
    "copies are kept whose origin is absent": Case(
        "DeletesHeld", {ORPHANS: "0x9 4x60"}, "14m", "16m", KONNECTOR, "warning"
    ),
    "what is held are no deletes": Case("DeletesHeld", {held("create"): "0+1x60"}, "60m"),
}
# Here a sample is of ten minutes, and there are units alone: twelve hours are 72 samples.
SLOW_CASES = {
    "a fifth of the units breaks": Case(
        "UnitsNotReady",
        {units("Ready"): "200x143 160x9", units("Degraded"): "0x143 40x9"},
        "1d",
        "1d30m",
        {"control_plane": "eu"},
        summary="11.43% of the units of eu are not Ready:"
        " the budget of 28 days is gone within five days.",
    ),
    "a twentieth breaks, which takes longer to be critical": Case(
        "UnitsNotReady",
        {units("Ready"): "200x71 190x60", units("Degraded"): "0x71 10x60"},
        "12h",
        "16h30m",
        {"control_plane": "eu"},
        summary="3.784% of the units of eu are not Ready:"
        " the budget of 28 days is gone within five days.",
        warning="1.4% of the units of eu are not Ready: the budget of 28 days will not last.",
    ),
    "one unit of two hundred breaks, which is nearly all that may": Case(
        "UnitsNotReady",
        {units("Ready"): "200x71 199.1x90", units("Degraded"): "0x71 0.9x90"},
        "1d3h",
    ),
    "three units of two hundred stay away": Case(
        "UnitsNotReady",
        {units("Ready"): "200x71 197x90", units("Unknown"): "0x71 3x90"},
        "15h",
        "20h",
        {"control_plane": "eu"},
        "warning",
        "0.6074% of the units of eu are not Ready: the budget of 28 days will not last.",
    ),
    "three units of two hundred were away": Case(
        "UnitsNotReady",
        {units("Ready"): "200x71 197x48 200x40", units("Unknown"): "0x71 3x48 0x40"},
        "1d3h",
    ),
    "a control plane is filled": Case(
        "UnitsNotReady", {units("Ready"): "0x4 200x60", units("Progressing"): "200x4 0x60"}, "40m"
    ),
    "units that are suspended make up for none": Case(
        "UnitsNotReady",
        {
            units("Ready"): "200x143 0x20",
            units("Suspended"): "0x143 199x20",
            units("Degraded"): "0x143 1x20",
        },
        "1d",
        "1d2h",
        {"control_plane": "eu"},
        summary="100% of the units of eu are not Ready:"
        " the budget of 28 days is gone within five days.",
    ),
    "units that are suspended are not wanted": Case(
        "UnitsNotReady", {units("Ready"): "200x71 0x40", units("Suspended"): "0x71 200x40"}, "18h"
    ),
}
ALERTS = {rule["alert"] for rule in prometheus.alerts()}


def annotations(case):
    """Return what the rule says, with the summary of the case where that names things."""
    (rule,) = [
        one
        for one in prometheus.alerts()
        if (one["alert"], one["labels"]["severity"]) == (case.alert, case.severity)
    ]
    said = rule["annotations"]
    return {**said, "summary": case.summary or said["summary"]}


def as_test(name, case, interval, rest):
    steps = [{"eval_time": case.silent, "alertname": case.alert, "exp_alerts": []}]
    if case.fires:
        labels = {**case.labels, "severity": case.severity}
        fired = [{"exp_labels": labels, "exp_annotations": annotations(case)}]
        if case.warning:
            labels = {**labels, "severity": "warning"}
            said = {**annotations(case), "summary": case.warning}
            fired.append({"exp_labels": labels, "exp_annotations": said})
        steps.append({"eval_time": case.fires, "alertname": case.alert, "exp_alerts": fired})
    series = {**rest, **case.series}
    return {
        "name": name,
        "interval": interval,
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "alert_rule_test": steps,
    }


@pytest.fixture
def checked(tmp_path):
    """Return what promtool says of tests of the rules, "" where all of them hold."""
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": prometheus.rule_groups()}))

    def check(tests, interval):
        content = {
            "rule_files": ["rules.yml"],
            "evaluation_interval": interval,
            "group_eval_order": [group["name"] for group in prometheus.rule_groups()],
            "tests": tests,
        }
        (tmp_path / "tests.yml").write_text(yaml.safe_dump(content, sort_keys=False))
        return prometheus.promtool("test", "rules", "tests.yml", folder=tmp_path)

    return check


def test_the_rules_are_valid(tmp_path):
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": prometheus.rule_groups()}))
    assert prometheus.promtool("check", "rules", "--lint-fatal", "rules.yml", folder=tmp_path) == ""


@pytest.mark.parametrize(
    ("cases", "interval", "rest"), [(CASES, "1m", REST), (SLOW_CASES, "10m", {})]
)
def test_each_alert_fires_after_its_time_or_stays_silent(checked, cases, interval, rest):
    said = checked([as_test(name, case, interval, rest) for name, case in cases.items()], interval)
    assert said == "", said


def test_no_alert_fires_at_rest(checked):
    proven = {case.alert for case in (*CASES.values(), *SLOW_CASES.values()) if case.fires}
    assert proven == ALERTS
    steps = [
        {"eval_time": at, "alertname": alert, "exp_alerts": []}
        for at in ("1m", "20m", "40m", "2h", "3h")
        for alert in sorted(ALERTS)
    ]
    test = {**as_test("rest", Case("", {}, "1m"), "1m", REST), "alert_rule_test": steps}
    said = checked([test], "1m")
    assert said == "", said
