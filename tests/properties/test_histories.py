"""T3, T8, T16: whatever happens to claims and copies, none goes or is made that nobody asked for.

10,000 random histories of one claim and its copy, 3,000 of them in `make test`: developers and
providers write, konnectors die between two writes, either side is set back to what it was, or
cloned. Only decisions are asked, which are pure.
"""

import copy as copying
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from konnector.claim import copies, orphans
from konnector.claim.copies import Pair
from konnector.claim.orphans import Confirmation, Terms
from konnector.mass_loss import decide as mass_loss_decide
from konnector.mass_loss.decide import Identity
from reconciler.core import keys
from reconciler.core.decision import Create, Decision, Delete, Step, Task
from reconciler.core.manifest import annotations_of, finalizers_of, is_deleting
from tests.support.instance_objects import COPY_PLACE, KIND, PAIR, PLACE
from tests.support.pair_model import Both
from tests.support.space_objects import NOW, SPACE

HISTORIES, PARTS, EVENTS = 10_000, 10, 14
USUAL = 3  # parts
OURS, OTHERS = "uid-of-app", "uid-of-clone"
CLAIM: Any = {
    "apiVersion": KIND.api_version,
    "kind": KIND.kind,
    "metadata": {"name": PLACE.name, "namespace": PLACE.namespace},
    "spec": {"size": "1Gi"},
}


@dataclass
class History:
    """One claim, its copy, whoever writes them, and what a person confirmed."""

    chance: random.Random
    both: Both = field(default_factory=lambda: Both(PAIR, PLACE, COPY_PLACE))
    now: Any = NOW
    confirmation: Confirmation | None = None
    written: Any = None  # when it was
    recreates: bool = False
    app_cluster: str = OURS
    meant: set[str] = field(default_factory=set)
    app_backups: list[Any] = field(default_factory=lambda: [None])
    plane_backups: list[Any] = field(default_factory=lambda: [(None, "", None, frozenset())])
    log: list[str] = field(default_factory=list)

    @property
    def terms(self) -> Terms:
        return Terms(KIND.resource, self.confirmation or Confirmation())

    def happens(self) -> None:
        """Let one thing happen, then a konnector work, which may die."""
        self.now += timedelta(seconds=self.chance.choice([0, 1, 90]))
        event = self.chance.choice(EVENTS_OF)
        self.log.append(event.__name__)
        event(self)
        self.works()

    def works(self) -> None:
        for _ in range(self.chance.choice([0, 1, 4])):
            if self._is_stranger():
                return
            decision, seen = self.both.look(
                terms=self.terms, now=self.now, creates_held="" if self.recreates else "held"
            )
            self._see(decision, seen)
            if not self._perform(decision):
                return

    def _is_stranger(self) -> bool:
        known = Identity(SPACE, self.app_cluster, frozenset({OURS}))
        return mass_loss_decide.stranger(known, "") is not None

    def _see(self, decision: Decision, seen: Any) -> None:
        """Check every step of a decision against the laws."""
        claim, copy = self.both.app.live, self.both.plane.live
        for step in [step for task in decision.tasks for step in task.steps]:
            told = (self.log, claim, copy)
            if isinstance(step, Delete):
                asked = claim is not None and is_deleting(claim)
                held = claim is not None and keys.SYNCER in finalizers_of(claim)
                assert (asked and held) or (claim is None and self._is_meant(copy)), told
            if isinstance(step, Create) and step.cluster != "app-cluster":
                assert not copies.is_managed(claim) or self.recreates, told
        assert self.app_cluster == OURS, self.log

    def _is_meant(self, copy: Any) -> bool:
        """Tell whether the orphan is older than the confirmation, by a record of the test's own."""
        return keys.ORPHANED in annotations_of(copy) and copy["metadata"]["uid"] in self.meant

    def _perform(self, decision: Decision) -> bool:
        """Write it, or a part; return whether the konnector lives."""
        steps: list[Step] = [step for task in decision.tasks for step in task.steps]
        dies = self.chance.random() < 0.3
        last = self.chance.randrange(len(steps) + 1) if dies else len(steps)
        left = last
        for task in decision.tasks:
            part = task.steps[:left]
            left -= len(part)
            self.both.perform(Decision(tasks=(Task(part),)))
        if dies:  # the next one sees what stands there, and not how it came
            value = self.terms.confirmation.value
            self.confirmation = orphans.follow(None, value, self.written, self.now)
        return not dies


