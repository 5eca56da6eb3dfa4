"""How many claims are marked before their copies exist."""

import pytest

from konnector.controllers.in_between import SHARE, InBetween
from konnector.decisions.guard import FEW, Count
from reconciler.core.refs import ObjectKey

COPIES = {"a space that is empty": 0, "a few copies": 3, "some": 9, "many": 400}


def place(number: int) -> ObjectKey:
    return ObjectKey("dev", f"claim-{number}")


class Room:
    """A room, how many copies there are, and who was woken; others left and lost something."""

    def __init__(self, copies: int = 0, *, left: int = 0, lost: int | None = 0) -> None:
        self.copies = copies
        self.woken: list[ObjectKey] = []
        self.it = InBetween(lambda: self.copies, self.woken.append)
        if lost is not None:
            self.tell(left, lost)

    def tell(self, left: int = 0, lost: int = 0) -> None:
        self.it.tell(
            left=[place(2000 + one) for one in range(left)],
            lost=[place(1000 + one) for one in range(lost)],
        )

    def fill(self) -> int:
        """Enter as often as there is room; return how often that was."""
        inside = 0
        while self.it.enter(place(inside)):
            inside += 1
        return inside


def as_many_as_may_be(lacking: int, copies: int) -> None:
    """See that so many are no loss, not even when developers delete most of what has a copy."""
    staying = copies // SHARE
    assert not Count("databases.example", lacking, lacking + staying).is_mass
    assert Count("databases.example", lacking + 1, lacking + 1 + staying).is_mass


@pytest.mark.parametrize("lost", [0, 2, FEW])
@pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)
def test_a_kill_leaves_less_than_a_loss(copies: int, lost: int) -> None:
    inside = Room(copies, lost=lost).fill()
    if lost < max(FEW, copies // SHARE):
        as_many_as_may_be(inside + lost, copies)
    else:  # nobody is kept out for ever by what others lost
        assert inside == 1


@pytest.mark.parametrize("left", [0, 2, FEW])
@pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)
def test_one_kill_after_the_other_leaves_less_than_a_loss(copies: int, left: int) -> None:
    as_many_as_may_be(Room(copies, left=left).fill() + left, copies)


def test_what_is_a_loss_already_keeps_nobody_out() -> None:
    assert Room(copies=3, lost=20).fill() == FEW


def test_before_it_is_known_what_others_left_one_goes_in_at_a_time() -> None:
    room = Room(copies=400, lost=None)
    assert [room.it.enter(place(one)) for one in range(3)] == [True, False, False]
    room.it.leave(place(0))
    assert room.woken == [place(1)]
    assert room.it.enter(place(1))
    room.tell(left=3)
    assert room.woken == [place(1), place(2)]
    assert room.fill() == 50 - 3


def test_who_gives_up_makes_room_and_what_was_lost_does_not() -> None:
    room = Room(lost=2)
    assert room.fill() == FEW - 2
    waiting = [place(FEW - 2)]
    room.it.give_up(place(1000))
    assert room.woken == []
    room.it.give_up(place(0))
    assert room.woken == waiting


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
    room = Room(lost=2)
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
