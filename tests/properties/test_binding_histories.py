"""Whatever befalls binding claims: their Secrets log in, and no binding at a broker is forgotten.

Random histories: developers claim, ask for rotation, tear off and delete, Secrets are lost and
edited, brokers lie and fail, processes die between any two steps. Then all is well for a while.
"""

import random
from collections.abc import Callable
from functools import partial

import pytest

from reconciler.api.osb import BROKER_RECORD
from reconciler.core import keys
from reconciler.core.decision import Step
from reconciler.core.refs import SECRET, Ref
from tests.support.osb_bindings import World, catalogue
from tests.support.osb_turns import BINDING_KIND

HISTORIES, SOAKED, EVENTS = 80, 4000, 10
NAMES = ("web", "job")


class Story(World):
    """A world with chance, which knows what may be wrong with a Secret and why."""

    def __init__(self, chance: random.Random) -> None:
        offered = catalogue(
            rotatable=chance.random() < 0.5, bindings_retrievable=chance.random() < 0.6
        )
        super().__init__(offered)
        self.chance = chance
        self.mortality = chance.choice([0, 0, 0.03, 0.1])
        self.check = self.holds
        self.tampered: set[str] = set()

    def holds(self) -> None:
        """Assert what holds after each write and each call."""
        known = {ref.name for ref in self.objects.live if ref.kind == BROKER_RECORD}
        lost = self.broker.inventory.bindings.keys() - known
        assert not lost, f"forgotten: {lost}"
        assert self.breaches() == []
        for name in NAMES:
            live, secret = self.live(BINDING_KIND, name), self.live(SECRET, f"{name}-creds")
            if live is None or secret is None or name in self.tampered:
                continue
            metadata = live["metadata"]
            if keys.OSB in metadata.get("finalizers", []) and "deletionTimestamp" not in metadata:
                assert self.is_of_a_binding(name), f"the Secret of {name} does not log in"

    def breaches(self) -> list[str]:
        """Return what its platform did wrong; nobody has a key whose answer was lost."""
        return [one for one in self.broker.violations if "than was given" not in one]

    def is_of_a_binding(self, name: str) -> bool:
        """Return whether a Secret has credentials of a binding that nobody undoes.

        What a broker says to be done may be still on its way, or have failed: that is its lie.
        """
        held = self.secret(f"{name}-creds").get("password", "")
        return held in self.broker.lies or any(
            one["credentials"]["password"] == held and one["state"] != "deleting"
            for one in self.broker.inventory.bindings.values()
        )

    def _write(self, step: Step, moved: dict[Ref, str]) -> None:
        super()._write(step, moved)
        for name in list(self.tampered):
            secret = self.live(SECRET, f"{name}-creds")
            if secret is not None and self.broker.log_in(self.secret(f"{name}-creds")):
                self.tampered.discard(name)


def make_claim(it: Story) -> None:
    for name in NAMES:
        if it.live(BINDING_KIND, name) is None:
            every = it.chance.choice([{}, {"every": "3h"}, {"every": "30m", "overlap": "10m"}])
            it.claim(name, rotation=every)
            return


def some_claim(it: Story) -> str:
    there = [name for name in NAMES if it.live(BINDING_KIND, name) is not None]
    return it.chance.choice(there) if there else ""


def request(it: Story) -> None:
    if name := some_claim(it):
        wish = str(it.chance.randrange(3))
        it.edit(BINDING_KIND, name, lambda live: live["spec"]["rotation"].update(request=wish))


def retry(it: Story) -> None:
    if name := some_claim(it):
        retry_with(it, name, str(it.chance.random()))


def retry_with(it: Story, name: str, text: str) -> None:
    note = {keys.OSB_RETRY: text}
    it.edit(BINDING_KIND, name, lambda live: live["metadata"].update(annotations=note))


def delete(it: Story) -> None:
    if name := some_claim(it):
        it.delete(BINDING_KIND, name)


