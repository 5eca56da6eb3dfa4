"""Does one line of a plan that creates or changes one object.

The object is read again; where it is not what the plan saw, nothing is written (mapping.md 0).
"""

import base64
from dataclasses import replace

from reconciler.apply import kubeconfig_secrets
from reconciler.apply.cluster_writer import Clusters, ClusterWriter
from reconciler.apply.outcomes import Outcome, Status
from reconciler.apply.patches import Stale
from reconciler.core import keys, names, server_side_apply
from reconciler.core.manifest import Manifest, put, uid_of
from reconciler.core.refs import CRD
from reconciler.fleet.wanted import Rule, Wanted
from reconciler.kube import crds
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change
from reconciler.planning.objects import before_digest, differences


async def do(change: Change, clusters: Clusters) -> Outcome:
    """Create, adopt or update one object. Raises Stale, Unfilled, Stopped and ClusterErrors."""
    assert change.wanted is not None, change
    writer = clusters(change.ref.cluster)
    if change.action is Action.CREATE:
        made = await create(change, change.wanted, clusters)
        return Outcome(change, Status.DONE if made else Status.UNCHANGED)
    return await _update(change, change.wanted, writer, clusters)


async def create(change: Change, wanted: Wanted, clusters: Clusters) -> Manifest | None:
    """Make an object; None where another has just made one that only had to be there."""
    writer = clusters(change.ref.cluster)
    manifest = await _complete(wanted, clusters, live=None)
    made = await writer.create(manifest, change.ref.kind)
    if made is None and wanted.rule is not Rule.CREATE_ONLY:
        raise Stale(f"{change.ref.object} was made by another since the plan")
    return made


async def _update(
    change: Change, wanted: Wanted, writer: ClusterWriter, clusters: Clusters
) -> Outcome:
    ref = change.ref

    async def attempt() -> Outcome:
        live = await writer.read(ref)
        if not _is_as_planned(change, wanted, live):
            if live is not None and not _differs(change, wanted, live):
                return Outcome(change, Status.UNCHANGED, "it is so already")
            raise Stale(f"{ref.object} has changed since the plan")
        assert live is not None
        stated = await _stated(change, wanted, clusters, live)
        live = await writer.as_applied(live, ref)
        # An adoption drops nothing, whatever we may have stated once.
        whole = live if change.action is Action.ADOPT else wanted.manifest
        body = server_side_apply.body(live, stated, whole=whole, manager=keys.MANAGER_CLI)
        await writer.apply(body, ref.kind)
        return Outcome(change, Status.DONE)

    return await writer.again(attempt, ref)


async def now(change: Change, clusters: Clusters) -> str:
    """Return the digest of an object as it is now, as `Change.before` has it."""
    assert change.wanted is not None, change
    live = await clusters(change.ref.cluster).read(change.ref)
    seen = None if live is None else observed(change.ref.kind, live)
    return before_digest(seen, change.wanted.stated, whole=change.wanted.manifest)


async def check(change: Change, clusters: Clusters) -> None:
    """Raise Stale where an object that is to be replaced is not what the plan saw."""
    assert change.wanted is not None, change
    live = await clusters(change.ref.cluster).read(change.ref)
    if not _is_as_planned(change, change.wanted, live):
        raise Stale(f"{change.ref.object} has changed since the plan")


async def accept_claims(change: Change, live: Manifest, clusters: Clusters) -> Outcome:
    """Accept the claims of a binding that a backend has just made, which it makes without."""
    wanted = change.wanted
    assert wanted is not None, change
    seen = observed(change.ref.kind, live)
    known = before_digest(seen, wanted.stated, whole=wanted.manifest)
    found = replace(change, action=Action.UPDATE, uid=uid_of(live), before=known)
    outcome = await do(found, clusters)
    return replace(outcome, change=change)


def _is_as_planned(change: Change, wanted: Wanted, live: Manifest | None) -> bool:
    if live is None or uid_of(live) != change.uid:
        return False
    seen = observed(change.ref.kind, live)
    return before_digest(seen, wanted.stated, whole=wanted.manifest) == change.before


def _differs(change: Change, wanted: Wanted, live: Manifest) -> bool:
    if uid_of(live) != change.uid:
        return True
    stated = change.after if change.action is Action.ADOPT and change.after else wanted.stated
    return bool(differences(observed(change.ref.kind, live), stated, whole=wanted.manifest))


async def _stated(change: Change, wanted: Wanted, clusters: Clusters, live: Manifest) -> Manifest:
    if change.action is Action.ADOPT:
        assert change.after is not None
        return change.after
    return await _complete(replace(wanted, manifest=wanted.stated), clusters, live=live)


async def _complete(wanted: Wanted, clusters: Clusters, *, live: Manifest | None) -> Manifest:
    """Return what is written, with all that was known only after the apply."""
    if wanted.ref.kind == CRD:
        (whole,) = crds.load(wanted.ref.name)
        return whole
    if wanted.kubeconfig is None:
        return wanted.manifest
    content = await kubeconfig_secrets.content(wanted.kubeconfig, clusters, live=live)
    return put(wanted.manifest, {names.KUBECONFIG: base64.b64encode(content).decode()}, "data")
