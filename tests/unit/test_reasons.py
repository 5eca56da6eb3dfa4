"""The book of reasons knows each reason that the programs give, and no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

from klutchctl import main
from klutchctl.binding.checkup import Examined
from klutchctl.commands.explain import reasons
from klutchctl.entry import ExitCode
from klutchctl.render import doctor, status
from reconciler.controller.events import Source, event_of
from reconciler.core.decision import Note, page_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.doctor.diagnosis import Check, problem
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import SourceProblem
from reconciler.watch.notify.messages import Reason as OfCommit
from tests.support import boards, site

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "klutchctl/docs/oncall/reasons.md").read_text(encoding="utf-8")
BOOK: Final = tuple(reasons(TEXT))
NAMES: Final = {one.name for one in BOOK}

# The place of the reason among the arguments of these calls.
PLACES: Final = {
    **dict.fromkeys(("Note", "_note", "Stop", "_Fault", "Held", "Blocked"), 0),
    **dict.fromkeys(("warning", "problem"), 0),  # of a doctor
    **{"Verdict": 1, "Trouble": 1, "Cause": 2, "PlaneHealth": 2, "Condition": 3},
}
SITE: Final = "https://docs.example.org/0.1.0"
SEE: Final = r"\b[Ss]ee ([A-Z]\w+)(?:(?:, (\w+))? and (\w+))?"
OF_KUBERNETES: Final = {"Condition": 2}  # as of dataservices: without a severity
# Reasons that are made of two words, and those of enumerations.
MADE: Final = {
    *(f"Units{one.value}" for one in (State.DEGRADED, State.UNKNOWN, State.PROGRESSING)),
    *(f"{what}Refused" for what in ("Provision", "Update", "Bind", "Rotation")),
    *("BindFailed", "RotationFailed", "SecretValidMissing", "ConnectedMissing"),
    *(one.value for one in SourceProblem if one is not SourceProblem.NONE),
    *(one.value for one in OfCommit),
    *Check,
}


@cache
def trees() -> tuple[ast.Module, ...]:
    packages = (ROOT / one for one in ("klutchctl", "reconciler", "konnector", "bind"))
    paths = sorted(path for package in packages for path in package.rglob("*.py"))
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in paths)


def given(tree: ast.Module) -> Iterator[str]:
    """Yield the reasons in a file: literals at their places, also by a constant of the file."""
    constants = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    own = any(isinstance(node, ast.ClassDef) and node.name == "Condition" for node in tree.body)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        place = (OF_KUBERNETES if own else {}).get(name, PLACES.get(name, len(call.args)))
        found = [*call.args[place : place + 1]]
        found += [one.value for one in call.keywords if one.arg == "reason" and name in PLACES]
        for one in found:
            value = constants.get(one.id) if isinstance(one, ast.Name) else None
            value = one.value if isinstance(one, ast.Constant) else value
            if isinstance(value, str) and re.fullmatch(r"[A-Za-z-]+", value):
                yield value


def test_each_reason_that_a_program_gives_is_in_the_book() -> None:
    found = {reason for tree in trees() for reason in given(tree)} | MADE
    assert len(found) > 200
    assert sorted(found - NAMES) == []


def test_the_book_has_no_reason_that_nothing_gives() -> None:
    literals = {
        node.value
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    rules = yaml.safe_load((ROOT / "klutchctl/deploy/monitoring/rules.yaml").read_text())
    alerts = {
        rule["alert"]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    codes = {str(int(one)) for one in ExitCode}
    assert sorted(NAMES - literals - MADE - alerts - codes) == []
    assert alerts | codes <= NAMES


def test_each_reason_has_its_meaning_its_place_and_what_to_do() -> None:
    for one in BOOK:
        assert {"Where", "Means", "See", "Do", "Who"} <= one.fields.keys(), one.name
        for other in re.findall(SEE, one.fields["Do"]):
            assert {name for name in other if name} <= NAMES, one.name


def test_explain_prints_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "massdeletion"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("MassDeletion (Spaces on the control plane)\n")
    assert "klutchctl.dev/confirm-mass-delete" in out


def test_texts_events_and_conditions_link_to_the_page_of_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages = {f"{SITE}/reasons/{name}/" for name, _ in site.reason_pages(TEXT)}
    assert {page_of(name, f"{SITE}/") for name in NAMES} == pages
    page = f"{SITE}/reasons/MassDeletion/"
    assert main.run(["explain", "MassDeletion", "--docs", SITE]) == 0
    assert capsys.readouterr().out.endswith(f"  Page:   {page}\n")
    board = boards.plain().board
    assert board is not None
    shown = {line.strip() for line in status.text(board, docs=SITE).splitlines()} & pages
    assert f"{SITE}/reasons/CrdMissing/" in shown
    assert pages.isdisjoint(line.strip() for line in status.text(board).splitlines())
    note, source = Note("MassDeletion", "ö" * 2_000), Source("tests", "tests-1", SITE)
    event = event_of(Ref("", NAMESPACE, "", "shop"), "uid", note, source=source, now=boards.NOW)
    assert str(event["note"]).endswith(f"ö ({page})")
    assert len(str(event["note"]).encode()) in {1_023, 1_024}
    finding = Examined("https://door", "door", (problem("routes", "404"),))
    assert f"{SITE}/reasons/routes/" in doctor.address_text([finding], docs=SITE)


def test_explain_names_reasons_that_are_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "MassDeletoin"]) == ExitCode.INVALID
    assert "Did you mean MassDeletion?" in capsys.readouterr().err
