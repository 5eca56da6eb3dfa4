"""`python -m tests.support.pictures [NAME ...]`: takes pictures that are older than what they show.

`inputs.json` beside the pictures names what each shows, with its digest: a page, a file, a folder,
or a definition in a Python file. A diagram is drawn by hand: give its name once it is right.
"""

import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.support import books, screenshots, terminal

FOLDER: Final = books.SITE / "pictures"
RECORD: Final = FOLDER / "inputs.json"
RECORDING: Final = "demo.svg"
PAGE: Final = "page:"


def record() -> dict[str, dict[str, str]]:
    """Return the digests of what each picture shows, as they were when it was taken."""
    return dict(json.loads(RECORD.read_text("utf-8")))


def changed(inputs: dict[str, str]) -> list[str]:
    return [name for name, noted in inputs.items() if digest(name) != noted]


def digest(name: str, root: Path = books.ROOT) -> str:
    """Return the digest of an input. Raises where there is none."""
    path, _, definition = name.partition(":")
    if name.startswith(PAGE):
        styles = (screenshots.ASSETS[one].body.decode() for one in ("board.css", "door.css"))
        texts = [screenshots.pages()[definition], *styles]
    else:
        texts = [*_contents(root / path, definition)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _contents(path: Path, definition: str) -> Iterator[str]:
    """Yield the texts of a file, or of a folder with their names, without lines of comments."""
    if path.is_dir():
        for file in sorted(one for one in path.iterdir() if one.name != "__pycache__"):
            yield from (file.name, *_contents(file, ""))
        return
    lines = path.read_text("utf-8").splitlines()
    if definition:
        parts = ast.parse("\n".join(lines)).body
        [found] = (one for one in parts if getattr(one, "name", "") == definition)
        lines = lines[found.lineno - 1 : found.end_lineno]
    yield "\n".join(one for one in lines if not one.lstrip().startswith("#"))


def recording() -> str:
    """Return the picture of a run of the demo."""
    run = [sys.executable, "-m", "tests.demo"]
    done = subprocess.run(run, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return terminal.drawn(terminal.recorded(done.stdout))


def main(asked: Sequence[str]) -> int:
    """Take what is asked for, else what is old; return 1 where a diagram needs a look."""
    old = {name: news for name, inputs in record().items() if (news := changed(inputs))}
    drawn = [name for name in old if name.endswith(".svg") and name != RECORDING]
    due = [*asked] or [name for name in old if name not in drawn]
    shots = [name for name in due if name.endswith(".png")]
    taken = screenshots.taken(map(Path, shots)) if shots else ()
    made = dict(zip(shots, taken, strict=True))
    if RECORDING in due:
        made[RECORDING] = recording().encode()
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    now = record() | {name: {one: digest(one) for one in record()[name]} for name in due}
    RECORD.write_text(json.dumps(now, indent=2) + "\n", "utf-8")
    left = {*drawn} - {*due}
    print("Look at:", *due)
    for name in left:
        print(f"`make pictures ARGS={name}` once it shows {', '.join(old[name])}")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
