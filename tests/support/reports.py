"""Reports of applies to app clusters `shop` and `cafe`, as rounds of a watch come to them."""

from collections.abc import Iterable
from dataclasses import replace

from reconciler.apply import Outcome, Report, Status
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster


def change(cluster: str = "shop", action: Action = Action.UPDATE, *, name: str = "x") -> Change:
    return Change(cluster, "space", Ref(cluster, NAMESPACE, "", name), action, "")


def report(
    *outcomes: Status | tuple[str, Status],
    held: Iterable[Tripped] = (),
    unseen: Iterable[UnseenCluster] = (),
    changes: Iterable[Change] = (),
    lock_lost: bool = False,
) -> Report:
    """Return the report with these outcomes, of cluster `shop` where none is named.

    The outcomes are of lines that were planned anew, as those of an apply are.
    """
    named = [one if isinstance(one, tuple) else ("shop", one) for one in outcomes]
    ended = tuple(
        Outcome(change(cluster, name=f"x{number or ''}"), status)
        for number, (cluster, status) in enumerate(named)
    )
    lines = (*(replace(outcome.change) for outcome in ended), *changes)
    sections = {"shop": "eu", "cafe": "eu"}
    plan = Plan("acme", "", "", lines, sections, held=tuple(held), unseen=tuple(unseen))
    return Report(plan, ended, lock_lost=lock_lost)
