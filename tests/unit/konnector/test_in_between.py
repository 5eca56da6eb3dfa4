"""How many claims are marked before their copies exist."""

import pytest

from konnector.controllers.in_between import InBetween
from konnector.decisions.guard import FEW, Count
from reconciler.core.refs import ObjectKey

COPIES = {"a space that is empty": 0, "a few copies": 3, "some": 9, "many": 40}


def place(number: int) -> ObjectKey:
    return ObjectKey("dev", f"claim-{number}")


class Room:
    """A room, how many copies there are, what others left in it, and who was woken."""

    def __init__(self, copies: int = 0, left: int | None = 0) -> None:
        self.copies, self.left = copies, left
        self.woken: list[ObjectKey] = []
        self.it = InBetween(lambda: self.copies, self._left, self.woken.append)

    def _left(self) -> list[ObjectKey] | None:
        return None if self.left is None else [place(1000 + one) for one in range(self.left)]

    def fill(self) -> int:
        """Enter as often as there is room; return how often that was."""
        inside = 0
        while self.it.enter(place(inside)):
            inside += 1
        return inside


@pytest.mark.parametrize("left", [None, 0, 2, FEW])
@pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)
def test_a_kill_leaves_less_than_a_loss(copies: int, left: int | None) -> None:
    inside = Room(copies, left).fill()
    lost = inside + (left or 0)
    if (left or 0) < max(FEW, copies // 2):
        # Not even when developers delete half of what has a copy.
        staying = copies - copies // 2
        assert not Count("databases.example", lost, lost + staying).is_mass
        assert Count("databases.example", lost + 1, lost + 1 + staying).is_mass
    else:  # nobody is kept out for ever by what others left
        assert inside == 1


def test_what_is_a_loss_already_keeps_nobody_out() -> None:
    assert Room(copies=3, left=20).fill() == FEW


def test_who_found_no_room_is_woken_when_another_leaves() -> None:
    room = Room()
    assert room.fill() == FEW
    assert not room.it.enter(place(10))
    room.it.leave(place(11))  # who is not inside makes no room
    assert room.woken == []
    room.copies = 1
    room.it.leave(place(0))
    assert room.woken == [place(FEW)]
    assert room.it.enter(place(FEW))
    room.it.leave(place(1))
    assert room.woken == [place(FEW), place(10)]


def test_who_is_inside_needs_no_room() -> None:
    room = Room(left=2)
    assert room.fill() == FEW - 2
    assert room.it.enter(place(1))
    assert room.it.enter(place(1001))
    room.it.leave(place(1001))
    assert room.it.enter(place(20))
    assert not room.it.enter(place(1001))


def test_who_waits_no_more_is_not_woken() -> None:
    room = Room()
    room.fill()
    room.it.leave(place(FEW))  # it waited
    room.it.leave(place(0))
    assert room.woken == []
