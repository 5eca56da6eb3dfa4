"""Draws a run of the demo as an animated SVG, without scripts or fonts of others.

A scene is a step of it. Lines appear one after another; a viewer that asks for reduced motion sees
the last scene.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

_WIDTH, _LINE, _LEFT, _TOP = 1000, 21, 24, 62  # px
_TYPED, _PRINTED, _READ = 1.2, 0.25, 3.0  # seconds: after a command, a line, a scene
_LONGEST, _WIDEST = 12, 112  # lines of a scene, characters of a line
TITLE: Final = "The demo: plan, apply, a claim, a restored table, drift, status, and a guard"
SCENES: Final = Path(__file__).with_name("scenes.txt").read_text("utf-8").splitlines()
_CLASSES: Final = {"== ": "title", "$ ": "typed", "  + ": "add", "  ~ ": "change", "  ! ": "change"}
_STYLE: Final = Path(__file__).with_suffix(".css").read_text("utf-8")


def recorded(printed: str) -> list[list[str]]:
    """Return the scenes from what the demo printed, in its words; "..." is what does not fit."""
    parts = [part.strip("\n").splitlines() for part in re.split(r"\n(?=== )", printed)]
    found = {part[0].removeprefix("== "): part for part in parts if part}
    return [_shortened([_narrow(line) for line in found[one] if _shown(line)]) for one in SCENES]


def _shown(line: str) -> bool:
    return bool(line) and not line.startswith("   done in ")  # how long it took there


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _LONGEST else [*lines[: _LONGEST - 5], "  ...", *lines[-4:]]


def _narrow(line: str) -> str:
    """Return a line that fits, without the folder of this run."""
    line = re.sub(r" --kubeconfig \S+|/\S*/(?=fleet-example)", "", line)
    while len(line) > _WIDEST and (gap := re.search(r"(?<=\S)   +(?=\S)(?!.*\S   +\S)", line)):
        line = line[: gap.start()] + "  " + line[gap.end() :]
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def drawn(parts: Sequence[Sequence[str]]) -> str:
    """Return the SVG of these scenes."""
    height = _TOP + _LINE * max(map(len, parts)) + 8
    begins = [*_times(parts)]
    whole = begins[-1][-1]
    lines, frames = [], []
    for number, (part, times) in enumerate(zip(parts, begins, strict=True)):
        for row, (text, at) in enumerate(zip(part, times[:-1], strict=True)):
            name = f"a{number}x{row}"
            kind = next((each for start, each in _CLASSES.items() if text.startswith(start)), "")
            last = " last" if part is parts[-1] else ""
            lines.append(
                f'<text class="line {kind}{last}" style="animation-name:{name}" x="{_LEFT}"'
                f' y="{_TOP + _LINE * row}">{escape(text)}</text>'
            )
            shown, gone = (100 * moment / whole for moment in (at, times[-1]))
            frames.append(f"@keyframes {name}{{0%{{opacity:0}}{shown:.2f}%{{opacity:1}}")
            frames.append(f"{gone:.2f}%{{opacity:{int(gone == 100)}}}}}\n")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}" role="img" aria-labelledby="t" font-size="14"'
        f' font-family="ui-monospace, Menlo, Consolas, monospace">\n<title id="t">{TITLE}'
        f"</title>\n<style>{_STYLE % whole}{''.join(frames)}</style>\n"
        f'<rect class="page" x="1" y="1" width="{_WIDTH - 2}" height="{height - 2}" rx="8"/>\n'
        + "".join(f'<circle class="dot" cx="{24 + 18 * n}" cy="22" r="6"/>' for n in range(3))
        + "\n"
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _times(parts: Sequence[Sequence[str]]) -> Iterator[list[float]]:
    """Yield for each scene when its lines appear, and when it goes; in seconds."""
    now = 0.0
    for part in parts:
        times = []
        for text in part:
            times.append(now)
            now += _TYPED if text.startswith(("$ ", "== ")) else _PRINTED
        now += _READ
        yield [*times, now]
