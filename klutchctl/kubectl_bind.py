"""Starts `kubectl-bind`, for `kubectl bind`: Klutch's command, in one process (F18-F20)."""

from klutchctl.entry import end_after, ending_quietly


def main() -> None:
    """Run the command line and end the process."""
    with ending_quietly():
        from klutchctl.binding.kubectl import code
    end_after(code)
