"""Classifies a broker's answers by table 5 of the design. One pure function.

A broker may lie, and a gateway may answer in its place. An answer without a JSON object proves
neither that a request was executed, nor that it was not. Callers decide what follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.outcomes import name_in, scrub, texts_in
from reconciler.core import manifest as m
from reconciler.core.addresses import is_visible
from reconciler.core.documents import object_of
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret
from reconciler.core.times import moment

MOST_OCTETS: Final = 2**20
_MOST_MEMORY: Final = 16 * 2**20
_LONGEST_OPERATION: Final = 10_000  # as OSB API 2.15 bounds it: it goes into a query, and a Record
_LONGEST_URL: Final = 2_048
_LONGEST_HOST: Final = 255
_MOST_ENDPOINTS: Final = 64
_PAUSES: Final = (1, 600)  # seconds that a broker may ask to be left alone
_YEARS: Final = range(1970, 9000)  # some say "never" by the last day of all
_STATES: Final = ("in progress", "succeeded", "failed")
_NOT_PROJECTED: Final = ("volume_mounts", "syslog_drain_url", "route_service_url")


@dataclass(frozen=True, slots=True)
class _Answer:
    call: messages.Call
    status: int
    document: Manifest | None
    problem: str
    retry_after: timedelta | None


def outcome(
    call: messages.Call,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Sequence[Secret] = (),
) -> outcomes.Outcome:
    """Return the outcome of an answer. `headers` have lower-case names; `secrets` never recur.

    Broker's words become a `problem`: one line of 512 characters at most.
    """
    document = object_of(body, most_memory=_MOST_MEMORY)
    problem = _problem(call, status, document, secrets)
    answer = _Answer(call, status, document, problem, retry_after(headers))
    match status:
        case 200 | 201 | 202 if document is None:
            return unreadable(call, status, "the answer is no JSON object that can be read")
        case 200 | 201 | 202:
            return _success(answer, document or {})
        case 401 | 403:
            return outcomes.Denied(status, problem)
        case 408 | 429 | 503 if status != 503 or answer.retry_after is not None:
            return outcomes.Unsent(problem, answer.retry_after)
        case _ if 400 <= status < 500:
            return _refusal(answer)
        case _:
            return outcomes.Unknown(problem, status)


def unreadable(call: messages.Call, status: int, problem: str) -> outcomes.Unknown:
    """Return the outcome of an answer that cannot be read, or of none (status 0)."""
    return outcomes.Unknown(
        problem, status, malformed=status in (201, 202) and messages.is_mutating(call)
    )


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return for how long the broker wants no call: seconds, or a date beside that of its clock."""
    header = headers.get("retry-after", "").strip()
    if header.isascii() and header.isdigit():
        seconds = int(header[:9])
    else:
        date, clock = _http_date(header), _http_date(headers.get("date", ""))
        if date is None or clock is None:
            return None
        seconds = int((date - clock).total_seconds())
    least, most = _PAUSES
    return timedelta(seconds=min(max(seconds, least), most))


def _http_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    return date if date.tzinfo is not None else None


def _success(answer: _Answer, document: Manifest) -> outcomes.Outcome:
    match answer.status, answer.call:
        case 200, messages.Deprovision() | messages.Unbind():
            return outcomes.Gone()
        case 200, messages.LastOperation():
            return _progress(answer, document)
        case 200, _:
            return _done(document, created=False)
        case 201, messages.Provision() | messages.Bind():
            return _done(document, created=True)
        case 202, call if messages.is_mutating(call):
            return _accepted(answer, document)
    return outcomes.Unknown(f"HTTP {answer.status} is no answer to this call", answer.status)


