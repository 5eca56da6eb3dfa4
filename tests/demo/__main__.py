"""`python -m tests.demo`."""

import os

from klutchctl.entry import ending_quietly

make = os.getppid()  # before imports, which take a second: it may be gone after them
with ending_quietly():
    from tests.demo.program import main
main(make)
