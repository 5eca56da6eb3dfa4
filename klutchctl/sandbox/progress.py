"""How long work shows itself to a person. The sandbox knows the port only."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import IO, Final, Protocol

_LINE_EVERY: Final = 10.0


class Progress(Protocol):
    """Where the sandbox says what it is doing."""

    def note(self, text: str) -> None:
        """Say one thing worth keeping, such as where the binaries come from."""
        ...

    def step(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show `text` for as long as the block runs; the callable shows how far it is."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Plain lines, for logs and pipes: at most one every ten seconds about the same step."""

    stream: IO[str]
    clock: Callable[[], float] = field(default=time.monotonic)

    def note(self, text: str) -> None:
        """Write it."""
        print(text, file=self.stream, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """Write the start, now and then how far it is, and the end with the time it took."""
        start = last = self.clock()

        def update(detail: str) -> None:
            nonlocal last
            now = self.clock()
            if now - last >= _LINE_EVERY:
                last = now
                self.note(f"{text}: {detail}, {now - start:.0f} s")

        self.note(text)
        yield update
        self.note(f"{text}: done, {self.clock() - start:.1f} s")


@dataclass(frozen=True, slots=True)
class Terminal:
    """One line that changes in place while a step runs."""

    stream: IO[str]
    color: bool

    def note(self, text: str) -> None:
        """Write it."""
        print(text, file=self.stream, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner, the text, the latest detail and the time since the start."""
        # Only a terminal pays for the import.
        from rich.console import Console
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
        )
        console = Console(file=self.stream, no_color=not self.color)
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task(text, detail="", total=None)
            yield lambda detail: bar.update(task, detail=detail)
