"""The parts of a controller: which fleet it keeps, what its probes say, and its options."""

import asyncio
from pathlib import Path

import pytest
import typer

from klutchctl.controller import options
from klutchctl.controller.journal import Vitals
from klutchctl.controller.program import Phase
from klutchctl.controller.sources import Shape
from klutchctl.controller.work import beside
from klutchctl.options import Place
from reconciler.controller.fence import WriteFence
from reconciler.core import names
from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.source.signature import VerificationMode
from tests.support import fleets


class TestBeside:
    """What a controller does beside its rounds."""

    async def test_a_defect_ends_only_that_part_and_it_begins_anew(self, caplog):
        begun: asyncio.Queue[str] = asyncio.Queue()

        async def working():
            begun.put_nowait("begun")
            raise ZeroDivisionError

        async with beside("a part", working, again=0.0):
            for _ in range(3):
                await begun.get()
        assert "a part of the controller failed" in caplog.text

    async def test_without_a_pause_it_does_not_begin_anew(self, caplog):
        begun: list[str] = []

        async def working():
            begun.append("begun")
            raise ZeroDivisionError

        async with beside("a part", working, end=lambda: None):
            pass
        assert begun == ["begun"]

    async def test_what_has_begun_is_finished(self):
        stop, finished = asyncio.Event(), []

        async def working():
            await stop.wait()
            await asyncio.sleep(0)
            finished.append("the last words")

        async with beside("a part", working, end=stop.set):
            pass
        assert finished == ["the last words"]

    async def test_without_an_end_it_is_cancelled(self):
        async def working():
            await asyncio.Event().wait()

        async with beside("a part", working):
            pass


FLEET = fleets.fleet(
    control_planes=[fleets.control_plane("eu"), fleets.control_plane("us")],
    clusters=[fleets.app_cluster("shop", "eu"), fleets.app_cluster("cafe", "us")],
    units=[fleets.unit("shop"), fleets.unit("cafe")],
)


def test_the_whole_fleet_is_kept_as_it_is():
    assert Shape("acme", ())(FLEET) is FLEET


def test_a_shard_is_made_once():
    shape = Shape("", ("eu",))
    assert shape(FLEET) is shape(FLEET)
    assert shape(FLEET).clusters.keys() == {"shop"}


def test_another_fleet_is_not_kept():
    said = "the Fleet is acme, and this controller keeps prod"
    with pytest.raises(InvalidRepository, match=said):  # for people: no retry would help
        Shape("prod", ())(FLEET)


def test_a_fleet_is_suspended_from_outside_until_it_is_not():
    why = ["a migration"]
    shape = Shape("", (), lambda: why[0])
    assert {one.suspended for one in shape(FLEET).clusters.values()} == {"a migration"}
    why[0] = ""
    assert shape(FLEET) is FLEET


def test_what_probes_say_from_the_first_look_to_the_end():
    phase, fence = Phase(), WriteFence()
    said = [phase.unready()]
    phase.stands_by()
    said.append(phase.unready())
    assert phase.ailment() == ""
    phase.leads(Vitals(300.0), fence)
    said.append(phase.unready())
    fence.lose_lock("somebody took it")
    said.append(phase.unready())
    assert said == [
        "the files have not been read yet",
        "another process is the leader, or its lease has not expired",
        "",
        "the lease was lost",
    ]
    assert phase.ailment() == "the lease was lost"


def test_a_source_that_is_away_is_no_reason_for_a_restart():
    without, within = Vitals(0.0, needs_source=False), Vitals(0.0)
    for vitals in (without, within):
        vitals.unreadable(ConfigError("away", where="x"))
    assert without.ailment() == ""
    assert within.ailment().endswith("the source cannot be read")
    without.read(FLEET, None, None)
    assert without.ailment().startswith("no round has ended for 0 s")


def test_a_round_that_waits_for_a_peer_is_no_reason_for_a_restart():
    assert Vitals(0.0, wait=60.0).ailment() == ""
    assert Vitals(0.0).ailment() != ""


def test_names_of_a_lease():
    assert names.controller_lease("acme") == "klutchctl-controller-acme"
    sharded = names.controller_lease("acme", ["us", "eu"])
    assert sharded == names.controller_lease("acme", ("eu", "us"))
    assert len(sharded) == len("klutchctl-controller-acme-") + 8


def test_where_its_own_objects_are():
    home = options.home({"POD_NAMESPACE": "ours"}, None, None, None, leads=True)
    assert (home.lease, home.status) == ("ours", "ours")
    home = options.home({}, None, None, "shown", leads=False)
    assert (home.lease, home.status) == (None, "shown")


def trusted(verify, fleet):
    place = Place(git="https://git.example.com/f.git", verify=verify, allowed_signers=Path("f"))
    return options.verification(place, fleet=fleet).mode


REFUSED = {
    "a board for others": lambda: options.board(":8080", (), behind_proxy=False),
    "hooks without an address": lambda: options.hooks(None, ["a=github:f"], None, None),
    "an address without hooks": lambda: options.hooks(":9443", (), None, None),
    "webhooks in the clear": lambda: options.hooks(":9443", ["a=github:f"], None, None),
    "an unknown trust": lambda: trusted("some", fleet="acme"),
    # A commit that names the fleet otherwise would have no FleetStatus, and so no history.
    "a history of whatever fleet is there": lambda: trusted("history", fleet=""),
    "no address": lambda: options.address("x", "--listen"),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_options_that_make_no_sense(refused):
    with pytest.raises(typer.BadParameter):
        refused()


def test_options_that_do():
    assert options.board("", (), behind_proxy=False) is None
    assert options.hooks(None, (), None, None) is None
    assert trusted("tag", fleet="") is VerificationMode.TAG
    assert trusted("history", fleet="acme") is VerificationMode.HISTORY
    behind = options.board(":8080", ["fleet.example.com"], behind_proxy=True)
    assert behind is not None
    assert behind.address == ("", 8080)
