"""What a scripted broker does in place of its work, or of saying that it did it."""

import json
import threading
from dataclasses import dataclass, field, replace
from random import Random

from tests.support import osb_wire
from tests.support.osb_wire import Said


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer in place of the true one. `processed`: the request was carried out all the same."""

    said: Said
    processed: bool = False


def hangs(*, processed: bool = False) -> Fault:
    return Fault(Said(0, way="hang"), processed)


def cuts(*, processed: bool = False) -> Fault:
    """End the connection without an answer."""
    return Fault(Said(0, way="cut"), processed)


def endless(status: int = 200, *, processed: bool = False) -> Fault:
    """Answer without an end."""
    return Fault(Said(status, b'{"description":"', way="endless"), processed)


def says(status: int, body: object = b"{}", *, processed: bool = False, **headers: str) -> Fault:
    """Answer this: bytes as they are, anything else as JSON. Underscores in headers are dashes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fault(Said(status, content, names), processed)


def broken_json(status: int = 200, *, processed: bool = True) -> Fault:
    return says(status, b'{"operation": "ta', processed=processed)


def gateway(status: int, *, processed: bool = False) -> Fault:
    """Answer as a proxy does that stands before the broker: with a page."""
    page = Said(status, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"})
    return Fault(page, processed)


def redirects(location: str, status: int = 302) -> Fault:
    """Lead to another place."""
    return Fault(Said(status, b"", {"Location": location}))


def refuses(status: int, error: str = "", description: str = "", **more: object) -> Fault:
    """Refuse in the API's words, and do nothing."""
    return Fault(osb_wire.failure(status, error, description, **more))


def busy() -> Fault:
    """Refuse as another operation is in progress, though none is."""
    return refuses(422, "ConcurrencyError", "another operation is in progress")


def unavailable(retry_after: int = 1) -> Fault:
    """503 that says when to come again."""
    return says(503, {}, Retry_After=str(retry_after))


@dataclass(frozen=True, slots=True)
class _Rule:
    verb: str | None
    fault: Fault
    left: int


@dataclass(slots=True)
class Faults:
    """Which requests meet a fault. Rules are met in their order, each until it is used up."""

    _rules: tuple[_Rule, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, verb: str | None, fault: Fault, *, times: int = 1_000_000_000) -> None:
        """Let the next requests of this verb meet the fault; None means any verb."""
        with self._lock:
            self._rules += (_Rule(verb, fault, times),)

    def clear(self) -> None:
        with self._lock:
            self._rules = ()

    def due(self, verb: str) -> Fault | None:
        with self._lock:
            for number, rule in enumerate(self._rules):
                if rule.left and rule.verb in (None, verb):
                    used = replace(rule, left=rule.left - 1)
                    self._rules = (*self._rules[:number], used, *self._rules[number + 1 :])
                    return rule.fault
        return None


def some(chance: Random) -> Fault:
    """Return one of those that random histories have."""
    is_done = chance.random() < 0.5
    return chance.choice(
        [
            says(500, processed=is_done),
            cuts(processed=is_done),
            broken_json(202, processed=is_done),
            broken_json(200, processed=is_done),
            unavailable(),
            gateway(404),
            busy(),
            refuses(400, "BadRequest", "no"),
            refuses(401, "Unauthorized", "no"),
            redirects("https://elsewhere.example"),
        ]
    )
