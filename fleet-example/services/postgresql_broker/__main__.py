"""`python -m postgresql_broker --help`, in the folder above this package."""

import sys

try:
    import openbrokerapi  # noqa: F401
    import psycopg  # noqa: F401
except ImportError as error:
    print(
        f"error: the package {error.name} is not here: install klutchctl with its extra `sandbox`",
        file=sys.stderr,
    )
    sys.exit(1)

from postgresql_broker.program import run

sys.exit(run(sys.argv[1:]))
