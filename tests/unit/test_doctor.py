"""What `klutchctl doctor --print` prints, and its exit code."""

import shlex
from pathlib import Path

import pytest
import yaml

from klutchctl import main
from klutchctl.commands.doctor import exit_code
from klutchctl.render import doctor
from reconciler.doctor.diagnosis import Check, Finding, Level, Mend
from reconciler.doctor.rights import Side, Task
from reconciler.kube import crds
from tests.golden.values import examination

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
FINE = Finding(Check.CONNECTION, Level.OK, "reached at https://x")
CLOCK = Finding(Check.CLOCK, Level.WARNING, "its clock is off", "Set it")
RIGHTS = Finding(Check.RIGHTS, Level.PROBLEM, "no rights", "Grant them", Mend.RIGHTS)
CRDS = Finding(Check.CRDS, Level.PROBLEM, "no CRDs", "Install them", Mend.CRDS)
LOST = Finding(Check.CONNECTION, Level.PROBLEM, "it hung up", "Look at the network")


def test_names_cannot_become_commands():
    nasty = examination(RIGHTS, name="x; rm -rf $HOME `id`")
    (line,) = [
        line.strip()
        for line in doctor.text([nasty], path="-", task=Task.PLAN).splitlines()
        if line.strip().startswith("$ ")
    ]
    words = shlex.split(line.removeprefix("$ "))
    assert words[words.index("--context") + 1] == nasty.context


GONE = examination(LOST, readable=False)
CASES = {
    # found, code, --allow-unreachable
    "no clusters": ((), 0, 0),
    "all well": ((examination(FINE),), 0, 0),
    "a warning": ((examination(CLOCK),), 0, 0),
    "a problem": ((examination(CRDS),), 6, 6),
    "one of two not readable": ((examination(FINE), GONE), 5, 0),
    "a problem, and one not readable": ((examination(CRDS), GONE), 6, 6),
    "none readable": ((GONE,), 1, 1),
    "rights that a plan needs": ((examination(FINE), examination(RIGHTS, readable=False)), 5, 0),
}


@pytest.mark.parametrize(("found", "code", "lenient"), CASES.values(), ids=CASES.keys())
def test_the_exit_code(found, code, lenient):
    assert exit_code(found, allow_unreachable=False) == code
    assert exit_code(found, allow_unreachable=True) == lenient


SIDES = {"control-plane": crds.CONTROL_PLANE + crds.CONTROLLER, "app-cluster": crds.APP_CLUSTER}


@pytest.mark.parametrize(("side", "names"), SIDES.items(), ids=SIDES.keys())
def test_the_printed_crds_are_those_of_the_files(side, names, capsys):
    assert main.run(["doctor", str(EXAMPLE), "--print", f"{side}-crds"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == crds.load(*names)


CHOSEN = {
    # what is chosen: whether a konnector is deployed there, a service, one that is not
    "all": ((), True, "postgresqlinstances", "widgets"),
    "one without a konnector": (("--cluster", "shop-eu-1"), False, "restores", "widgets"),
    "one with a konnector": (
        ("--cluster", "analytics-eu-1"), True, "postgresqlinstances", "restores",
    ),
    "by labels": (("-l", "team=team-a"), False, "restores", "widgets"),
    "by labels, the others": (("-l", "team!=team-a"), True, "postgresqlinstances", "restores"),
}  # fmt: skip


@pytest.mark.parametrize(("chosen", "deploys", "bound", "unbound"), CHOSEN.values(), ids=CHOSEN)
def test_the_printed_rights_are_those_of_the_chosen_clusters(
    chosen, deploys, bound, unbound, capsys
):
    asked = [*chosen, "doctor", str(EXAMPLE), "--for", "apply", "--print", "app-cluster-rights"]
    assert main.run(asked) == 0
    text = capsys.readouterr().out
    rules = [rule for one in yaml.safe_load_all(text) for rule in one.get("rules", ())]
    assert any("escalate" in rule["verbs"] for rule in rules) == deploys
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert bound in resources
    assert unbound not in resources


@pytest.mark.parametrize("side", Side)
def test_the_printed_rights_report_for_which_clusters_they_are(side, capsys):
    asked = ["doctor", str(EXAMPLE), "--print", f"{side}-rights"]
    assert main.run(["-l", "team=team-a", *asked]) == 0
    assert "# Only for shop-eu-1, shop-eu-2.\n" in capsys.readouterr().out
    assert main.run(asked) == 0
    assert "# Only for" not in capsys.readouterr().out
