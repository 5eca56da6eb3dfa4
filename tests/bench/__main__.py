"""`make bench`: our client, a large fleet, a cache, a backend, its door, brokers, a board.

`make bench ARGS=clients`, `plans`, `applies`, `watches`, `events`, `backends`, `doors`, `boards`,
`brokers`, `konnectors` and `widths` run one part each, as the modules of these names say.
"""

import sys
from typing import Final

from tests.bench import (
    applies,
    backends,
    boards,
    brokers,
    clients,
    doors,
    events,
    konnectors,
    plans,
    watches,
    widths,
)

PARTS: Final = {
    "clients": clients.main,
    "plans": plans.main,
    "applies": applies.main,
    "watches": watches.main,
    "events": events.main,
    "backends": backends.main,
    "doors": doors.main,
    "boards": boards.main,
    "brokers": brokers.main,
    "konnectors": konnectors.main,
    "widths": widths.main,
}


def main() -> None:
    """Run what the arguments name, or everything."""
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(
            f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    for part in chosen:
        PARTS[part]()


main()
