"""Which copies were lost alone, before our eyes, and may be made again (T16)."""

from datetime import UTC, datetime, timedelta

import pytest

from konnector.mass_loss.guard import Losses
from reconciler.core.refs import ObjectKey
from tests.support.space_objects import NOW

ORDERS, SALES, TENTH = (ObjectKey("dev", name) for name in ("orders", "sales", "tenth"))
SECOND = timedelta(seconds=1)


class Counted(datetime):
    """A time that counts how often it is compared with another."""

    compared = 0

    def __sub__(self, other):
        Counted.compared += 1
        return super().__sub__(other)


def lost() -> Losses:
    losses = Losses()
    losses.note(ORDERS, "one", NOW)
    return losses


def test_one_alone_may_be_made_again():
    losses = lost()
    assert losses.is_alone(ORDERS)
    assert not losses.is_alone(SALES)


def test_a_view_that_still_shows_it_changes_nothing():
    losses = lost()
    losses.see(ORDERS, "one")
    losses.see(SALES, "three")
    assert losses.is_alone(ORDERS)


def test_that_its_successor_is_lost_too_was_not_watched():
    losses = lost()
    losses.see(ORDERS, "two")
    assert not losses.is_alone(ORDERS)
    losses.note(ORDERS, "two", NOW + timedelta(days=1))
    assert losses.is_alone(ORDERS)


def test_one_that_was_made_again_still_is_part_of_a_larger_loss():
    losses = lost()
    losses.see(ORDERS, "two")
    losses.note(SALES, "three", NOW + SECOND)
    assert not losses.is_alone(SALES)


def test_what_is_too_long_ago_is_forgotten():
    losses = lost()
    losses.forget(NOW + timedelta(minutes=2))
    assert not losses.is_alone(ORDERS)
    losses.note(SALES, "three", NOW + timedelta(minutes=2))
    assert losses.is_alone(SALES)


AFTER = {
    "at once": (0, 1),
    "when just the others are too long ago": (50, 65),
    "when all of it is": (1, 65),
    "when nobody knows of it any more": (50, 200),
}


@pytest.mark.parametrize(("second", "later"), AFTER.values(), ids=AFTER.keys())
def test_what_was_part_of_a_larger_loss_is_never_alone(second: int, later: int):
    losses = lost()
    losses.note(TENTH, "ten", NOW + second * SECOND)
    losses.see(ORDERS, "restored")
    losses.forget(NOW + later * SECOND)
    assert not losses.is_alone(TENTH)
    losses.forget(NOW + (later + 60) * SECOND)
    assert not losses.is_alone(TENTH)


def test_one_alone_may_be_made_again_for_a_minute_whatever_else_is_deleted():
    losses = lost()
    losses.forget(NOW + 59 * SECOND)
    assert losses.is_alone(ORDERS)


def test_one_that_is_lost_again_stays_part_of_what_was_lost_with_it():
    losses = lost()
    losses.note(TENTH, "ten", NOW + SECOND)
    losses.see(ORDERS, "restored")
    losses.forget(NOW + 90 * SECOND)
    losses.note(ORDERS, "restored", NOW + 90 * SECOND)
    assert losses.is_alone(ORDERS)
    assert not losses.is_alone(TENTH)


def test_thousands_of_losses_cost_no_look_at_each_of_the_others():
    losses, now = Losses(), Counted.fromtimestamp(NOW.timestamp(), UTC)
    for number in range(1000):
        losses.forget(now)
        losses.note(ObjectKey("dev", str(number)), "one", now)
    assert 0 < Counted.compared <= 4 * 1000
