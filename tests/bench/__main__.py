"""`make bench`: our client, a large fleet, a backend, its door, brokers, a board.

`make bench ARGS=clients`, `plans`, `applies`, `watches`, `backends`, `doors`, `boards`,
`brokers`, `konnectors` and `widths` run one part each, as the modules of these names say.
"""

import sys
from importlib import import_module
from typing import Final

PARTS: Final = (
    "clients", "plans", "applies", "watches", "backends", "doors", "boards", "brokers",
    "konnectors", "widths",
)  # fmt: skip


def main() -> None:
    """Run what the arguments name, or everything."""
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(
            f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    for part in chosen:
        import_module(f"tests.bench.{part}").main()


main()
