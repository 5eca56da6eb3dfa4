"""Defines the errors that a person or caller can meet, as one tree.

KlutchError                    a sentence: what, where, what to do next
├─ ConfigError        NEVER    what a person wrote is wrong (a kubeconfig, a file, an option)
│  └─ InvalidRepository        a fleet repository, with all that is wrong in it as Problems
├─ StalePlan          NEVER    a saved plan does not fit the files or the clusters any more
├─ Locked             NEVER    another run works on this fleet
├─ HostError          NEVER    the machine lacks something (a port, disk space, a toolchain)
├─ Unfetched          LATER    a server gave no files, or none that can be read
└─ ClusterError                an API server said no, or nothing; carries cluster, object, verb
   ├─ Unreachable     LATER    network, time-out, 5xx, 429, a cut answer
   │  ├─ Oversized             it answered more than is read of it
   │  └─ Contested             the object was written too often, perhaps against another program
   ├─ Unauthorized    LATER    401, also with renewed credentials
   ├─ Forbidden       LATER    403; the right may be granted later
   ├─ NotServed       LATER    the kind is not in the cluster's API (its CRD is absent)
   ├─ Conflict        NOW      someone else wrote: look again and decide again
   │  ├─ AlreadyExists         create found the name taken
   │  ├─ Missing               a write to an object that is not there
   │  └─ Replaced              the object with this uid is gone; another may bear its name
   ├─ Expired         NOW      the resourceVersion or continue token is too old: list again
   └─ Rejected        NEVER    400, 413, 422: until the input changes

Absence is None, not an exception: only writes raise Missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import ClassVar, Final

from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref

_MOST_APART: Final = 3  # problems that differ only in their place


class Retry(Enum):
    """When the same call may succeed."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


class KlutchError(Exception):
    """The root. `str()` is a whole sentence for a person and holds no secret."""

    retry: ClassVar[Retry] = Retry.NEVER


class ConfigError(KlutchError):
    """A person's input that cannot be used. `where` is file:line:column, the option or object."""

    def __init__(self, message: str, *, where: str, hint: str = "") -> None:
        self.message, self.where, self.hint = message, where, hint
        prefix = f"{where}: " if where else ""
        suffix = f". {hint}" if hint else ""
        super().__init__(f"{prefix}{message}{suffix}")


class HostError(KlutchError):
    """This machine lacks something that the command needs. `hint` is the remedy."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(f"{message}. {hint}" if hint else message)


class Unfetched(KlutchError):
    """A server gave no files that can be used. `where` is its URL, without secrets."""

    retry = Retry.LATER

    def __init__(self, message: str, *, where: str) -> None:
        super().__init__(f"{where}: cannot be fetched: {message}")


class StalePlan(KlutchError):
    """A saved plan does not fit any more. Nothing was written; plan again."""


class Locked(KlutchError):
    """Another run holds the lock of this fleet."""

    def __init__(self, cluster: str, holder: str, age: timedelta) -> None:
        self.cluster, self.holder, self.age = cluster, holder, age
        super().__init__(
            f"{cluster}: another run holds the lock of this fleet: {holder}, for "
            f"{max(int(age.total_seconds()), 0)} s. Wait for it, or take the lock over with "
            "--break-lock if that run is dead"
        )


class ClusterError(KlutchError):
    """A call to an API server failed.

    `status` is the HTTP status, 0 where there was no answer; `reason` the Status reason.
    `retry_after` is in seconds, where the server named it.
    `outcome_unknown`: a write was sent and no answer came, so it may have happened.
    """

    def __init__(  # noqa: PLR0913 - each is a fact of the failed call that some caller reads
        self,
        message: str,
        *,
        ref: Ref,
        verb: str,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        self.message, self.ref, self.verb = message, ref, verb
        self.status, self.reason, self.retry_after = status, reason, retry_after
        self.outcome_unknown = outcome_unknown
        doubt = " (the write may have happened)" if outcome_unknown else ""
        is_list = not ref.name and verb in ("create", "list")  # that it is a list, or of which name
        self.call = f"{verb} {ref.object.replace(' list', '', 1) if is_list else ref.object}"
        super().__init__(f"{ref.cluster}: {self.call}: {message}{doubt}")

    @property
    def cluster(self) -> str:
        return self.ref.cluster


class Unreachable(ClusterError):
    """No usable answer: network, time-out, 429, 5xx, a cut or garbled body."""

    retry = Retry.LATER


class Contested(Unreachable):
    """Not sent: the object was written too often lately, perhaps against another program."""


class Oversized(Unreachable):
    """The cluster answered, with more than is read of it. `ref` names the object, if it is one.

    Nothing is known of what such an object asks for: it is neither absent nor empty. `stub` is what
    is known of it (`core.manifest.stub_of`).
    """

    stub: Manifest | None = None


def oversized(ref: Ref, verb: str, stub: Manifest) -> Oversized:
    """Return the error for an object that is too large to be read."""
    error = Oversized("the object is too large to be read: make it smaller", ref=ref, verb=verb)
    error.stub = stub
    return error


class Unauthorized(ClusterError):
    """401, also after the credentials were renewed."""

    retry = Retry.LATER


class Forbidden(ClusterError):
    """403: RBAC or admission refuses, for now."""

    retry = Retry.LATER


class NotServed(ClusterError):
    """The cluster's own discovery confirms that it does not serve this kind."""

    retry = Retry.LATER


