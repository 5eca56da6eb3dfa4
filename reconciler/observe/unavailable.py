"""The reasons why a cluster is unseen, in words: what failed, and the remedy. Pure."""

from collections.abc import Sequence
from typing import Final

from reconciler.core.errors import ClusterError, ConfigError, Forbidden, Unauthorized, Unreachable
from reconciler.core.live import Address, Unavailable
from reconciler.fleet.values import Access

_NAMED: Final = 5


def unusable(error: ConfigError, access: Access) -> Unavailable:
    """Return the verdict on a cluster that there is no way to."""
    remedy = f"Mend {access}, or spec.access of this cluster's document"
    return Unavailable(f"cannot be reached by {access}: {error}", error.hint or remedy)


def failed(errors: Sequence[ClusterError], access: Access, address: Address | None) -> Unavailable:
    """Return the verdict on a cluster where these reads failed; there is at least one.

    All that is forbidden is named, so that the rights can be granted at once. Of other failures
    the first says it all.
    """
    refused = [error for error in errors if isinstance(error, Forbidden)]
    named = [_sentence(error) for error in refused or errors[:1]]
    more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    server = address.server if address else "the API server"
    return Unavailable("; ".join(named[:_NAMED]) + more, _remedy(refused or errors, access, server))


def late(waiting: Sequence[str], seconds: float) -> Unavailable:
    """Return the verdict on a cluster whose time was up while these reads had no answer."""
    reads = ", ".join(sorted(set(waiting))) or "the connection"
    return Unavailable(
        f"not read completely in {seconds:g} s: no answer yet to {reads}",
        "Find out why the API server answers so slowly, or raise --timeout",
    )


def nameless(access: Access) -> Unavailable:
    """Return the verdict on a cluster without an identity."""
    return Unavailable(
        "it has no namespace kube-system, whose uid identifies a cluster",
        f"Check that {access} leads to a Kubernetes API server",
    )


def asleep(reason: str) -> Unavailable:
    """Return the verdict on a suspended cluster, which is not read."""
    return Unavailable(f"suspended: {reason}", "Remove spec.suspend from its document to go on")


def defect(error: Exception) -> Unavailable:
    """Return the verdict on a cluster whose reader broke. The text of `error` may hold anything."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "?" if trace is None else f"{trace.tb_frame.f_globals['__name__']}:{trace.tb_lineno}"
    return Unavailable(
        f"unexpected {type(error).__name__} at {place}: this is a defect of klutchctl",
        "Report it with this line; the other clusters are not affected",
    )


def behind(control_plane: str, why: Unavailable) -> Unavailable:
    """Return the verdict on an app cluster whose control plane is unseen."""
    return Unavailable(f"its control plane {control_plane} is unseen: {why.reason}", why.remedy)


def contradictory(accesses: Sequence[str]) -> Unavailable:
    """Return the verdict on a leaving cluster whose annotations do not say one way to it."""
    if not any(accesses):
        return Unavailable(
            "no document names it any more, and nothing says how to reach it",
            "Bring its Cluster document back until its units are released",
        )
    return Unavailable(
        f"no document names it any more, and it cannot be told how to reach it: "
        f"{', '.join(repr(access) for access in accesses)}",
        "Bring its Cluster document back until its units are released",
    )


def _sentence(error: ClusterError) -> str:
    return f"{error.verb} {error.ref.object}: {error.message}"


def _remedy(errors: Sequence[ClusterError], access: Access, server: str) -> str:
    match errors[0]:
        case Forbidden():
            rights = sorted({f"{error.verb} {error.ref.kind.resource}" for error in errors})
            return f"Grant the user of {access}: {', '.join(rights)}"
        case Unauthorized():
            return f"Renew the credentials of {access}"
        case Unreachable():
            return f"Check that {server} runs, and that it can be reached from here"
        case _:
            return f"Check that {server} is the right API server"
