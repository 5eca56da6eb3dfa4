"""One line of a plan that makes or changes one object, done.

The object is read again; where it is not what the plan saw, nothing is written (mapping.md 0).
"""

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reconciler.apply.outcomes import Outcome, Status
from reconciler.apply.writes import Stale, Writes
from reconciler.blueprints import space as spaces
from reconciler.core import keys, names, server_side_apply
from reconciler.core.errors import ConfigError
from reconciler.core.field_set import created_to_applied
from reconciler.core.kubeconfig_facts import CA_KEY, TOKEN_KEY
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, get_text, put, uid_of
from reconciler.core.refs import CRD
from reconciler.core.secret import Secret
from reconciler.fleet.wanted import KubeconfigSource, Rule, Wanted
from reconciler.kube import crds
from reconciler.kube.kubeconfig import from_secret
from reconciler.kube.registry import address_of
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change
from reconciler.planning.compare import before_digest, differences

TOKEN_WAIT: Final = 10.0  # seconds until a token Secret is filled (mapping.md 3, row 4)

Clusters = Callable[[str], Writes]  # by `Ref.cluster`


class Unfilled(Exception):
    """A service account token Secret stays empty, so there is no kubeconfig to write."""


async def do(change: Change, clusters: Clusters) -> Outcome:
    """Create, adopt or update one object. Raises Stale, Unfilled, Stopped and ClusterErrors."""
    assert change.wanted is not None, change
    writes = clusters(change.ref.cluster)
    if change.action is Action.CREATE:
        made = await create(change, change.wanted, clusters)
        return Outcome(change, Status.DONE if made else Status.UNCHANGED)
    return await _update(change, change.wanted, writes, clusters)


async def create(change: Change, wanted: Wanted, clusters: Clusters) -> Manifest | None:
    """Make an object; None where another has just made one that only had to be there."""
    writes = clusters(change.ref.cluster)
    manifest = await _complete(wanted, clusters, live=None)
    made = await writes.create(manifest, change.ref.kind)
    if made is None and wanted.rule is not Rule.CREATE_ONLY:
        raise Stale(f"{change.ref.object} was made by another since the plan")
    return made


async def _update(change: Change, wanted: Wanted, writes: Writes, clusters: Clusters) -> Outcome:
    ref = change.ref

    async def attempt() -> Outcome:
        live = await writes.read(ref)
        if not _is_as_planned(change, wanted, live):
            if live is not None and not _differs(change, wanted, live):
                return Outcome(change, Status.UNCHANGED, "it is so already")
            raise Stale(f"{ref.object} has changed since the plan")
        assert live is not None
        stated = await _stated(change, wanted, clusters, live)
        taken = created_to_applied(live, manager=keys.MANAGER_CLI)
        if taken is not None:
            live = await writes.patch(ref, taken)
        # An adoption drops nothing, whatever we may have stated once.
        whole = live if change.action is Action.ADOPT else wanted.manifest
        body = server_side_apply.body(live, stated, whole=whole, manager=keys.MANAGER_CLI)
        await writes.apply(body, ref.kind)
        return Outcome(change, Status.DONE)

    return await writes.again(attempt, ref)


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
    token = await _token(wanted.kubeconfig, clusters)
    address = wanted.kubeconfig.address(_held(live))
    assert address is not None, wanted.kubeconfig
    namespace = wanted.kubeconfig.token.namespace
    content = spaces.kubeconfig(address, token, namespace=namespace).encode()
    return put(wanted.manifest, {names.KUBECONFIG: base64.b64encode(content).decode()}, "data")


async def _token(source: KubeconfigSource, clusters: Clusters) -> Secret:
    """Return the token once a controller of the cluster has filled the Secret."""
    writes, ref = clusters(source.token.cluster), source.token

    async def look() -> Secret | None:
        found = await writes.read(ref)
        token = get_text(found or {}, "data", TOKEN_KEY)
        filled = token and get_text(found or {}, "data", CA_KEY)
        return Secret(base64.b64decode(token).decode()) if filled else None

    token = await writes.gate.until(look, seconds=TOKEN_WAIT)
    if token is None:
        raise Unfilled(
            f"{ref}: no controller has filled it within {TOKEN_WAIT:.0f} s; does the "
            "kube-controller-manager run there, with the service account token controller?"
        )
    return token


def _held(live: Manifest | None) -> Address | None:
    """Return where a live kubeconfig leads, or None where there is no readable one."""
    encoded = get_text(live or {}, "data", names.KUBECONFIG)
    try:
        content = base64.b64decode(encoded)
        return address_of(from_secret(content, name=names.KUBECONFIG, environ={}))
    except (ConfigError, ValueError):
        return None
