"""Metrics of klutch-osb. Labels are names of brokers, verbs and codes, never of claims."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as CounterMetric

from bind.osb.decisions import record
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.times import moment

_SECONDS: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)
_NEVER: Final = float("inf")


class BrokerMetrics:
    """The metrics of brokers' answers, and of objects there, in the registry of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, labelnames=["broker"], registry=registry)
        self._up = gauge("klutch_osb_broker_up", "1 while a broker takes calls.")
        self._requests = CounterMetric(
            "klutch_osb_requests",
            "Calls to brokers, by answer.",
            ["broker", "verb", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "klutch_osb_request_seconds",
            "How long calls took.",
            ["broker", "verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._records = gauge(
            "klutch_osb_records", "Records of brokers, by state.", labelnames=["broker", "state"]
        )
        self._blocked = gauge("klutch_osb_held", "Instances that wait for a person.")
        self._waiting: dict[str, set[Hashable]] = {}
        self._operations = gauge("klutch_osb_operations", "Running operations of brokers.")
        self._expiry = gauge(
            "klutch_osb_next_expiry_seconds",
            "Seconds until the next credentials expire; infinite where none do.",
        )

    def observer(self, broker: str) -> Callable[[str, str, float], None]:
        """Return a counter of calls: verb, code, seconds."""

        def observe(verb: str, code: str, seconds: float) -> None:
            self._requests.labels(broker, verb, code).inc()
            self._seconds.labels(broker, verb).observe(seconds)

        return observe

    def broker(self, name: str, *, up: bool, records: Sequence[Manifest]) -> None:
        """Note the state of a broker, and of its records."""
        self._up.labels(name).set(up)
        states = Counter(get_text(each, "spec", "state") for each in records)
        for state in record.STATES:
            self._records.labels(name, state).set(states.get(state, 0))
        at_work = sum(bool(get_text(each, "spec", "operation", "since")) for each in records)
        self._operations.labels(name).set(at_work)
        times = (moment(get_text(each, "spec", "expiresAt")) for each in records)
        now = time.time()
        left = [each.timestamp() - now for each in times if each is not None]
        self._expiry.labels(name).set(min(left, default=_NEVER))

    def blocked(self, name: str, claim: Hashable, *, is_blocked: bool) -> None:
        """Note whether an instance of a broker waits for somebody."""
        waiting = self._waiting.setdefault(name, set())
        before = len(waiting)
        (waiting.add if is_blocked else waiting.discard)(claim)
        if len(waiting) != before:
            self._blocked.labels(name).set(len(waiting))

    def gone(self, name: str) -> None:
        self._up.remove(name)
        self._operations.remove(name)
        self._expiry.remove(name)
        for state in record.STATES:
            self._records.remove(name, state)
