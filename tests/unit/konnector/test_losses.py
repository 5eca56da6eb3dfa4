"""Which copies were lost alone, before our eyes, and may be made again (T16)."""

from datetime import timedelta

from konnector.mass_loss.guard import Losses
from reconciler.core.refs import ObjectKey
from tests.support.space_objects import NOW

ORDERS, SALES = ObjectKey("dev", "orders"), ObjectKey("dev", "sales")
SECOND = timedelta(seconds=1)


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