def tear_off(it: Story) -> None:
    if name := some_claim(it):
        it.edit(BINDING_KIND, name, lambda live: live["metadata"].update(finalizers=[]))
        it.delete(BINDING_KIND, name)


def decide_about_orphans(it: Story) -> None:
    it.decides_about_orphans(keys.ORPHAN_DEPROVISION)


def lose_secret(it: Story) -> None:
    name = it.chance.choice(NAMES)
    if it.live(SECRET, f"{name}-creds") is not None:
        it.tampered.add(name)
        it.delete(SECRET, f"{name}-creds")


def edit_secret(it: Story) -> None:
    name = it.chance.choice(NAMES)
    if it.live(SECRET, f"{name}-creds") is not None:
        it.tampered.add(name)
        it.edit(SECRET, f"{name}-creds", lambda live: live["data"].update(password="eA=="))


def misbehave(it: Story) -> None:
    it.misbehaves("bind", "bind", "unbind", "poll-binding", "fetch-binding")


def fail(it: Story) -> None:
    it.broker.modes.failing[it.chance.choice(["bind", "unbind"])] += 1


def change_ways(it: Story) -> None:
    it.changes_ways(
        asynchronous=(frozenset(), frozenset({"bind", "unbind"})),
        polls=(0,),
        takes=(0, 5, 90),
        repeats_credentials=(True, True, False),
    )


HAPPENINGS: tuple[Callable[[Story], None], ...] = (
    make_claim, make_claim, request, request, retry, delete, tear_off, lose_secret, edit_secret,
    misbehave, misbehave, misbehave, fail, change_ways, decide_about_orphans,
)  # fmt: skip


def seldom(it: Story) -> None:
    if it.chance.random() < 0.05:
        it.befalls(HAPPENINGS)


@pytest.mark.parametrize("part", range(4))
def test_no_binding_is_forgotten_and_secrets_log_in(part: int, pytestconfig: pytest.Config) -> None:
    soaks = pytestconfig.getoption("--hypothesis-profile") == "soak"
    for number in range((SOAKED if soaks else HISTORIES) // 4):
        it = Story(random.Random(f"{part}/{number}"))
        it.steps.append(f"{part}/{number}")
        try:
            for _ in range(EVENTS):
                it.befalls(HAPPENINGS)
                it.meanwhile = partial(seldom, it)
                it.run(minutes=it.chance.choice([0, 1, 10, 100]))
            end_well(it, is_deleted=it.chance.random() < 0.5)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *it.steps[-60:]])) from error


def end_well(it: Story, *, is_deleted: bool) -> None:
    """Let all be well, and see that all is as it is claimed."""
    it.mortality, it.meanwhile = 0, None
    it.broker.faults.clear()
    it.broker.modes.failing.clear()
    # What is bound later, and cannot be read then, never comes to anybody.
    it.broker.modes.asynchronous, it.broker.modes.repeats_credentials = frozenset(), True
    # A retry counts for what has failed: what is on its way may have been begun as one.
    for note in ("a retry", "at last"):
        for name in [name for name in NAMES if it.live(BINDING_KIND, name) is not None]:
            it.delete(BINDING_KIND, name) if is_deleted else retry_with(it, name, note)
        decide_about_orphans(it)
        it.run(hours=2)
    assert it.breaches() == []
    if is_deleted:
        assert it.records() == []
        assert it.broker.inventory.bindings == {}
        assert [ref for ref in it.objects.live if ref.kind in (SECRET, BINDING_KIND)] == []
        return
    for name in NAMES:
        live = it.live(BINDING_KIND, name)
        if live is not None and not live["metadata"].get("deletionTimestamp"):
            password = it.secret(f"{name}-creds").get("password", "")
            assert it.logs_in(name) or password in it.broker.lies, (name, live, it.records())
            assert it.condition("Bound", name) == ("True", "")
