"""`python -m klutchctl`."""

from klutchctl.main import main

main()
