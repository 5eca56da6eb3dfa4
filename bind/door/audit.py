"""Writes audit lines, one for each grant or refusal, and counts them."""

import json
import sys
from dataclasses import dataclass
from typing import Final, Literal, TextIO, TypeAlias

from prometheus_client import Counter

from bind.door.identity import Identity
from reconciler.controller.tasks import Clock
from reconciler.core import times
from reconciler.web.requests import Request

_FORMAT: Final = 1
Event: TypeAlias = Literal["sign-in", "refused-token", "bind", "redeem", "sign-out"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an audit line, as far as it is known."""

    identity: Identity | None = None
    cid: str = ""
    resource: str = ""
    space: str = ""


NOBODY: Final = Subject()


class Audit:
    """Writes audit lines to `stream`, and counts."""

    def __init__(self, clock: Clock, stream: TextIO | None = None) -> None:
        self._clock, self._stream = clock, stream
        self.requests = _counter("http_requests", "Answers of the front door.", "route", "status")
        self._sign_ins = _counter("sign_ins", "Sign-ins, by outcome.", "outcome")
        self._binds = _counter("binds", "Requested bindings, by outcome.", "outcome")

    @property
    def counters(self) -> tuple[Counter, ...]:
        return self.requests, self._sign_ins, self._binds

    def note(
        self, event: Event, request: Request, subject: Subject = NOBODY, *, reason: str = ""
    ) -> None:
        """Write an event: a success, or a refusal with a reason of one word."""
        outcome = "refused" if reason else "ok"
        counter = {"sign-in": self._sign_ins, "bind": self._binds, "redeem": self._binds}
        if event in counter:
            counter[event].labels(outcome).inc()
        identity = subject.identity
        line = {
            "audit": _FORMAT,
            "time": times.format_time(self._clock.now()),
            "event": event,
            "outcome": outcome,
            "reason": reason,
            "issuer": identity.issuer if identity else "",
            "sub": identity.subject if identity else "",
            "user": identity.user if identity else "",
            "from": request.address,
            "request": request.id,
            "cid": subject.cid,
            "resource": subject.resource,
            "space": subject.space,
        }
        print(json.dumps(line), file=self._stream or sys.stdout, flush=True)


def _counter(name: str, meaning: str, *labels: str) -> Counter:
    return Counter(f"klutch_bind_{name}", meaning, labels, registry=None)