class Conflict(ClusterError):
    """The object is not as the caller thought. Read it again and decide again."""

    retry = Retry.NOW


class AlreadyExists(Conflict):
    """Create found the name taken."""


class Missing(Conflict):
    """A patch met no object of this name."""


class Replaced(Conflict):
    """The uid in the request is not the live one: the object was deleted and made again."""


class Expired(ClusterError):
    """410: the resourceVersion or continue token is too old."""

    retry = Retry.NOW


class Rejected(ClusterError):
    """The API server will refuse this input until it changes."""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A place in a file. Lines and columns count from 1; 0 is "the whole file"."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


_NOWHERE: Final = Origin("")


class Severity(Enum):
    """The severity of a problem. Only warnings let a plan go on."""

    INVALID = "error"
    DENIED = "denied"  # well-formed, but a Policy says no
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A thing to mend. `code` is stable and for machines; `hint` is a remedy, or ""."""

    origin: Origin
    code: str
    message: str
    hint: str = ""
    severity: Severity = Severity.INVALID

    def __str__(self) -> str:
        hint = f". {self.hint}" if self.hint else ""
        return f"{self.origin}: {self.message}{hint} [{self.code}]"


class InvalidRepository(ConfigError):
    """A fleet repository that cannot be used, with everything that is wrong with it.

    `revision` is the commit, "" where the files are of none.
    """

    def __init__(self, problems: Sequence[Problem], *, revision: str = "") -> None:
        self.problems, self.revision = in_order(problems), revision
        found = (
            f"{first}{f' (the same in {len(more)} more places)' if more else ''}"
            for first, more in alike(self.problems)
        )
        super().__init__("\n".join(found), where="")  # each has its own

    @property
    def invalid(self) -> bool:
        """Return whether there is any problem beside the denials of a Policy."""
        return any(problem.severity is Severity.INVALID for problem in self.problems)


def in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems by place, each once."""
    return tuple(sorted(set(problems), key=_order))


def _order(problem: Problem) -> tuple[Origin, str, str, str]:
    return problem.origin, problem.code, problem.message, problem.hint


def alike(problems: Iterable[Problem]) -> list[tuple[Problem, tuple[Origin, ...]]]:
    """Return the problems, each with the further places of those that differ only in their place.

    A few of a kind stay apart: each is looked at on its own.
    """
    kinds: dict[Problem, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(replace(problem, origin=_NOWHERE), []).append(problem)
    found: list[tuple[Problem, tuple[Origin, ...]]] = []
    for some in kinds.values():
        if len(some) > _MOST_APART:
            found.append((some[0], tuple(one.origin for one in some[1:])))
        else:
            found += ((one, ()) for one in some)
    return sorted(found, key=lambda one: _order(one[0]))


def origin(error: BaseException) -> str:
    """Return where an unknown exception was raised, whose text may hold values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
