"""Renders the findings of a doctor, as text with commands and as JSON.

The documents are versioned: a new minor version adds fields, a major breaks.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, TypeAlias

from klutchctl.binding.checkup import Examined
from klutchctl.render import terminal
from klutchctl.render.terminal import Style, plural, visible
from reconciler.core.manifest import JSON
from reconciler.doctor.diagnosis import Examination, Finding, Level, Mend
from reconciler.doctor.rights import Side, Task

FORMAT: Final = "klutchctl.dev/doctor"
ADDRESS_FORMAT: Final = "klutchctl.dev/doctor-address"
VERSION: Final = "1.0"  # of both

_STYLES: Final[Mapping[Level, Style]] = {
    Level.OK: Style.GREEN,
    Level.WARNING: Style.YELLOW,
    Level.PROBLEM: Style.RED,
}
_TITLES: Final = {Side.CONTROL_PLANE: "Control plane", Side.APP_CLUSTER: "Cluster"}
_WIDTH: Final = max(map(len, Level))
_Found: TypeAlias = Sequence[Examination | Examined]


def text(
    examinations: Sequence[Examination],
    *,
    path: str,
    task: Task,
    color: bool = False,
    docs: str = "",
) -> str:
    """Return all of it as text that ends in a newline. `path` is that of the fleet repository."""
    blocks = [
        terminal.block(_title(one), _lines(one, path=path, task=task, color=color), color=color)
        for one in examinations
    ]
    return _text(blocks, examinations, summary(examinations), docs, color=color)


def address_text(found: Sequence[Examined], *, color: bool = False, docs: str = "") -> str:
    blocks = [
        terminal.block(
            f"{one.kind.capitalize()} {visible(one.url)}",
            (line for each in one.findings for line in _finding(each, color=color)),
            color=color,
        )
        for one in found
    ]
    return _text(blocks, found, _counts(found), docs, color=color)


def _text(
    blocks: Sequence[Sequence[str]], found: _Found, counts: str, docs: str, *, color: bool
) -> str:
    bad = (each.check for one in found for each in one.findings if each.level is not Level.OK)
    pages = terminal.pages(bad, docs, color=color)
    sums = terminal.block(f"Doctor: {counts}.", color=color)
    return terminal.paragraphs([*blocks, *pages, sums])


def as_json(examinations: Sequence[Examination], *, path: str, task: Task) -> str:
    clusters = [
        {
            "name": one.name,
            "kind": one.side,
            "access": one.access,
            "server": one.server,
            "user": one.user,
            "level": one.level,
            "readable": one.readable,
            "findings": [
                {**_finding_json(each), "command": command(one, each, path=path, task=task)}
                for each in one.findings
            ],
        }
        for one in examinations
    ]
    return terminal.document(FORMAT, VERSION, {"for": task, "clusters": clusters})


def address_json(found: Sequence[Examined]) -> str:
    addresses = [
        {
            "url": one.url,
            "kind": one.kind,
            "level": one.level,
            "reached": one.readable,
            "findings": list(map(_finding_json, one.findings)),
        }
        for one in found
    ]
    return terminal.document(ADDRESS_FORMAT, VERSION, {"addresses": addresses})


def _finding_json(finding: Finding) -> dict[str, JSON]:
    return {name: value for name, value in asdict(finding).items() if name != "mend"}


def summary(examinations: Sequence[Examination]) -> str:
    """Return the counts in words, such as `3 clusters, 1 problem, 0 warnings`."""
    return f"{plural(len(examinations), 'cluster')}, {_counts(examinations)}"


def _counts(found: _Found) -> str:
    levels = Counter(finding.level for one in found for finding in one.findings)
    problems, warnings = levels[Level.PROBLEM], levels[Level.WARNING]
    return f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}"


def command(examination: Examination, finding: Finding, *, path: str, task: Task) -> str:
    """Return the command that mends a finding, or "". It is printed, and never run."""
    if finding.mend is None:
        return ""
    printed = f"--print {examination.side}-{finding.mend}"
    purpose = f" --for {task}" if finding.mend is Mend.RIGHTS else ""
    target = f" --context {shlex.quote(examination.context)}" if examination.context else ""
    printing = f"klutchctl doctor {shlex.quote(path)}{purpose} {printed}"
    return f"{printing} | kubectl{target} apply --server-side -f -"


def _lines(examination: Examination, *, path: str, task: Task, color: bool) -> Iterator[str]:
    for finding in examination.findings:
        yield from _finding(finding, color=color)
        mends = command(examination, finding, path=path, task=task)
        if mends:
            yield f"  {'':<{_WIDTH}}  $ {visible(mends)}"


def _finding(finding: Finding, *, color: bool) -> Iterator[str]:
    word = terminal.styled(f"{finding.level:<{_WIDTH}}", _STYLES[finding.level], color=color)
    yield f"  {word}  {visible(finding.message)}"
    if finding.level is not Level.OK and finding.remedy:
        yield f"  {'':<{_WIDTH}}  {visible(finding.remedy)}"


def _title(examination: Examination) -> str:
    user = f", as {visible(examination.user)}" if examination.user else ""
    named = f"{_TITLES[examination.side]} {visible(examination.name)}"
    return f"{named}  ({visible(examination.access)}{user})"