def claim_comes(it: History) -> None:
    if it.both.app.live is None:
        it.both.app.create(CLAIM, "kubectl")


def claim_is_deleted(it: History) -> None:
    live = it.both.app.live
    if live is not None and not is_deleting(live):
        it.both.app.delete(live["metadata"]["uid"])


def claim_is_lost(it: History) -> None:
    it.both.app.live = None


def finalizer_is_taken_off(it: History) -> None:
    live = it.both.app.live
    if live is not None:
        it.both.app.patch({"metadata": {"finalizers": None}}, "somebody")


def copy_is_lost(it: History) -> None:
    it.both.plane.live = None


def copy_is_deleted(it: History) -> None:
    live = it.both.plane.live
    if live is not None and not is_deleting(live):
        it.both.plane.delete(live["metadata"]["uid"])


def provider_makes_one(it: History) -> None:
    if it.both.plane.live is None:
        made = copies.moved(CLAIM, KIND, COPY_PLACE, {})
        it.both.plane.create(made, "provider")


def backup_is_made(it: History) -> None:
    it.app_backups.append(copying.deepcopy(it.both.app.live))
    value, meant = it.terms.confirmation.value, frozenset(it.meant)
    it.plane_backups.append((copying.deepcopy(it.both.plane.live), value, it.written, meant))


def app_cluster_is_restored(it: History) -> None:
    it.both.app.live = copying.deepcopy(it.chance.choice(it.app_backups))


def control_plane_is_restored(it: History) -> None:
    live, value, it.written, meant = it.chance.choice(it.plane_backups)
    it.both.plane.live, it.meant = copying.deepcopy(live), set(meant)
    before = it.confirmation or Confirmation()
    it.confirmation = orphans.follow(before, value, it.written, it.now)


def app_cluster_is_a_clone(it: History) -> None:
    it.app_cluster = OTHERS


def app_cluster_is_ours(it: History) -> None:
    it.app_cluster = OURS


def orphans_are_confirmed(it: History) -> None:
    """Confirm them, the same again or anew; what is an orphan now is meant, and nothing later."""
    if it.terms.confirmation.value:
        confirmation_is_withdrawn(it)
    it.now += timedelta(seconds=1)
    before, it.written = it.confirmation or Confirmation(), it.now
    it.confirmation = orphans.follow(before, KIND.resource, it.written, it.now)
    copy = it.both.plane.live
    if copy is not None and orphans.is_orphan(copy):
        it.meant.add(copy["metadata"]["uid"])
    it.now += timedelta(seconds=1)


def confirmation_is_withdrawn(it: History) -> None:
    it.written = None
    it.confirmation = orphans.follow(it.confirmation or Confirmation(), "", None, it.now)
    it.meant.clear()


def recreation_is_confirmed(it: History) -> None:
    it.recreates = True


def recreation_is_over(it: History) -> None:
    it.recreates = False


EVENTS_OF = (
    claim_comes, claim_comes, claim_comes, claim_is_deleted, claim_is_lost, claim_is_lost,
    finalizer_is_taken_off, copy_is_lost, copy_is_deleted, provider_makes_one, backup_is_made,
    app_cluster_is_restored, control_plane_is_restored, app_cluster_is_a_clone,
    app_cluster_is_ours, app_cluster_is_ours, orphans_are_confirmed, confirmation_is_withdrawn,
    recreation_is_confirmed, recreation_is_over,
)  # fmt: skip


@pytest.mark.parametrize(
    "part",
    [pytest.param(n, marks=() if n < USUAL else pytest.mark.soak) for n in range(PARTS)],
)
def test_no_history_loses_or_makes_what_nobody_asked_for(part: int) -> None:
    size = HISTORIES // PARTS
    for seed in range(part * size, (part + 1) * size):
        history = History(random.Random(seed))
        for _ in range(EVENTS):
            history.happens()


def test_histories_come_to_what_they_are_about() -> None:
    """Among them are orphans that are deleted once confirmed, and claims that are marked."""
    assert isinstance(PAIR, Pair)
    history = History(random.Random(0))
    claim_comes(history)
    for _ in range(4):
        history.both.perform(history.both.look()[0])
    assert copies.is_managed(history.both.app.live)
    claim_is_lost(history)
    history.both.perform(history.both.look()[0])
    assert orphans.is_orphan(history.both.plane.live)
    orphans_are_confirmed(history)
    history.both.perform(history.both.look(terms=history.terms, now=history.now)[0])
    assert history.both.plane.live is None
