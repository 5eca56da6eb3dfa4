"""The board of a whole fleet, from live clusters: what a plan reads, and the CRDs beside it.

No failure of one cluster holds back another. Writes nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

from reconciler.core.errors import KlutchError
from reconciler.core.live import Unseen
from reconciler.fleet.values import Access, Fleet
from reconciler.health import reading
from reconciler.health.board import Board, Definitions, Scene, board, scene
from reconciler.kube.limits import one_look
from reconciler.observe import Clusters, Pace, observe, unseen
from reconciler.observe.reading import Incomplete, ReadSlots
from reconciler.observe.removed_clusters import RemovedCluster, removed_clusters

_DEFAULTS: Final = Pace()


async def survey(
    fleet: Fleet,
    clusters: Clusters,
    *,
    now: Callable[[], datetime],
    only: Collection[str] | None = None,
    pace: Pace = _DEFAULTS,
) -> Board:
    """Read all app clusters of a fleet, or `only` some, and return how their units are.

    `now` is asked after the reads, and gives UTC. A cluster that cannot be read is Unknown.
    """
    live = await observe(fleet, clusters, only=only, pace=pace)
    made = scene(fleet, live, only=only)
    return board(made, await _definitions(made, clusters, pace), now=now())


async def _definitions(
    made: Scene, clusters: Clusters, pace: Pace
) -> Mapping[str, Definitions | Unseen]:
    """Read the CRDs that units wait for, of every cluster that has such."""
    ways = _ways(made)
    lanes = ReadSlots(pace)

    async def read(name: str) -> Definitions | Unseen:
        access, plane = ways[name]
        try:
            async with lanes.turn() as turn, turn.slot():
                reached = await clusters.app_cluster(name, access, control_plane=plane)
                with one_look():
                    return await reading.definitions(reached.cluster, asked[name])
        except TimeoutError:
            return Unseen(f"its CRDs were not read in {pace.timeout:g} s", "Raise --timeout")
        except KlutchError as error:
            return Unseen(str(error), f"Check that {access} still leads there")
        except Incomplete as error:
            return unseen.failed(error.errors, access, None)
        except Exception as error:
            return unseen.defect(error)
        finally:
            # There may be very many, and open connections are files and memory.
            await clusters.close(name)

    spots = {name: spot.awaited() for name, spot in made.spots.items()}
    asked = {name: awaited for name, awaited in spots.items() if awaited}
    answers = await asyncio.gather(*map(read, asked))
    return dict(zip(asked, answers, strict=True))


def _ways(made: Scene) -> Mapping[str, tuple[Access, str]]:
    """Return the way to each app cluster: as its document says, else as its space does."""
    gone = removed_clusters(made.fleet, made.live.control_planes)
    ways = {
        name: (one.access, one.control_plane)
        for name, one in gone.items()
        if isinstance(one, RemovedCluster)
    }
    return ways | {
        name: (one.access, one.control_plane) for name, one in made.fleet.clusters.items()
    }
