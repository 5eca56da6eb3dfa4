"""Compares the book of reasons with the code: it has each reason that a program gives, no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import yaml

from klutchctl.commands.explain import reasons
from klutchctl.entry import ExitCode
from reconciler.doctor.diagnosis import Check
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import SourceProblem
from reconciler.watch.notify.messages import Reason as OfCommit
from tests.support.house import PROGRAMS, ROOT, sources

PLACE: Final = "klutchctl/docs/oncall/reasons.md"
TEXT: Final = (ROOT / PLACE).read_text(encoding="utf-8")
BOOK: Final = tuple(reasons(TEXT))
NAMES: Final = {one.name for one in BOOK}

# The place of the reason among the arguments of these calls.
PLACES: Final = {
    **dict.fromkeys(("Note", "_note", "Stop", "_Fault", "Held", "Blocked"), 0),
    **dict.fromkeys(("warning", "problem"), 0),  # of a doctor
    **{"Verdict": 1, "Trouble": 1, "Cause": 2, "PlaneHealth": 2, "Condition": 3},
}
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
def trees() -> dict[str, ast.Module]:
    paths = {str(one.relative_to(ROOT)): one for one in sources(*PROGRAMS)}
    return {place: ast.parse(path.read_text(encoding="utf-8")) for place, path in paths.items()}


def given(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the reasons in a file, with lines: literals at their places, or its constants there."""
    constants = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        place = PLACES.get(name, len(call.args))
        found = [*call.args[place : place + 1]]
        found += [one.value for one in call.keywords if one.arg == "reason" and name in PLACES]
        for one in found:
            value = constants.get(one.id) if isinstance(one, ast.Name) else None
            value = one.value if isinstance(one, ast.Constant) else value
            if isinstance(value, str) and re.fullmatch(r"[A-Za-z-]+", value):
                yield one.lineno, value


def faults() -> Iterator[str]:
    """Yield `file:line: what is wrong` for each difference of the code and the book."""
    found = [(place, *one) for place, tree in trees().items() for one in given(tree)]
    assert len({reason for *_, reason in found} | MADE) > 200
    for place, line, reason in found:
        if reason not in NAMES:
            yield f"{place}:{line}: {PLACE} lacks the reason {reason}"
    elsewhere = MADE | _outside()
    yield from (f"{PLACE}: it lacks {one}" for one in sorted(elsewhere - NAMES))
    nodes = (node for tree in trees().values() for node in ast.walk(tree))
    literals = {one.value for one in nodes if isinstance(one, ast.Constant)}
    for number, text in enumerate(TEXT.splitlines(), 1):
        name = text.removeprefix("### ")
        if name in NAMES - literals - elsewhere and name != text:
            yield f"{PLACE}:{number}: nothing gives the reason {name}"


def _outside() -> set[str]:
    """Return alerts and exit codes."""
    rules = yaml.safe_load((ROOT / "klutchctl/deploy/monitoring/rules.yaml").read_text())
    every = (rule for group in rules["spec"]["groups"] for rule in group["rules"])
    return {one["alert"] for one in every if "alert" in one} | {str(int(one)) for one in ExitCode}
