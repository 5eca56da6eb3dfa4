"""Programs of others and of ours, run to their end."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def ran(argv: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program without any input, and return it with all that it printed, as text."""
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
