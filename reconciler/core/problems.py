"""What is wrong with what people wrote, as values: all of it at once, each with its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from reconciler.core.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Where something is written. Lines and columns count from 1; 0 is "the whole file"."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


class Severity(Enum):
    """What a problem stops. Only warnings let a plan go on."""

    INVALID = "error"
    DENIED = "denied"  # well-formed, but a Policy says no
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend. `code` is stable and for machines; `hint` says what to do, or is ""."""

    origin: Origin
    code: str
    message: str
    hint: str = ""
    severity: Severity = Severity.INVALID

    def __str__(self) -> str:
        hint = f". {self.hint}" if self.hint else ""
        return f"{self.origin}: {self.message}{hint} [{self.code}]"


class InvalidRepository(ConfigError):
    """A fleet repository that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @property
    def invalid(self) -> bool:
        """Tell whether anything is wrong beside what a Policy denies."""
        return any(problem.severity is Severity.INVALID for problem in self.problems)


def in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems by place, each once."""
    return tuple(
        sorted(set(problems), key=lambda one: (one.origin, one.code, one.message, one.hint))
    )
