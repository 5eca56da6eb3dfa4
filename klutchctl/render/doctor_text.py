"""What a doctor found, for people: a block per cluster, a word for each finding, what to type."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from klutchctl.render.visible import visible
from reconciler.health.diagnosis import Examination, Finding, Level, Mend
from reconciler.health.rights import Side, Task

_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_COLORS: Final[Mapping[Level, str]] = {
    Level.OK: "\x1b[32m",
    Level.WARNING: "\x1b[33m",
    Level.PROBLEM: "\x1b[31m",
}
_TITLES: Final = {Side.CONTROL_PLANE: "Control plane", Side.APP_CLUSTER: "Cluster"}
_WIDTH: Final = max(map(len, Level))


def render(found: Sequence[Examination], *, path: str, task: Task, color: bool = False) -> str:
    """Return all of it as text that ends in a newline. `path` is that of the fleet repository."""
    blocks = [
        [_bold(_title(one), color=color), *_lines(one, path=path, task=task, color=color)]
        for one in found
    ]
    blocks.append([_bold(f"Doctor: {summary(found)}.", color=color)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def summary(found: Sequence[Examination]) -> str:
    """Return the counts in words, such as `3 clusters, 1 problem, 0 warnings`."""
    levels = Counter(finding.level for one in found for finding in one.findings)
    counted = (
        (len(found), "cluster"),
        (levels[Level.PROBLEM], "problem"),
        (levels[Level.WARNING], "warning"),
    )
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counted)


def command(one: Examination, finding: Finding, *, path: str, task: Task) -> str:
    """Return the command that mends a finding, or "". It is printed, and never run."""
    if finding.mend is None:
        return ""
    what = f"--print {one.side}-{finding.mend}"
    whose = f" --for {task}" if finding.mend is Mend.RIGHTS else ""
    target = f" --context {shlex.quote(one.context)}" if one.context else ""
    how = " --server-side" if finding.mend is Mend.CRDS else ""
    return f"klutchctl doctor {shlex.quote(path)}{whose} {what} | kubectl{target} apply{how} -f -"


def _lines(one: Examination, *, path: str, task: Task, color: bool) -> Iterator[str]:
    for finding in one.findings:
        word = f"{finding.level:<{_WIDTH}}"
        shown = f"{_COLORS[finding.level]}{word}{_RESET}" if color else word
        yield f"  {shown}  {visible(finding.message)}"
        if finding.level is not Level.OK and finding.remedy:
            yield f"  {'':<{_WIDTH}}  {visible(finding.remedy)}"
        mends = command(one, finding, path=path, task=task)
        if mends:
            yield f"  {'':<{_WIDTH}}  $ {visible(mends)}"


def _title(one: Examination) -> str:
    user = f", as {visible(one.user)}" if one.user else ""
    return f"{_TITLES[one.side]} {visible(one.name)}  ({visible(one.access)}{user})"


def _bold(text: str, *, color: bool) -> str:
    return f"{_BOLD}{text}{_RESET}" if color else text
