"""Draws a transcript of a terminal as an animated SVG, without scripts or fonts of others.

A scene begins with each line "== TITLE". Lines appear one after another; a viewer that asks for
reduced motion sees the last scene.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

_WIDTH, _LINE, _LEFT, _TOP = 1000, 21, 24, 62  # px
_TYPED, _PRINTED, _READ = 1.2, 0.25, 3.0  # seconds: after a command, a line, a scene
_CLASSES: Final = {"== ": "title", "$ ": "typed", "  + ": "add", "  ~ ": "change", "  ! ": "change"}
_STYLE: Final = """
.page{fill:#f6f8fa;stroke:#afb8c1}.dot{fill:#afb8c1}text{fill:#1f2328;white-space:pre}
.title{fill:#0a5bc4;font-weight:600}.typed{font-weight:600}.add{fill:#17662b}.change{fill:#8a4600}
.line{opacity:0;animation-duration:%.1fs;animation-iteration-count:infinite;
animation-timing-function:step-end}
@media (prefers-color-scheme:dark){
.page{fill:#15191f;stroke:#3d444d}.dot{fill:#3d444d}text{fill:#e6edf3}
.title{fill:#6cb0ff}.add{fill:#5fd17a}.change{fill:#f0a35e}}
@media (prefers-reduced-motion:reduce){.line{animation:none}.last{opacity:1}}
"""


def scenes(transcript: str) -> list[list[str]]:
    return [part.strip("\n").splitlines() for part in re.split(r"\n(?=== )", transcript)]


def drawn(transcript: str, title: str) -> str:
    """Return the SVG. `title`: for those who do not see it."""
    parts = scenes(transcript)
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
        f' font-family="ui-monospace, Menlo, Consolas, monospace">\n<title id="t">{escape(title)}'
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
