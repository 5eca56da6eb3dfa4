"""What a doctor found: a block per cluster with what to type for people, a document for programs.

The document is versioned: a new minor version adds fields, a major breaks.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from klutchctl.render import terminal
from klutchctl.render.terminal import Style, plural, visible
from reconciler.core.manifest import JSON
from reconciler.doctor.diagnosis import Examination, Finding, Level, Mend
from reconciler.doctor.rights import Side, Task

FORMAT: Final = "klutchctl.dev/doctor"
VERSION: Final = "1.0"

_STYLES: Final[Mapping[Level, Style]] = {
    Level.OK: Style.GREEN,
    Level.WARNING: Style.YELLOW,
    Level.PROBLEM: Style.RED,
}
_TITLES: Final = {Side.CONTROL_PLANE: "Control plane", Side.APP_CLUSTER: "Cluster"}
_WIDTH: Final = max(map(len, Level))


def text(examinations: Sequence[Examination], *, path: str, task: Task, color: bool = False) -> str:
    """Return all of it as text that ends in a newline. `path` is that of the fleet repository."""
    blocks = [
        terminal.block(_title(one), _lines(one, path=path, task=task, color=color), color=color)
        for one in examinations
    ]
    sums = terminal.block(f"Doctor: {summary(examinations)}.", color=color)
    return terminal.paragraphs([*blocks, sums])


def as_json(examinations: Sequence[Examination], *, path: str, task: Task) -> str:
    """Return one JSON object and a newline."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "for": task,
        "clusters": [_cluster_json(one, path=path, task=task) for one in examinations],
    }
    return json.dumps(document, indent=2) + "\n"


def _cluster_json(examination: Examination, *, path: str, task: Task) -> dict[str, JSON]:
    return {
        "name": examination.name,
        "kind": examination.side,
        "access": examination.access,
        "server": examination.server,
        "user": examination.user,
        "level": examination.level,
        "readable": examination.readable,
        "findings": [
            {
                "check": finding.check,
                "level": finding.level,
                "message": finding.message,
                "remedy": finding.remedy,
                "command": command(examination, finding, path=path, task=task),
            }
            for finding in examination.findings
        ],
    }


def summary(examinations: Sequence[Examination]) -> str:
    """Return the counts in words, such as `3 clusters, 1 problem, 0 warnings`."""
    levels = Counter(finding.level for one in examinations for finding in one.findings)
    problems, warnings = levels[Level.PROBLEM], levels[Level.WARNING]
    clusters = plural(len(examinations), "cluster")
    return f"{clusters}, {plural(problems, 'problem')}, {plural(warnings, 'warning')}"


def command(examination: Examination, finding: Finding, *, path: str, task: Task) -> str:
    """Return the command that mends a finding, or "". It is printed, and never run."""
    if finding.mend is None:
        return ""
    printed = f"--print {examination.side}-{finding.mend}"
    purpose = f" --for {task}" if finding.mend is Mend.RIGHTS else ""
    target = f" --context {shlex.quote(examination.context)}" if examination.context else ""
    flag = " --server-side" if finding.mend is Mend.CRDS else ""
    printing = f"klutchctl doctor {shlex.quote(path)}{purpose} {printed}"
    return f"{printing} | kubectl{target} apply{flag} -f -"


def _lines(examination: Examination, *, path: str, task: Task, color: bool) -> Iterator[str]:
    for finding in examination.findings:
        word = f"{finding.level:<{_WIDTH}}"
        shown = terminal.styled(word, _STYLES[finding.level], color=color)
        yield f"  {shown}  {visible(finding.message)}"
        if finding.level is not Level.OK and finding.remedy:
            yield f"  {'':<{_WIDTH}}  {visible(finding.remedy)}"
        mends = command(examination, finding, path=path, task=task)
        if mends:
            yield f"  {'':<{_WIDTH}}  $ {visible(mends)}"


def _title(examination: Examination) -> str:
    user = f", as {visible(examination.user)}" if examination.user else ""
    named = f"{_TITLES[examination.side]} {visible(examination.name)}"
    return f"{named}  ({visible(examination.access)}{user})"
