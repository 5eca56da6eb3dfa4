"""`python -m postgresql_operator --help`, in the folder of this package."""

import sys

from postgresql_operator.program import run

sys.exit(run(sys.argv[1:]))
