"""What `klutchctl doctor` prints, and its exit code."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from klutchctl import main
from klutchctl.commands.doctor import exit_code
from klutchctl.render import doctor
from reconciler.doctor.diagnosis import Check, Examination, Finding, Level, Mend
from reconciler.doctor.rights import Side, Task
from reconciler.kube import crds

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
FINE = Finding(Check.CONNECTION, Level.OK, "reached at https://x")
CLOCK = Finding(Check.CLOCK, Level.WARNING, "its clock is off", "Set it")
RIGHTS = Finding(Check.RIGHTS, Level.PROBLEM, "no rights", "Grant them", Mend.RIGHTS)
CRDS = Finding(Check.CRDS, Level.PROBLEM, "no CRDs", "Install them", Mend.CRDS)
LOST = Finding(Check.CONNECTION, Level.PROBLEM, "it hung up", "Look at the network")


def of(*findings, name="shop", side=Side.APP_CLUSTER, readable=True, **more):
    return Examination(name, side, f"context/{name}", name, findings, readable=readable, **more)


BOTH = (
    of(FINE, CRDS, name="eu", side=Side.CONTROL_PLANE, user="alice"),
    of(FINE, CLOCK, RIGHTS, user="alice"),
    of(LOST, name="it's far", readable=False),
)
TEXT = """\
Control plane eu  (context/eu, as alice)
  ok       reached at https://x
  problem  no CRDs
           Install them
           $ klutchctl doctor 'my fleet' --print control-plane-crds | \
kubectl --context eu apply --server-side -f -

Cluster shop  (context/shop, as alice)
  ok       reached at https://x
  warning  its clock is off
           Set it
  problem  no rights
           Grant them
           $ klutchctl doctor 'my fleet' --for plan --print app-cluster-rights | \
kubectl --context shop apply -f -

Cluster it's far  (context/it's far)
  problem  it hung up
           Look at the network

Doctor: 3 clusters, 3 problems, 1 warning.
"""


def test_a_block_for_each_cluster_with_what_to_type():
    assert doctor.text(BOTH, path="my fleet", task=Task.PLAN) == TEXT


def test_colour_only_adds_to_it():
    plain = doctor.text(BOTH, path="my fleet", task=Task.PLAN, color=True)
    for code in ("0", "1", "31", "32", "33"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == TEXT


def test_names_cannot_become_commands():
    nasty = of(RIGHTS, name="x; rm -rf $HOME `id`")
    (line,) = [
        line.strip()
        for line in doctor.text([nasty], path="-", task=Task.PLAN).splitlines()
        if line.strip().startswith("$ ")
    ]
    words = shlex.split(line.removeprefix("$ "))
    assert words[words.index("--context") + 1] == nasty.context


def test_what_others_wrote_cannot_act_on_the_terminal():
    nasty = "\x1b[2J\u202eevil\nnext"
    bad = Finding(Check.CRDS, Level.PROBLEM, nasty, nasty, Mend.CRDS)
    text = doctor.text([of(bad, name=nasty, user=nasty)], path=nasty, task=Task.PLAN)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\nnext" not in text


def test_json_is_one_versioned_document():
    document = json.loads(doctor.as_json(BOTH, path="my fleet", task=Task.PLAN))
    assert (document["format"], document["version"]) == ("klutchctl.dev/doctor", "1.0")
    plane, shop, far = document["clusters"]
    assert (plane["kind"], plane["level"], plane["user"]) == ("control-plane", "problem", "alice")
    assert shop["findings"][2]["command"] in TEXT
    assert (far["readable"], far["findings"][0]["command"]) == (False, "")


CASES = {
    # found, code, --allow-unreachable
    "no clusters": ((), 0, 0),
    "all well": ((of(FINE),), 0, 0),
    "a warning": ((of(CLOCK),), 0, 0),
    "a problem": ((of(CRDS),), 6, 6),
    "one of two not readable": ((of(FINE), of(LOST, readable=False)), 5, 0),
    "a problem, and one not readable": ((of(CRDS), of(LOST, readable=False)), 6, 6),
    "none readable": ((of(LOST, readable=False),), 1, 1),
    "rights that a plan needs": ((of(FINE), of(RIGHTS, readable=False)), 5, 0),
}


@pytest.mark.parametrize(("found", "code", "lenient"), CASES.values(), ids=CASES.keys())
def test_the_exit_code(found, code, lenient):
    assert exit_code(found, allow_unreachable=False) == code
    assert exit_code(found, allow_unreachable=True) == lenient


SIDES = {"control-plane": crds.CONTROL_PLANE, "app-cluster": crds.APP_CLUSTER}


@pytest.mark.parametrize(("side", "names"), SIDES.items(), ids=SIDES.keys())
def test_the_printed_crds_are_those_of_the_files(side, names, capsys):
    assert main.run(["doctor", str(EXAMPLE), "--print", f"{side}-crds"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == crds.load(*names)


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
def test_the_printed_rights_tell_for_which_clusters_they_are(side, capsys):
    asked = ["doctor", str(EXAMPLE), "--print", f"{side}-rights"]
    assert main.run(["-l", "team=team-a", *asked]) == 0
    narrow = capsys.readouterr().out
    assert "# Only for shop-eu-1, shop-eu-2.\n" in narrow
    assert main.run(asked) == 0
    assert "# Only for" not in capsys.readouterr().out
