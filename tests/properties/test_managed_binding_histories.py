"""Whatever befalls the binding of a composition: its Secret logs in, and no binding is forgotten.

As `test_binding_histories`, of bindings whose records are in annotations of their own object.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bind.osb.dataservices import connection
from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices.bindings import BINDINGS, needs_secret
from bind.osb.decisions import credentials
from bind.osb.decisions.record import identifier
from reconciler.core import conditions, keys
from reconciler.core.refs import SECRET
from reconciler.core.times import format_time
from tests.properties import test_managed_histories as managed
from tests.properties.test_osb_histories import come_to_rest, stories
from tests.support import dataservices, osb_bindings
from tests.support.osb_broker import ScriptedBroker

WHERE = ", writeConnectionSecretToRef: {name: orders-creds}"


class Story(managed.Story):
    """The binding of an instance that is there, and chance."""

    store = BINDINGS
    managed = kinds.SERVICE_BINDING
    is_hidden = is_tampered = False

    def __init__(self, broker: ScriptedBroker, chance: random.Random, mortality: float) -> None:
        able = {"rotatable": chance.random() < 0.5, "bindings_retrievable": chance.random() < 0.6}
        broker.catalogue = osb_bindings.catalogue(**able)
        super().__init__(broker, chance, mortality)
        where = chance.choice([WHERE, WHERE, ""])
        self.text = f"spec: {{forProvider: {{instanceName: orders}}{where}}}"
        self.check = self.holds
        plan = self.kind.plans["small"]
        at = f"instanceId: i-1, serviceId: {self.kind.offering}, planId: {plan}"
        marks = {keys.OSB_ORIGIN: dataservices.URL}
        text = f"status: {{atProvider: {{{at}}}}}"
        self.instance = dataservices.managed(kinds.SERVICE_INSTANCE, text, annotations=marks)
        self.made = {"service_id": self.kind.offering, "plan_id": plan, "state": "present"}
        self.is_made()

    def is_made(self) -> None:
        self.broker.inventory.put(("i-1", ""), self.made)
        now = {"state": "provisioned", "provisionedAt": format_time(self.now)}
        self.instance["status"]["atProvider"] |= now
        self.instance["status"]["conditions"] = []

    def seen(self, made: Any = connection.Seen, **more: Any) -> Any:
        found = super().seen(made, instance=None if self.is_hidden else self.instance, **more)
        found = replace(found, lookup="There is none" if self.is_hidden else "")
        if connection.place(found.live) is not None and not needs_secret(found, self.kept):
            return found
        return replace(found, secret=self.live(SECRET, "orders-creds"), has_read=True)

    def logs_in(self) -> bool:
        """Return whether a Secret has credentials of a binding that nobody undoes, or a lie."""
        data = (self.live(SECRET, "orders-creds") or {}).get("data", {})
        held, there = connection.decoded(data.get("password", "")), self.broker.inventory.bindings
        kept = (one["credentials"] for one in there.values() if one["state"] != "deleting")
        return held in self.broker.lies or held in [one["password"] for one in kept]

    def holds(self) -> None:
        """Assert what holds after each write and each call."""
        live, secret = self.itself, self.live(SECRET, "orders-creds")
        known = [] if live is None else [one.id for one in BINDINGS.records(self.seen())]
        lost = self.broker.inventory.bindings.keys() - known
        assert not lost, f"forgotten: {lost}"
        for one in self.broker.violations:
            assert "than was given" in one or "instance that is not there" in one
        self.is_tampered = self.is_tampered and not self.logs_in()
        if live and secret and not (self.is_tampered or "deletionTimestamp" in live["metadata"]):
            assert self.logs_in(), "the Secret does not log in"


def rotate(it: Story) -> None:
    managed.mark(it, keys.OSB_ROTATE, str(it.chance.randrange(3)))


def edit(it: Story) -> None:
    if it.itself is not None:
        change = {"forProvider": {"parameters": {"a": it.chance.randrange(3)}}}
        more = {"generation": it.itself["metadata"]["generation"] + 1}
        it.objects.patch(it.at(it.managed), {"spec": change, "metadata": more})


def hide(it: Story) -> None:
    it.is_hidden = not it.is_hidden


def lose(it: Story) -> None:
    it.broker.inventory.lose(("i-1", ""))
    it.is_tampered = True


def miss(it: Story) -> None:
    if not it.broker.inventory.instances:
        missing = replace(kinds.MISSING, last_transition_time=format_time(it.now))
        it.instance["status"]["atProvider"]["state"] = "deleted"
        it.instance["status"]["conditions"] = conditions.dump([missing])


def make_anew(it: Story) -> None:
    missing = it.instance["status"]["conditions"]
    if missing and not it.answer:  # it has turns with its bindings
        it.is_made()


def lose_secret(it: Story) -> None:
    it.is_tampered = True
    it.objects.delete(it.at(SECRET, "orders-creds"))


def edit_secret(it: Story) -> None:
    live = it.live(SECRET, "orders-creds")
    # What was written, and not noted before a crash, counts as it is found.
    if it.itself and live and credentials.digest(it.itself, live) == it.seen().ledger.content:
        it.is_tampered = True
        it.objects.patch(it.at(SECRET, "orders-creds"), {"data": {"password": "eA=="}})


def misbehave(it: Story) -> None:
    it.misbehaves("bind", "bind", "unbind", "poll-binding", "fetch-binding")


def fail(it: Story) -> None:
    it.broker.modes.failing[it.chance.choice(["bind", "unbind"])] += 1


def change_ways(it: Story) -> None:
    ways = {"repeats_credentials": (True, True, False), "polls": (0, 1, 3), "takes": (0, 90)}
    it.changes_ways(asynchronous=(frozenset(), frozenset({"bind", "unbind"})), **ways)


HAPPENINGS: tuple[Callable[[Story], None], ...] = (
    managed.make, managed.make, managed.retry, managed.pause, managed.delete, managed.configure,
    rotate, rotate, edit, hide, lose, miss, miss, make_anew, make_anew, lose_secret, edit_secret,
    misbehave, misbehave, misbehave, fail, change_ways,
)  # fmt: skip


@pytest.mark.parametrize("part", range(4))
def test_secrets_log_in_and_no_binding_is_forgotten(part: int, pytestconfig: pytest.Config) -> None:
    for it, where in stories(part, pytestconfig, Story, HAPPENINGS):
        it.is_hidden = False
        miss(it)
        managed.be_well(it)
        assert is_well(it), (where, it.itself)
        managed.delete(it)
        come_to_rest(it)
        left = it.itself, it.broker.inventory.bindings, it.live(SECRET, "orders-creds")
        assert left == (None, {}, None), where


def is_well(it: Story) -> bool:
    """Return whether all is as it is stated."""
    if it.itself is None:
        return True
    stated = [conditions.get(it.itself, one) for one in (kinds.READY, kinds.SYNCED)]
    if any(one is not None and one.status == "False" and one.message for one in stated):
        return True
    counts = identifier(it.itself["metadata"]["uid"], it.seen().ledger.number)
    is_there = counts in it.broker.inventory.bindings
    logs_in = it.logs_in() if connection.place(it.itself) else is_there
    return logs_in and all(one is not None and one.status == "True" for one in stated)
