"""`python -m postgresql_operator --help`, in the folder of this package."""

import sys

try:
    import psycopg  # noqa: F401
except ImportError:
    print(
        "error: the package psycopg, with which this operator talks to PostgreSQL, is not here:"
        " pip install 'psycopg[binary]', or install klutchctl with its extra `sandbox`",
        file=sys.stderr,
    )
    sys.exit(1)

from postgresql_operator.program import run

sys.exit(run(sys.argv[1:]))
