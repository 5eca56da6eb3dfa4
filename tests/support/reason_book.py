"""Compares the book of reasons with the code: it has each reason that a program gives, no other."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import yaml

from klutchctl.commands.explain import FIELDS, reasons
from klutchctl.entry import ExitCode
from reconciler.doctor.diagnosis import Check
from reconciler.watch.fleet_state import SourceProblem
from reconciler.watch.notify.messages import Reason as OfCommit
from tests.support.house import PROGRAMS, ROOT, sources

PLACE: Final = "klutchctl/docs/oncall/reasons.md"
TEXT: Final = (ROOT / PLACE).read_text(encoding="utf-8")
BOOK: Final = tuple(reasons(TEXT))
NAMES: Final = {one.name for one in BOOK}

# These calls have small words for reasons, too; the last two are of a doctor.
SMALL: Final = ("Tripped", "Blocked", "warning", "problem")
# Those that are made of two words, and those of enumerations.
SPELLED: Final = {
    "Units{}": {"UnitsDegraded", "UnitsUnknown", "UnitsProgressing"},
    "{}Refused": {f"{what}Refused" for what in ("Provision", "Update", "Bind", "Rotation")},
    "{}{}": {"BindFailed", "RotationFailed"},
    "{}Missing": {"SecretValidMissing", "ConnectedMissing"},
    "Not{}": {"NotReady"},
}
MADE: Final = {
    *(one for made in SPELLED.values() for one in made),
    *(one.value for one in SourceProblem if one is not SourceProblem.NONE),
    *(one.value for one in OfCommit),
    *Check,
}
# Kinds, and reasons and conditions of Kubernetes itself.
OTHERS: Final = "Forbidden ReplicaFailure ControlPlane GitRepository ClusterBinding ServiceAccount"


@cache
def trees() -> dict[str, ast.Module]:
    paths = {str(one.relative_to(ROOT)): one for one in sources(*PROGRAMS)}
    return {place: ast.parse(path.read_text(encoding="utf-8")) for place, path in paths.items()}


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return (*ast.walk(tree),)


@cache
def places() -> Mapping[str, set[int]]:
    """Return where calls have a reason, as each class and function names it."""
    found: dict[str, set[int]] = {name: {0} for name in SMALL}
    for node in (node for tree in trees().values() for node in nodes(tree)):
        names: list[str] = []
        if isinstance(node, ast.ClassDef):
            lines = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
            names = [one.id for one in lines if isinstance(one, ast.Name)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [one.arg for one in node.args.args if one.arg not in {"self", "cls"}]
        if "reason" in names:
            found.setdefault(getattr(node, "name", ""), set()).add(names.index("reason"))
    return found


Known = Mapping[str, list[ast.expr]]


def _known(tree: ast.Module) -> Known:
    """Return by name what the variables of a file are, and what its functions return."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Tuple(elts=[one, *_]) | one], value=ast.expr() as value)
                | ast.AnnAssign(target=one, value=ast.expr() as value)
                | ast.NamedExpr(target=one, value=value)
            ):
                found.setdefault(getattr(one, "id", ""), []).append(value)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                ends = (one.value for one in ast.walk(node) if isinstance(one, ast.Return))
                found.setdefault(name, []).extend(filter(None, ends))
    return found


def values(node: ast.expr, known: Known, depth: int = 5) -> Iterator[tuple[int, str]]:
    """Yield the literals that an expression can be, with lines; of a tuple, those of its head."""
    parts: list[ast.expr] = []
    match node:
        case ast.Constant(value=str(text)):
            yield node.lineno, text
        case ast.JoinedStr(values=found):
            words = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in found)
            yield node.lineno, "".join(words)
        case ast.IfExp(body=one, orelse=other):
            parts = [one, other]
        case ast.BoolOp(values=parts):
            pass
        case ast.Starred(value=one) | ast.Await(value=one) | ast.Tuple(elts=[one, *_]):
            parts = [one]
        case ast.Call(func=ast.Attribute(value=ast.Dict(values=parts)), args=others):
            parts = [*parts, *others[1:]]
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if depth:
            parts = known.get(name, [])
    for part in parts:
        yield from values(part, known, depth - 1)


def given(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the reasons in a file, with lines: in calls, under the key `reason`, and in causes."""
    known = _known(tree)
    for node in nodes(tree):
        form, found = r"[A-Z]\w+|[A-Z]?\w*\{\}\w*(\{\})?", list[ast.expr]()
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                name = getattr(func, "id", getattr(func, "attr", ""))
                form += r"|[a-z-]+" if name in SMALL else ""
                found = [one for at in places().get(name, ()) for one in args[at : at + 1]]
                found += [one.value for one in keywords if one.arg == "reason"]
            case ast.Dict(keys=keys, values=those):
                pairs = zip(keys, those, strict=True)
                found = [one for key, one in pairs if getattr(key, "value", "") == "reason"]
            case ast.Tuple(elts=[ast.Name("TRUE" | "FALSE" | "UNKNOWN"), one, *_]):
                found = [one]
            case ast.Tuple(elts=[ast.Constant() as one, said, *_]):  # a cause on its way to a call
                form = r"([A-Z][a-z]+){2,}"
                found = [one] if " " in str(getattr(said, "value", " ")) else []
        for line, text in (pair for one in found for pair in values(one, known)):
            if re.fullmatch(form, text) and text not in OTHERS.split():
                yield line, text


def sentences(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the exit code and the sentence of each that a file gives a meaning."""
    dicts = (node for node in nodes(tree) if isinstance(node, ast.Dict))
    for key, text in (pair for one in dicts for pair in zip(one.keys, one.values, strict=True)):
        match key, text:
            case ast.Attribute(value=ast.Name("ExitCode"), attr=name), ast.Constant(str(said)):
                yield text.lineno, str(int(ExitCode[name])), said


def faults() -> Iterator[str]:
    """Yield `file:line: what is wrong` for each difference of the code and the book."""
    found = [(place, *one) for place, tree in trees().items() for one in given(tree)]
    assert len({reason for *_, reason in found} | MADE) > 260
    for place, line, reason in found:
        if reason not in NAMES | SPELLED.keys():
            yield f"{place}:{line}: {PLACE} lacks the reason {reason}"
    for place, tree in trees().items():
        for line, code, text in sentences(tree):
            if text not in next(one.fields["Means"] for one in BOOK if one.name == code):
                yield f"{place}:{line}: {PLACE} lacks of exit code {code}: {text}"
    elsewhere = MADE | _outside()
    yield from (f"{PLACE}: it lacks {one}" for one in sorted(elsewhere - NAMES))
    every = (node for tree in trees().values() for node in nodes(tree))
    literals = {one.value for one in every if isinstance(one, ast.Constant)}
    for number, text in enumerate(TEXT.splitlines(), 1):
        name = text.removeprefix("### ")
        if text.startswith(" "):
            yield f"{PLACE}:{number}: a field is one line"
        if name in NAMES - literals - elsewhere and name != text:
            yield f"{PLACE}:{number}: nothing gives the reason {name}"
    for one in BOOK:
        yield from (
            f"{PLACE}: {one.name} lacks {field}" for field in FIELDS if field not in one.fields
        )


def _outside() -> set[str]:
    """Return alerts and exit codes."""
    rules = yaml.safe_load((ROOT / "klutchctl/deploy/monitoring/rules.yaml").read_text())
    every = (rule for group in rules["spec"]["groups"] for rule in group["rules"])
    return {one["alert"] for one in every if "alert" in one} | {str(int(one)) for one in ExitCode}
