"""Where a fact is written; it travels with the fact to plans and errors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Where something is written. Lines and columns count from 1; 0 is "the whole file"."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path
