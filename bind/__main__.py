"""`python -m bind`."""

from bind.main import main

main()
