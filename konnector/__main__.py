"""`python -m konnector`."""

from konnector.main import main

main()