def _refusal(answer: _Answer) -> outcomes.Outcome:  # noqa: PLR0911 - an answer each
    call, code = answer.call, m.get_text(answer.document, "error")
    is_made = isinstance(call, messages.Provision | messages.Bind)
    match answer.status, code:
        case 404, _ if not is_made and not isinstance(call, messages.Update):
            return outcomes.Absent(is_json=answer.document is not None)
        case 410, _ if not is_made:
            return outcomes.Gone()
        case 409, _ if is_made:
            return outcomes.Refused(answer.problem, "conflict")
        case 412, _:
            return outcomes.Refused(answer.problem, "unsupported")
        case 422, "ConcurrencyError":
            return outcomes.Refused(answer.problem, "busy")
        case 422, "MaintenanceInfoConflict" if isinstance(
            call, messages.Provision | messages.Update
        ):
            return outcomes.Refused(answer.problem, "maintenance")
    return outcomes.Refused(answer.problem)


def _progress(answer: _Answer, document: Manifest) -> outcomes.Progress:
    reported = m.get_text(document, "state")
    usable, repeatable = document.get("instance_usable"), document.get("update_repeatable")
    state = reported if reported in _STATES else ""
    words = answer.problem if m.get_text(document, "description") else ""
    return outcomes.Progress(
        state,
        words,
        answer.retry_after,
        usable if isinstance(usable, bool) else None,
        repeatable if isinstance(repeatable, bool) else None,
    )


def _done(document: Manifest, *, created: bool) -> outcomes.Done:
    found, parameters = m.get(document, "credentials"), m.get(document, "parameters")
    credentials = Secret(m.canonical(found).decode()) if isinstance(found, Mapping) else None
    return outcomes.Done(
        dashboard_url=_url(document),
        credentials=credentials,
        parameters=parameters if isinstance(parameters, Mapping) else None,
        plan=name_in(document, "plan_id"),
        maintenance=name_in(document, "maintenance_info", "version"),
        endpoints=_endpoints(document),
        expires_at=_time(document, "expires_at"),
        renew_before=_time(document, "renew_before"),
        ignored=tuple(key for key in _NOT_PROJECTED if m.get(document, key)),
        created=created,
    )


def _time(document: Manifest, name: str) -> datetime | None:
    """Return a time that can be reckoned with: a day more or less is a time too."""
    time = moment(m.get_text(document, "metadata", name))
    return time if time is not None and time.year in _YEARS else None


def _accepted(answer: _Answer, document: Manifest) -> outcomes.Outcome:
    operation = m.get_text(document, "operation")
    if len(operation) > _LONGEST_OPERATION:
        return unreadable(answer.call, answer.status, "the key of its operation is too long")
    key = Secret(operation) if operation else None
    return outcomes.Accepted(key, _url(document), answer.retry_after)


def _problem(
    call: messages.Call, status: int, document: Manifest | None, secrets: Sequence[Secret]
) -> str:
    """Return the broker's words, without secrets: ours, and texts beside them."""
    read: Manifest = document or {}
    known = [*secrets, *map(Secret, texts_in(read.get("credentials")))]
    known += [Secret(m.get_text(read, "operation"))]
    if isinstance(call, messages.LastOperation) and call.operation is not None:
        known.append(call.operation)
    words = scrub(m.get_text(read, "description") or m.get_text(read, "error"), known)
    return words or f"HTTP {status}, without a reason"


def _url(document: Manifest) -> str:
    """Return where the dashboard is, if that can be shown: neither a script nor a password."""
    url = m.get_text(document, "dashboard_url")
    if not is_visible(url) or len(url) > _LONGEST_URL:
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    is_shown = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    return url if is_shown else ""


def _endpoints(document: Manifest) -> tuple[Manifest, ...]:
    found = map(_endpoint, m.get_maps(document, "endpoints")[:_MOST_ENDPOINTS])
    return tuple(endpoint for endpoint in found if endpoint["host"] and endpoint["ports"])


def _endpoint(given: Manifest) -> Manifest:
    host, protocol = m.get_text(given, "host"), m.get_text(given, "protocol")
    ports = [port for port in m.get_texts(given, "ports") if port.isascii() and len(port) <= 11]
    endpoint: dict[str, JSON] = {
        "host": host if is_visible(host) and len(host) <= _LONGEST_HOST else "",
        "ports": [port for port in ports if port.replace("-", "", 1).isdigit()],
    }
    return {**endpoint, "protocol": protocol} if protocol in ("tcp", "udp", "all") else endpoint
