"""Writes single objects of a plan, each with its preconditions.

The object is read again; where it is not what the plan saw, nothing is written (mapping.md 0).
Kubeconfigs are made here too.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from reconciler import api
from reconciler.apply import Outcome, Status
from reconciler.apply.patches import Decide, Stale
from reconciler.blueprints import objects as spaces
from reconciler.controller.fence import WriteFence
from reconciler.core import errors, field_set, keys, names, server_side_apply
from reconciler.core.decision import modification
from reconciler.core.field_set import created_to_applied
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, get_text, put, ref_of, resource_version_of, uid_of
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.core.secret import Secret
from reconciler.fleet.wanted import KubeconfigSource, Rule, Wanted
from reconciler.kube import crds
from reconciler.kube.cluster import Cluster
from reconciler.kube.kubeconfig import from_secret
from reconciler.kube.registry import address_of
from reconciler.kube.requests import Preconditions, Propagation
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change
from reconciler.planning.objects import before_digest, differences

T = TypeVar("T")

_TRIES: Final = 5  # each with what was read again (mapping.md 0)
RETRY_PAUSES: Final = (0.3, 1.0, 3.0)  # seconds before an unreachable cluster is tried again
_TOKEN_WAIT: Final = 10.0  # seconds until a token Secret is filled (mapping.md 3, row 4)


class Unfilled(Exception):
    """A service account token Secret stays empty, so there is no kubeconfig to write."""


class ClusterWriter:
    """Writes to one cluster while the fence is open. Every write may raise Stopped."""

    def __init__(self, cluster: Cluster, fence: WriteFence) -> None:
        self.cluster, self.fence = cluster, fence

    async def read(self, ref: Ref) -> Manifest | None:
        return await self.cluster.get(ref)

    async def create(self, manifest: Manifest, kind: Kind) -> Manifest | None:
        """POST, or return None where the name is taken.

        A write without an answer may have happened: then what is there now is returned as made.
        """
        ref = ref_of(self.cluster.name, kind, manifest)
        for pause in (*RETRY_PAUSES, None):
            try:
                return await self.fence.write(
                    lambda: self.cluster.create(manifest, kind, manager=keys.MANAGER_CLI)
                )
            except errors.AlreadyExists:
                return None
            except errors.Unreachable as error:
                if error.outcome_unknown and (made := await self.cluster.get(ref)) is not None:
                    return made if keys.MANAGER_CLI in field_set.managers_of(made) else None
                if pause is None:
                    raise
            await self.fence.pause(pause)
        raise AssertionError("the last try returns or raises")

    async def apply(self, body: Manifest, kind: Kind) -> Manifest:
        """Server-side apply by force. Raises Conflict, and Replaced for another uid."""
        return await self._retried(
            lambda: self.cluster.apply(body, kind, manager=keys.MANAGER_CLI, force=True)
        )

    async def as_applied(self, live: Manifest, ref: Ref) -> Manifest:
        """Make our created fields count as applied, and return the object then. Raises Conflict."""
        taken = created_to_applied(live, manager=keys.MANAGER_CLI)
        if taken is None:
            return live
        return await self._retried(
            lambda: self.cluster.json_patch(ref, taken, manager=keys.MANAGER_CLI)
        )

    async def change(self, ref: Ref, decide: Decide, *, manager: str = keys.MANAGER_CLI) -> bool:
        """Patch an object by what is read of it, until that held; False where it is absent.

        Raises Stale where others keep writing.
        """

        async def attempt() -> bool:
            live = await self.cluster.get(ref)
            if live is None:
                return False
            change = decide(live)
            if change is not None:
                body = modification(ref.cluster, ref.kind, live, **change).body
                await self._retried(lambda: self.cluster.merge_patch(ref, body, manager=manager))
            return True

        return await self.again(attempt, ref)

    async def delete(self, ref: Ref, *, uid: str, propagation: Propagation) -> bool:
        """Delete this one object; False where it is absent. Raises Stale for another uid.

        `uid` "" stands for whatever bears the name now.
        """

        async def attempt() -> bool:
            live = await self.cluster.get(ref, metadata_only=True)
            if live is None:
                return False
            if uid and uid_of(live) != uid:
                raise Stale(f"{ref.object} was deleted and made again")
            known = Preconditions(uid_of(live), resource_version_of(live))
            return await self._retried(
                lambda: self.cluster.delete(ref, preconditions=known, propagation=propagation)
            )

        return await self.again(attempt, ref)

    async def again(self, attempt: Callable[[], Awaitable[T]], ref: Ref) -> T:
        """Try again after each Conflict. Raises Stale after the last."""
        for _ in range(_TRIES):
            try:
                return await attempt()
            except (errors.Replaced, errors.Missing) as error:
                raise Stale(f"{ref.object} was deleted or made again in the meantime") from error
            except errors.Conflict:
                await asyncio.sleep(0)
        raise Stale(f"others keep writing to {ref.object}")

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a write that fits only one state of the object, so it may be sent twice."""
        for pause in RETRY_PAUSES:
            try:
                return await self.fence.write(call)
            except errors.Unreachable:
                await self.fence.pause(pause)
        return await self.fence.write(call)


