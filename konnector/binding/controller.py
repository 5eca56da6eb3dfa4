"""Serves each APIServiceBinding: its Secret, its provider, its CRD, its sync, its status."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import timedelta
from typing import Final

from konnector.binding import crd, decide, drain, release
from konnector.binding.decide import Seen
from konnector.binding.release import key_of
from konnector.claim import copies
from konnector.claim.copies import InstanceTerms, Pair
from konnector.context import AgentContext, SecretInformers
from konnector.kubeconfig import judge
from konnector.kubeconfig.judge import Judged
from konnector.mass_loss import rules as mass_loss_rules
from konnector.paired_sync import NOTED_AFTER, is_refusal
from konnector.permission_claim import rules as permission_claim_rules
from konnector.provider.provider import Provider
from konnector.provider.registry import AnyProviders
from konnector.provider.sync_manager import Wanted
from reconciler import api
from reconciler.api import claim_status
from reconciler.blueprints import machinery
from reconciler.controller.controller import Queue
from reconciler.controller.executor import observed
from reconciler.core import keys, manifest
from reconciler.core.decision import NOTHING, Decision, Note
from reconciler.core.errors import ClusterError, Retry
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.requests import ListQuery
from reconciler.kube.store import Index

NAME: Final = "name"
_SECRET: Final = "secret"
INDEXES: Final[Mapping[str, Index]] = {
    NAME: lambda live: (manifest.name_of(live),),
    _SECRET: lambda live: (api.secret_of(live),),
}
_SOON: Final = timedelta(seconds=1)
_WITHDRAWN: Final = 30.0  # seconds without an export before instances report it
_KEPT: Final = 60.0  # seconds for which a binding that is gone keeps its provider
_RELEASE_TIMEOUT: Final = 600.0  # and for which a control plane is waited for to release copies
# No event reports that informers cannot read a kind, or can again.
_LOOK: Final = timedelta(minutes=1)
_WAIT: Final = timedelta(seconds=5)


class Bindings:
    """The controller of all APIServiceBindings.

    They are in `cluster`; `view` is the informer of them, by INDEXES, and `secrets` are those that
    they refer to.
    """

    def __init__(self, context: AgentContext, cluster: Cluster, view: Informer) -> None:
        self._context, self._cluster, self._view = context, cluster, view.store
        self._recent = ReadYourWrites(view)
        self._kind = view.store.kind
        # Whole: an address is mirrored, unless it is of somebody else.
        self.secrets = SecretInformers(
            cluster, context.metrics, on_change=self._secret_changed, trim=lambda whole: whole
        )
        self._providers: AnyProviders  # by `serve_with`
        self._queue: Queue[ObjectKey] | None = None
        self._gone_since: dict[ObjectKey, float] = {}
        self._withdrawn: dict[ObjectKey, float] = {}  # since when; infinite once it is reported
        self._unwritten: dict[ObjectKey, float] = {}  # since when it cannot be
        self._last: dict[ObjectKey, Manifest] = {}  # what was served, until that is undone
        # The uids of a binding, and of the CRD that it owned.
        self._owned: dict[ObjectKey, tuple[str, str]] = {}

    def serve_with(self, providers: AnyProviders) -> None:
        """Set the providers that serve the bindings. They call the bindings, so they come later."""
        self._providers = providers

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        self._queue = queue
        self._view.subscribe_keys(queue.enqueue)
        self._context.crds.subscribe_keys(self._crd_changed)

    def changed(self, keys_: Iterable[ObjectKey], name: str) -> None:
        """Look again at those of these bindings that have the name; "": all."""
        if self._queue is not None:
            for key in keys_:
                if not name or key.name == name:
                    self._queue.enqueue(key)

    def _secret_changed(self, place: ObjectKey) -> None:
        for key in self._view.keys_by(_SECRET, place):
            self.changed([key], "")
            if (provider := self._providers.of(key)) is not None:
                provider.beat()

    def all_keys(self) -> Set[ObjectKey]:
        return set(self._view.keys())

    def unfollowed(self, space_uid: str) -> Iterator[str]:
        """Yield the names of the bindings that are not followed yet and may be of this space."""
        for key in self.all_keys():
            provider = self._providers.of(key)
            if provider is None or provider.may_bring(space_uid, key.name):
                yield key.name

    def names_secret(self, place: ObjectKey) -> bool:
        return self._view.has(_SECRET, place)

    def notify(self, keys_: Iterable[ObjectKey], note: Note) -> None:
        for key in keys_:
            if (live := self._recent.get(*key)) is not None:
                self._context.runtime.recorder.record(observed(self._recent, live).ref, live, note)

    def notify_one(self, keys_: Iterable[ObjectKey], note: Note) -> None:
        """Record an Event about the first of these bindings that is there."""
        self.notify([key for key in sorted(keys_) if self._recent.get(*key)][:1], note)

    def find(self, keys_: Iterable[ObjectKey], name: str) -> Manifest | None:
        """Return the binding of a name among those of these keys; of several the CRD's owner."""
        named = sorted(key for key in keys_ if key.name == name)
        found = [live for key in named if (live := self._recent.get(*key))]
        if len(found) < 2:
            return next(iter(found), None)
        owners = manifest.get_maps(self._context.crds.get("", name), "metadata", "ownerReferences")
        uids = {manifest.get_text(one, "uid") for one in owners}
        return next((one for one in found if manifest.uid_of(one) in uids), found[0])

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """Reconcile one binding; what the app cluster refuses is reported on the other side."""
        try:
            again = await self._reconcile(key)
        except ClusterError as error:
            self._note_unwritten(key, error)
            raise
        self._note_unwritten(key)
        return again

    def _note_unwritten(self, key: ObjectKey, error: ClusterError | None = None) -> None:
        if (provider := self._providers.of(key)) is None:
            return
        if error is None:
            self._unwritten.pop(key, None)
            provider.guards.note_unwritten(key.name, "")
        elif error.cluster != provider.plane.name and error.retry is not Retry.NOW:
            now = self._context.clock.monotonic()
            waited = now - self._unwritten.setdefault(key, now)
            if waited >= NOTED_AFTER or is_refusal(error):
                provider.guards.note_unwritten(key.name, str(error))

    async def _reconcile(self, key: ObjectKey) -> timedelta | None:
        live = self._recent.get(*key)
        if live is None:
            return await self._gone(key)
        self._gone_since.pop(key, None)
        place = api.secret_of(live)
        self.secrets.need(key, [place])
        if all(place) and not self.secrets.knows(place):
            return _WAIT
        judged = await self._providers.assign(key, place, self._judged(live))
        provider = self._providers.of(key)
        self._last[key] = live
        if manifest.is_deleting(live):
            return await self._let_go(live, provider)
        seen = await self._look(live, judged, provider)
        if seen.crd is not None and seen.plan is not None and seen.plan.standing == "ours":
            self._owned[key] = manifest.uid_of(live), manifest.uid_of(seen.crd)
        await self._sync(provider, live, seen)
        await self._report_withdrawal(key, seen)
        marked = drain.Seen(cluster=self._cluster.name, binding=live, kind=self._kind)
        marking = drain.decide(marked, now=self._context.clock.now())
        decision = decide.decide(seen)
        tasks = () if seen.mismatch else (*marking.tasks, *decision.tasks)
        await self._write(live, replace(decision, tasks=tasks), provider)
        well = provider is not None and provider.serving is not None and not seen.claim_problems
        return _LOOK if well else _WAIT

    async def _report_withdrawal(self, key: ObjectKey, seen: Seen) -> None:
        """Report at the instances that their kind is exported no more; not at each flicker."""
        if (body := seen.withdrawn) is None:
            self._withdrawn.pop(key, None)
            return
        now = self._context.clock.monotonic()
        if now - self._withdrawn.setdefault(key, now) >= _WITHDRAWN:
            is_done = await release.report_withdrawal(self._context, body)
            self._withdrawn[key] = math.inf if is_done else now

    async def _let_go(self, live: Manifest, provider: Provider | None) -> timedelta | None:
        """Undo the sync of a binding before it goes."""
        if _mismatch(provider):
            return _LOOK
        if drain.waits(live):
            del self._last[key_of(live)]
        seen, follows = await self._left(live, provider), NOTHING
        if provider is not None and not drain.syncs(seen):
            await provider.want(key_of(live), None)
            seen = await self._left(live, provider) if seen.syncing else seen
        elif provider is not None:
            # Its instances may still be deleted, and nobody else would carry that.
            undeleted = manifest.drop(live, "metadata", "deletionTimestamp")
            look = await self._look(undeleted, self._judged(live), provider)
            await self._sync(provider, live, look)
            follows = decide.decide(look) if look.crd is not None else NOTHING
        end = drain.decide(seen, now=self._context.clock.now())
        decision = replace(end, tasks=(*follows.tasks, *end.tasks))
        release.report(self._context, end, seen.instances)
        if drain.is_over(seen, end):
            await release.warn(self._context, drain.unserved(seen.crd))
        await self._write(live, decision, provider)
        return decision.again

    async def _left(self, live: Manifest, provider: Provider | None) -> drain.Seen:
        double = provider is not None and self._has_namesake(key_of(live), provider)
        return await release.look(self._cluster, self._view, live, provider, has_namesake=double)

    def _judged(self, live: Manifest) -> Judged:
        secret = self.secrets.object(api.secret_of(live))
        return judge.judge(live, secret, control_plane_mode=self._context.control_plane_mode)

    async def _gone(self, key: ObjectKey) -> timedelta | None:
        """End the sync, report that, and then release the provider, and the Secret with it."""
        provider = self._providers.of(key)
        if provider is not None:
            await provider.want(key, None)
            provider.guards.note_unwritten(key.name, "")
            again = None if _mismatch(provider) else await self._release(key, provider)
            if again is not None:
                return again
            ended = self._has_namesake(key, provider) or provider.has_reported_the_end(key.name)
            if not ended and self._is_patient(key):
                return _SOON
        for one in (self._gone_since, self._withdrawn, self._unwritten, self._last):
            one.pop(key, None)
        self._owned.pop(key, None)
        await self._providers.leave(key)
        self.secrets.need(key, ())
        return None

    async def _release(self, key: ObjectKey, provider: Provider) -> timedelta | None:
        """Release the instances of a binding that went without a drain; return the time of a retry.

        Only one that this process has served, and that its cluster says is gone.
        """
        last = self._last.get(key)
        if last is None or provider.serving is None or self._has_namesake(key, provider):
            return None
        if not self._context.control_plane_mode and self._is_withdrawn():
            return None  # the deletion of the kind is no deletion of each binding
        if await self.read(key) is not None:
            return _SOON  # the view is behind
        seen = replace(await self._left(drain.let_go_plainly(last), provider), reported=True)
        decision = drain.decide(seen, now=self._context.clock.now())
        if drain.is_over(seen, decision):
            await release.warn(self._context, drain.unserved(seen.crd))
            return None
        if seen.unsure and not self._is_patient(key, _RELEASE_TIMEOUT):
            return None
        release.report(self._context, decision, seen.instances)
        await provider.serving.link.executor.execute(decision)
        return decision.again

    def _is_withdrawn(self) -> bool:
        """Return whether the app cluster is to serve no bindings any more."""
        kind = self._context.crds.get("", self._kind.resource)
        return kind is None or manifest.is_deleting(kind)

    async def read(self, key: ObjectKey) -> Manifest | None:
        """Ask for a binding; by a list, because rights to get one are not among a konnector's."""
        named = f"metadata.name={key.name}"
        found = await self._cluster.list(self._kind, namespace=key.namespace, fields=named)
        return next(iter(found.items), None)

    def _has_namesake(self, key: ObjectKey, provider: Provider) -> bool:
        """Return whether a binding of the same name, of another namespace, is served here, too."""
        named = self._view.keys_by(NAME, key.name)
        return any(other != key and self._providers.of(other) is provider for other in named)

    def _is_patient(self, key: ObjectKey, seconds: float = _KEPT) -> bool:
        now = self._context.clock.monotonic()
        return now - self._gone_since.setdefault(key, now) < seconds

    async def _look(self, live: Manifest, judged: Judged, provider: Provider | None) -> Seen:
        name = manifest.name_of(live)
        shown = None if provider is None else provider.shown(name)
        owner, owned_crd = self._owned.get(key_of(live), ("", ""))
        seen = Seen(
            binding=live,
            judged=judged,
            provider=shown,
            crd=await self._context.bodies.get("", name),
            live_uids=frozenset(manifest.uid_of(one) for one in self._view.all()),
            owned_crd=owned_crd if owner == manifest.uid_of(live) else "",
            space_uid="" if provider is None else provider.guards.space_uid,
            control_plane_mode=self._context.control_plane_mode,
            unowned=await self._is_unowned(),
            claim_problems=self._claim_problems(live, provider),
            refusals=_refusals(name, provider),
            orphans="" if provider is None else provider.orphans(name),
            mismatch=_mismatch(provider),
        )
        if seen.plan is None or not seen.plan.kept_version:
            return seen
        return replace(seen, unclaimed=await self._is_unclaimed(seen, seen.plan.kept_version))

    async def _is_unclaimed(self, seen: Seen, version: str) -> bool:
        kind = api.kind_of(seen.crd or {}, version)
        app, query = self._context.app, ListQuery(limit=1, metadata_only=True)
        async with contextlib.aclosing(app.pages(Ref(app.name, kind, "", ""), query)) as pages:
            return not (await anext(pages)).items

    async def _sync(self, provider: Provider | None, live: Manifest, seen: Seen) -> None:
        """Start or end the sync of a binding, as far as it can be synced."""
        if provider is None or provider.serving is None:
            return
        kind = decide.synced_kind(seen)
        wanted = None
        if kind is not None and seen.crd is not None and seen.plan is not None:
            link = provider.serving.link
            has_status = crd.has_status(seen.crd, kind.version)
            pair = Pair(
                kind,
                link.space,
                link.space_uid,
                has_status,
                copies.carried(seen.export),
                copies.adopts_controlled(seen.export),
                machinery.left_out(seen.export),
                claim_status.takes_conditions(seen.crd, kind.version),
                self._context.runtime.recorder.docs,
                provider.guards.lives,
            )
            terms = InstanceTerms(
                recreates=manifest.annotations_of(live).get(keys.RECREATE) == keys.RECREATE_ALWAYS,
                drains=manifest.is_deleting(live),
                withdrawn=seen.plan.replaced
                or manifest.annotations_of(seen.export or {}).get(keys.WITHDRAWN, ""),
                few=mass_loss_rules.few_of(live),
            )
            rules = permission_claim_rules.rules_of(live, seen.export).rules
            wanted = Wanted(key_of(live), pair, rules, terms)
        await provider.want(key_of(live), wanted)

    async def _write(self, live: Manifest, decision: Decision, provider: Provider | None) -> None:
        planes = [provider.plane] if provider is not None else []
        executor = self._context.executor(*planes, self._cluster)
        await executor.execute(decision, observed(self._recent, live), recents=(self._recent,))

    async def _is_unowned(self) -> bool:
        """Return whether the app cluster's garbage collector would miss the owner of a CRD.

        It would look for a cluster-scoped one, and find none (mapping.md 8).
        """
        if not self._context.control_plane_mode:
            return False
        served = await self._context.bodies.get("", self._kind.resource)
        return manifest.get_text(served, "spec", "scope") == "Cluster"

    def _claim_problems(self, live: Manifest, provider: Provider | None) -> Sequence[str]:
        problems = list(permission_claim_rules.rules_of(live).unsupported)
        if provider is not None and provider.serving is not None:
            problems += provider.serving.syncs.problems(manifest.name_of(live))
        return problems

    def _crd_changed(self, crd_key: ObjectKey) -> None:
        for key in self._view.keys_by(NAME, crd_key.name):
            self.changed([key], "")
            if (provider := self._providers.of(key)) is not None:
                provider.look_at_export(key.name)


def _mismatch(provider: Provider | None) -> str:
    return "" if provider is None else provider.guards.mismatch()


def _refusals(name: str, provider: Provider | None) -> Sequence[str]:
    if provider is None or provider.serving is None:
        return ()
    troubles = provider.serving.link.troubles.of(name)
    return [f"{about}: {problem}" for about, problem in sorted(troubles.items())]
