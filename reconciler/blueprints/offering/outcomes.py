"""The outcomes of calls to a broker, as values, and cleaned texts for conditions, Events and logs.

No text has a secret.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from reconciler.core.documents import first_of, one_line
from reconciler.core.manifest import JSON, Manifest, canonical, get_text
from reconciler.core.secret import HIDDEN, Secret
from reconciler.core.secret import scrub as hide

_LONGEST_LINE: Final = 1000
_LONGEST_DEFAULT: Final = 200
_NAMES_SHOWN: Final = 5
LONGEST_NAME: Final = 255
_LONGEST: Final = 512
_LONGEST_READ: Final = 8 * 1024  # of a text that may have a megabyte
_SHORTEST: Final = 4  # of a text in credentials that is taken for a secret
_MOST_TEXTS: Final = 200
# A broker may repeat in its words what it was given, or gave.
_SECRET_LIKE: Final = (
    re.compile(r"(://)(?:[^\s/@:]*:\S{1,512}|[^\s/@]+)(?=@)"),  # many put a slash in a password
    re.compile(r"\b((?:[Bb]asic|[Bb]earer|BASIC|BEARER) )(?=\S*[0-9A-Z=])[A-Za-z0-9_\-.~+/=]{8,}"),
    re.compile(r"\b()eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)*"),
    re.compile(
        r"(?i)((?:password|passwd|passphrase|pwd|secret|token|credential|api[_-]?key|access[_-]?key"
        r"|private[_-]?key|authorization)s?[\"']? ?[:=] ?)(?:\"[^\"]*\"?|'[^']*'?|[^\s,;]+)"
    ),
)


def line(text: str, *, longest: int = _LONGEST_LINE) -> str:
    """Return a text on one line, without unprintable characters; a cut one ends in dots."""
    joined = one_line(text)
    return joined if len(joined) <= longest else f"{joined[: longest - 3].rstrip()}..."


def title_of(schema: Mapping[str, JSON]) -> str:
    """Return the title of a JSON schema, or ""."""
    return line(get_text(schema, "title"))


def described(schema: Mapping[str, JSON]) -> str:
    """Return the description of a JSON schema with its default in words, or ""."""
    words = line(get_text(schema, "description"))
    if "default" not in schema:
        return words
    default = line(canonical(schema["default"]).decode(), longest=_LONGEST_DEFAULT)
    stop = "" if not words or words.endswith((".", "!", "?")) else "."
    return f"{words}{stop} Default: {default}".strip()


def names(plans: Collection[str]) -> str:
    """Return the names of plans for people, the first few of many."""
    return first_of(sorted(plans), _NAMES_SHOWN)


def scrub(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Return a broker's text as one line of 512 characters at most, without likely secrets."""
    hidden = tuple(secret.reveal() for secret in secrets)
    # Before blanks and control characters go, and after that: either may be part of a secret.
    line = hide(one_line(hide(text[:_LONGEST_READ], hidden)), hidden)
    for pattern in _SECRET_LIKE:
        line = pattern.sub(rf"\1{HIDDEN}", line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def name_in(value: JSON, *path: str) -> str:
    """Return the text at `path` where it is fit to be a name: short, and printable; or ""."""
    text = get_text(value, *path)
    return text if text.isprintable() and len(text) <= LONGEST_NAME else ""


def texts_in(value: JSON) -> list[str]:
    """Return the texts inside a value, as far as they could identify something."""
    found, pending = list[str](), [value]
    while pending and len(found) < _MOST_TEXTS:
        inner = pending.pop()
        if isinstance(inner, str):
            found += [inner] if len(inner) >= _SHORTEST else []
        elif isinstance(inner, Mapping):
            pending += inner.values()
        elif isinstance(inner, Sequence):
            pending += inner
    return found


@dataclass(frozen=True, slots=True)
class Unsent:
    """Surely nothing was done: the same call may be made later."""

    problem: str
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome is unknown. `malformed`: the broker reports success in no known words.

    `status` is 0 where there was no answer.
    """

    problem: str
    status: int = 0
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """The broker does not accept our credentials."""

    status: int
    problem: str


@dataclass(frozen=True, slots=True)
class Done:
    """The call is done, or this is its answer. `credentials` is the text of a JSON object.

    `ignored` are the parts of a binding that come into no Secret.
    """

    dashboard_url: str = ""
    credentials: Secret | None = None
    parameters: Mapping[str, JSON] | None = field(default=None, repr=False)
    plan: str = ""
    maintenance: str = ""
    endpoints: tuple[Manifest, ...] = ()
    expires_at: datetime | None = None
    renew_before: datetime | None = None
    ignored: tuple[str, ...] = ()
    created: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The call has begun; its operation can be polled."""

    operation: Secret | None = None
    dashboard_url: str = ""
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """404. It proves nothing where it is not even JSON: a gateway may answer so."""

    is_json: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """The object is not there any more: 410, or a DELETE that was done."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not do it, and nothing was done.

    conflict: a PUT of an id that has something else. unsupported: not in the version of the API
    that we speak. busy: another operation is in progress. maintenance: the catalogue has another
    version of that by now.
    """

    problem: str
    word: Literal["refused", "conflict", "unsupported", "busy", "maintenance"] = "refused"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an operation; `state` is "" where the broker states no known one."""

    state: str
    problem: str = ""
    retry_after: timedelta | None = None
    instance_usable: bool | None = None
    update_repeatable: bool | None = None


Outcome: TypeAlias = (
    Unsent | Unknown | Denied | Done | Accepted | Absent | Gone | Refused | Progress
)