Clusters: TypeAlias = Callable[[str], ClusterWriter]  # by `Ref.cluster`


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
    made = await writer.create(await _complete(wanted, clusters, live=None), change.ref.kind)
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
    return _digest(change, change.wanted, await clusters(change.ref.cluster).read(change.ref))


async def check(change: Change, clusters: Clusters) -> None:
    """Raise Stale where an object to replace is not as the plan saw it."""
    assert change.wanted is not None, change
    live = await clusters(change.ref.cluster).read(change.ref)
    if not _is_as_planned(change, change.wanted, live):
        raise Stale(f"{change.ref.object} has changed since the plan")


async def accept_claims(change: Change, live: Manifest, clusters: Clusters) -> Outcome:
    """Accept the claims of a binding that a backend has just made, which it makes without."""
    wanted = change.wanted
    assert wanted is not None, change
    known = _digest(change, wanted, live)
    outcome = await do(
        replace(change, action=Action.UPDATE, uid=uid_of(live), before=known), clusters
    )
    return replace(outcome, change=change)


def _is_as_planned(change: Change, wanted: Wanted, live: Manifest | None) -> bool:
    if live is None or uid_of(live) != change.uid:
        return False
    return _digest(change, wanted, live) == change.before


def _digest(change: Change, wanted: Wanted, live: Manifest | None) -> str:
    """Return the digest of an object as `Change.before` has it."""
    seen = None if live is None else observed(change.ref.kind, live)
    return before_digest(seen, wanted.stated, whole=wanted.manifest)


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
    """Return the manifest to write, with all that was known only after the apply."""
    if wanted.ref.kind == CRD:
        (whole,) = crds.load(wanted.ref.name)
        return whole
    if wanted.kubeconfig is None:
        return wanted.manifest
    content = await _kubeconfig(wanted.kubeconfig, clusters, live=live)
    return put(wanted.manifest, {names.KUBECONFIG: base64.b64encode(content).decode()}, "data")


async def _kubeconfig(
    source: KubeconfigSource, clusters: Clusters, *, live: Manifest | None
) -> bytes:
    """Return a kubeconfig with all that was known only after the apply. Raises Unfilled."""
    token = await _token(source, clusters)
    address = source.address(_address(live))
    assert address is not None, source
    return spaces.kubeconfig(address, token, namespace=source.token.namespace).encode()


async def _token(source: KubeconfigSource, clusters: Clusters) -> Secret:
    """Return the token once a controller of the cluster has filled the Secret."""
    writer, ref = clusters(source.token.cluster), source.token

    async def look() -> Secret | None:
        found = await writer.read(ref)
        token = get_text(found or {}, "data", api.TOKEN_KEY)
        filled = token and get_text(found or {}, "data", api.CA_KEY)
        return Secret(base64.b64decode(token).decode()) if filled else None

    token = await writer.fence.until(look, seconds=_TOKEN_WAIT)
    if token is None:
        raise Unfilled(
            f"{ref}: no controller has filled it within {_TOKEN_WAIT:.0f} s; does the "
            "kube-controller-manager run there, with the service account token controller?"
        )
    return token


def _address(live: Manifest | None) -> Address | None:
    """Return where a live kubeconfig leads, or None where there is no readable one."""
    encoded = get_text(live or {}, "data", names.KUBECONFIG)
    try:
        return address_of(from_secret(base64.b64decode(encoded), name=names.KUBECONFIG, environ={}))
    except (errors.ConfigError, ValueError):
        return None
