"""One turn of an instance with its bindings: order, one call at a time, what waits for people."""

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from bind.osb.decisions import record, turn
from bind.osb.decisions.view import BindingView
from bind.osb.metrics import BrokerMetrics
from reconciler.blueprints.offering import messages
from reconciler.core.refs import Kind
from tests.support.osb_views import KIND, NOW, OTHER_UID, claim, held, intent, operation, sent, view

BINDINGS = replace(
    KIND,
    kind=Kind(KIND.kind.group, "v1", "DatabaseBinding", "databasebindings"),
    instances=KIND.kind.plural,
)
THERE = held(record.PRESENT, sent=sent())


def bound(*records, deleting=False) -> BindingView:
    live = claim(uid=OTHER_UID, deleting=deleting, instanceRef="orders")
    live = {**live, "kind": BINDINGS.kind.kind}
    return BindingView("plane", BINDINGS, live, records)


def of_binding(state, **fields):
    return held(state, uid=OTHER_UID, **{"kind": record.BINDING, "instance": THERE.id, **fields})


def calls(seen, asked=None):
    parts = turn.look(seen, asked)
    return [type(part.next.ask.call) for part in parts if part.next.ask is not None]


def test_an_unbind_comes_before_an_update_and_that_waits():
    gone = bound(of_binding(record.PRESENT, sent=sent()), deleting=True)
    parts = turn.look(view(claim(plan="big"), THERE, bindings=(gone,)))
    assert [part.binding is None for part in parts] == [False, True]
    assert [part.next.begins for part in parts] == [True, False]


def test_what_has_begun_goes_on_before_anything_begins():
    going = bound(of_binding(record.INTENDED, intent=intent("Bind")))
    seen = view(claim(plan="big"), THERE, bindings=(going,))
    assert calls(seen) == [messages.Bind]
    assert not any(part.next.begins for part in turn.look(seen))


@pytest.mark.parametrize(
    ("minutes", "begins"), [(1, [False, False, False]), (0, [True, False, False])]
)
def test_what_takes_longer_than_it_may_keeps_nothing_else_waiting(minutes, begins):
    works = operation(deadline=NOW + timedelta(minutes=minutes))
    going = bound(of_binding(record.INTENDED, intent=intent("Bind"), operation=works))
    gone = bound(of_binding(record.PRESENT, number=1, sent=sent()), deleting=True)
    seen = view(claim(plan="big"), THERE, bindings=(going, gone))
    parts = turn.look(seen)
    assert [part.next.begins for part in parts] == begins
    assert calls(seen) == [messages.LastOperation]


@pytest.mark.parametrize(
    ("seen", "is_blocked"),
    [
        (view(claim(), THERE), False),
        (view(claim(), broker=None), True),
        (view(claim(), others=(held(record.ORPHANED, uid=OTHER_UID),)), True),
        (view(claim(deleting=True), THERE, bindings=(bound(),)), True),
        (view(claim(), held(record.INTENDED, intent=intent())), False),
    ],
)
def test_what_waits_for_people_is_counted(seen, is_blocked):
    parts = turn.look(seen)
    assert turn.is_blocked(parts) is is_blocked
    registry = CollectorRegistry()
    metrics = BrokerMetrics(registry)
    metrics.blocked("acme", "orders", is_blocked=turn.is_blocked(parts))
    count = registry.get_sample_value("klutch_osb_held", {"broker": "acme"}) or 0
    assert count == is_blocked
    metrics.blocked("acme", "orders", is_blocked=False)
    assert not registry.get_sample_value("klutch_osb_held", {"broker": "acme"})
