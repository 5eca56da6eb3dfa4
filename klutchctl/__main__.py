"""`python -m klutchctl`."""

from klutchctl.entry import main

main()
