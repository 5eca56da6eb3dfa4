"""Whether and when a failed call is sent again. Pure."""

from typing import Final

from reconciler.kube.http.transport import Answer
from reconciler.kube.http.transport_errors import NoAnswer
from reconciler.kube.requests import Request

_TRIES: Final = 3
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0


def retry_after_of(answer: Answer) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); dates are not used."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def delay_before_retry(
    request: Request, outcome: Answer | NoAnswer, *, tries: int, left: float, jitter: float
) -> float | None:
    """Return the seconds to wait before the next try, or None to give up.

    `tries` were made, `left` seconds remain of the deadline, `jitter` is in [0, 1).
    """
    backoff = min(_FIRST_DELAY * 2 ** (tries - 1), _LONGEST_DELAY) * (0.5 + jitter)
    if isinstance(outcome, Answer) and outcome.status == 429:
        named = retry_after_of(outcome)
        delay = backoff if named is None else named + backoff / 4
    elif tries < _TRIES and _harmless(request, outcome):
        named = retry_after_of(outcome) if isinstance(outcome, Answer) else None
        delay = backoff if named is None else named + backoff / 4
    else:
        return None
    return delay if delay < left else None


def _harmless(request: Request, outcome: Answer | NoAnswer) -> bool:
    if isinstance(outcome, NoAnswer):
        return not outcome.permanent and (request.repeatable or not outcome.sent)
    return request.repeatable and outcome.status >= 500
