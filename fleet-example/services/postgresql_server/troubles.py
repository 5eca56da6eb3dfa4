"""What can go wrong with PostgreSQL and its tools, as sentences without secrets."""

from reconciler.core.errors import KlutchError, Retry


class ServerTrouble(KlutchError):
    """The server did not answer, or said no: it may do later."""

    retry = Retry.LATER


class JobFailed(KlutchError):
    """pg_dump or pg_restore said no: the same again would fail again."""
