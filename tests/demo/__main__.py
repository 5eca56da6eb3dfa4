"""`python -m tests.demo`."""

from klutchctl.entry import ending_quietly

with ending_quietly():
    from tests.demo.program import main
main()
