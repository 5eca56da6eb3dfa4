"""Reports of applies to app clusters `shop` and `cafe`, as rounds of a watch come to them."""

from collections.abc import Iterable

from reconciler.apply import Outcome, Report, Status
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.planning.changes import Action, Change, Held, Plan, UnseenCluster


def change(cluster: str = "shop", action: Action = Action.UPDATE) -> Change:
    return Change(cluster, "space", Ref(cluster, NAMESPACE, "", "x"), action, "")


def report(
    *outcomes: Status | tuple[str, Status],
    held: Iterable[Held] = (),
    unseen: Iterable[UnseenCluster] = (),
    changes: Iterable[Change] = (),
    lock_lost: bool = False,
) -> Report:
    """Return the report with these outcomes, of cluster `shop` where none is named."""
    named = (one if isinstance(one, tuple) else ("shop", one) for one in outcomes)
    ended = tuple(Outcome(change(cluster), status) for cluster, status in named)
    lines = (*(outcome.change for outcome in ended), *changes)
    sections = {"shop": "eu", "cafe": "eu"}
    plan = Plan("acme", "", "", lines, sections, held=tuple(held), unseen=tuple(unseen))
    return Report(plan, ended, lock_lost=lock_lost)
