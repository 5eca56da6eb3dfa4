"""Renders the problems of a fleet repository as text, JSON, SARIF and for GitHub.

SARIF is version 2.1.0 (OASIS, 2020-03-27); the GitHub form is that of its workflow commands.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final
from urllib.parse import quote

from klutchctl.render import terminal
from klutchctl.render.terminal import Style, line, plural, styled, visible
from reconciler.core.documents import first_of
from reconciler.core.errors import Origin, Problem, Severity, alike
from reconciler.core.manifest import JSON
from reconciler.fleet import wording
from reconciler.fleet.wording import CODES

FORMAT: Final = "klutchctl.dev/problems"
VERSION: Final = "1.0"

_STYLES: Final[Mapping[Severity, Style]] = {
    Severity.INVALID: Style.RED,
    Severity.DENIED: Style.RED,
    Severity.WARNING: Style.YELLOW,
}
_EXCERPTS: Final = 100  # of the first problems: each is a look at its file
_PLACES: Final = 5  # that are named of those where a problem is the same
_LEVELS: Final[Mapping[Severity, str]] = {
    Severity.INVALID: "error",
    Severity.DENIED: "error",
    Severity.WARNING: "warning",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """Problems in the order of their places, and the content of a fleet without them.

    `folder` stands before each path: "" or with "/" at the end. `counts` are nouns with numbers,
    in the order of telling; none where the fleet cannot be used. `files` are those that were read.
    """

    problems: Sequence[Problem]
    folder: str = ""
    fleet: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def path(self, problem: Problem) -> str:
        return self._path(problem.origin.path)

    def _path(self, path: str) -> str:
        return self.folder.rstrip("/") or "." if path == "." else f"{self.folder}{path}"

    def place(self, origin: Origin) -> str:
        """Return where a problem is as it is shown, with line and column."""
        return str(replace(origin, path=self._path(origin.path)))


def text(findings: Findings, *, color: bool = False) -> str:
    """Return a line for each problem, and below it the source line and its hint; then sums."""
    lines: list[str] = []
    for number, (problem, more) in enumerate(alike(findings.problems)):
        lines.append(_line(findings, problem, color=color))
        if number < _EXCERPTS:
            lines += _excerpt(findings, problem)
        if problem.hint:
            lines.append(f"    {visible(problem.hint)}")
        if more:
            lines.append(f"    The same in {_listed(findings, more)}")
    return "\n".join([*lines, _summary(findings)]) + "\n"


def _listed(findings: Findings, places: Sequence[Origin]) -> str:
    named = first_of((visible(findings.place(one)) for one in places), _PLACES)
    more = "; -o json has all" if len(places) > _PLACES else ""
    return f"{len(places)} more places: {named}{more}"


def _excerpt(findings: Findings, problem: Problem) -> list[str]:
    content = findings.files.get(problem.origin.path)
    excerpt = None if content is None else wording.excerpt(content, problem.origin)
    if excerpt is None:
        return []
    number = f"{problem.origin.line:>5}"
    # Tabs stay, in both lines: the caret is below its character at any width of theirs.
    shown = "\t".join(map(visible, excerpt.line.split("\t")))
    before = "".join(one if one == "\t" else " " for one in excerpt.line[: excerpt.column])
    return [f"{number} | {shown}", f"{'':>{len(number)}} | {before:<{excerpt.column}}^"]


def as_json(findings: Findings) -> str:
    content = {
        "fleet": findings.fleet,
        "counts": {_key(word): count for word, count in findings.counts},
        "problems": [{**document(one), "path": findings.path(one)} for one in findings.problems],
    }
    return terminal.document(FORMAT, VERSION, content)


def document(problem: Problem) -> dict[str, JSON]:
    """Return a problem as JSON, with its path in the repository."""
    return {
        **asdict(problem.origin),
        "severity": problem.severity.value,
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
    }


def rows(problems: Sequence[Problem]) -> list[tuple[str, str]]:
    """Return a (place, sentence) for each problem; those that are alike share one."""
    return [
        (
            visible(f"{first.origin}{f' and {len(more)} more places' if more else ''}"),
            f"{_sentence(first)} [{first.code}]",
        )
        for first, more in alike(problems)
    ]


def sarif(findings: Findings, *, version: str) -> str:
    """Return a SARIF log of one run. `version` is that of klutchctl."""
    used = sorted({problem.code for problem in findings.problems})
    rules: list[JSON] = [{"id": code, "shortDescription": {"text": CODES[code]}} for code in used]
    driver: JSON = {"name": "klutchctl", "version": version, "rules": rules}
    run: JSON = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(findings, problem) for problem in findings.problems],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    log: JSON = {"$schema": schema, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def github(findings: Findings) -> str:
    """Return workflow commands that annotate the lines of a pull request, and the summary."""
    commands = [_command(findings, problem) for problem in findings.problems]
    return "\n".join([*commands, _summary(findings)]) + "\n"


def _line(findings: Findings, problem: Problem, *, color: bool) -> str:
    place = findings.place(problem.origin)
    severity = styled(problem.severity.value, _STYLES[problem.severity], color=color)
    return f"{line(place)}: {severity}: {visible(problem.message)} [{problem.code}]"


def _summary(findings: Findings) -> str:
    counts = Counter(problem.severity for problem in findings.problems)
    words = {
        Severity.INVALID: plural(counts[Severity.INVALID], "error"),
        Severity.DENIED: f"{counts[Severity.DENIED]} denied by policy",
        Severity.WARNING: plural(counts[Severity.WARNING], "warning"),
    }
    found = ", ".join(text for severity, text in words.items() if counts[severity])
    if not findings.fleet:
        return found
    *things, (units, number) = findings.counts
    made = ", ".join(plural(count, word) for word, count in things)
    fleet = f"{findings.fleet}: {made} -> {plural(number, units)}"
    return f"{fleet} ({found})" if found else fleet


def _key(word: str) -> str:
    first, *rest = word.split()
    return f"{''.join([first, *map(str.capitalize, rest)])}s"


def _result(findings: Findings, problem: Problem) -> JSON:
    uri = quote(findings.path(problem))
    place: dict[str, JSON] = {"artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"}}
    if problem.origin.line:
        place["region"] = {
            "startLine": problem.origin.line,
            "startColumn": problem.origin.column,
        }
    return {
        "ruleId": problem.code,
        "level": _LEVELS[problem.severity],
        "message": {"text": _sentence(problem)},
        "locations": [{"physicalLocation": place}],
    }


def _command(findings: Findings, problem: Problem) -> str:
    properties = {"file": findings.path(problem)}
    if problem.origin.line:
        properties["line"] = str(problem.origin.line)
        properties["col"] = str(problem.origin.column)
    properties["title"] = problem.code
    safe = {key: _data(visible(value)) for key, value in properties.items()}
    written = ",".join(
        f"{key}={value.replace(':', '%3A').replace(',', '%2C')}" for key, value in safe.items()
    )
    return f"::{_LEVELS[problem.severity]} {written}::{_data(_sentence(problem))}"


def _sentence(problem: Problem) -> str:
    return visible(f"{problem.message}. {problem.hint}" if problem.hint else problem.message)


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
