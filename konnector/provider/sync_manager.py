"""Starts and stops the syncs of one space, by the bindings that need them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from konnector.claim.controller import Claims
from konnector.claim.copies import InstanceTerms, Pair
from konnector.context import SyncContext
from konnector.permission_claim.controller import ClaimedResource, PermissionClaims
from konnector.permission_claim.rules import Rule, rules_of
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core import manifest
from reconciler.core.decision import Step
from reconciler.core.errors import Oversized
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey


@dataclass(frozen=True, slots=True)
class Wanted:
    """A binding's part of the sync: a kind, and the claims that it accepts.

    `by` is the binding's key. Bindings of one name differ in it, and only one of them owns the CRD.
    """

    by: ObjectKey
    pair: Pair
    rules: Sequence[Rule] = ()
    terms: InstanceTerms = field(default_factory=InstanceTerms)


class Syncs(TaskSupervisor):
    """Starts and ends syncs as bindings come, change and go. Nothing that stays is restarted."""

    def __init__(self, link: SyncContext) -> None:
        super().__init__()
        self._link = link
        self._wanted: dict[str, Wanted] = {}
        self._instances: dict[str, Claims] = {}
        self._claims: dict[Kind, ClaimedResource] = {}
        self._turn = asyncio.Lock()

    async def want(self, by: ObjectKey, wanted: Wanted | None) -> None:
        """Start the sync of a binding, or, with None, end it; the sync under way ends first.

        It is not ended by another binding of that name.
        """
        binding = by.name
        async with self._turn:
            known = self._wanted.get(binding)
            if known == wanted or (wanted is None and known is not None and known.by != by):
                return
            if wanted is None:  # its rules go first: then nobody knows which claims lost a copy
                self._wanted.pop(binding, None)
                await self._regroup()
            running = self._instances.get(binding)
            if running is not None and (wanted is None or running.pair != wanted.pair):
                del self._instances[binding]
                await self.end(f"instances/{binding}")
            if wanted is not None:
                self._wanted[binding] = wanted
                if binding not in self._instances:
                    made = Claims(wanted.pair, self._link, self)
                    self._instances[binding] = made
                    self.start_worker(f"instances/{binding}", made)
                self._instances[binding].follow(wanted.terms)
                await self._regroup()

    def wants(self, binding: str) -> bool:
        return binding in self._wanted

    def runs(self, binding: str) -> bool:
        """Return whether a binding's sync knows its copies: none does any more while it ends."""
        return binding in self._instances

    def needs(self, app_namespace: str) -> bool:
        return any(one.has_claims(app_namespace) for one in self._instances.values())

    def living(self, app_namespace: str) -> frozenset[str]:
        """Return the bindings of which developers have instances that stay; "": cluster-scoped."""
        found = self._instances.items()
        return frozenset(name for name, one in found if one.live_in(app_namespace))

    def is_losing(self, kind: Kind, place: ObjectKey) -> bool:
        """Return whether a binding that claims an object loses its instances, or has lost one.

        Its export goes, or has gone: then the app cluster has still the CRD.
        """
        return any(
            self._loses(name, place.namespace)
            for name in self._link.callbacks.bound()
            for rule in rules_of(self._link.callbacks.binding(name) or {}).rules
            if rule.goes_down and _kind(rule).resource == kind.resource and rule.reaches(place)
        )

    def _loses(self, binding: str, app_namespace: str) -> bool:
        export = self._link.views.export(binding)
        if export is None:
            return self._link.agent.crds.get("", binding) is not None
        running = self._instances.get(binding)
        try:
            lost = running is not None and running.lacks_copies(app_namespace)
        except Oversized:
            lost = True  # unknown: the object beside it stays
        return lost or manifest.is_deleting(export)

    @property
    def settled(self) -> bool:
        """Whether it is known of all claimed resources if they are served."""
        return all(one.settled for one in self._claims.values())

    @property
    def kinds(self) -> list[Kind]:
        return [one.pair.kind for one in self._instances.values()]

    def missing(self, binding: str) -> Sequence[str]:
        """Return the objects that a binding needs and that could not be read yet."""
        running = self._instances.get(binding)
        return () if running is None else running.missing

    def began(self, binding: str) -> float | None:
        """Return when a binding's sync began, by the monotonic clock; None where there is none."""
        running = self._instances.get(binding)
        return None if running is None else running.began

    def problems(self, binding: str) -> Sequence[str]:
        """Return why claims of a binding are not followed."""
        wanted = self._wanted.get(binding)
        found = [self._claims.get(_kind(rule)) for rule in wanted.rules] if wanted else []
        sentences = [sentence for one in found if one is not None for sentence in one.problems]
        return list(dict.fromkeys(sentences))

    def claim_of(self, app_namespace: str, origin: Manifest) -> tuple[Kind, Manifest] | None:
        """Return the claim whose copy owns an object, with its kind."""
        for owner in manifest.get_maps(origin, "metadata", "ownerReferences"):
            for one in self._instances.values():
                of_kind = manifest.get_text(owner, "apiVersion").startswith(f"{one.kind.group}/")
                if of_kind and one.kind.kind == owner.get("kind"):
                    claim = one.here.get(app_namespace, manifest.get_text(owner, "name"))
                    return None if claim is None else (one.kind, claim)
        return None

    def beside(self, kind: Kind, claim: Manifest | None) -> Sequence[Step] | None:
        """Return the deletions of what came for a claim without its copy; None: not known yet."""
        if claim is None or not (kind.namespaced and manifest.is_deleting(claim)):
            return ()
        found = [
            one.sync.beside(kind, claim) if one.sync else (() if one.settled else None)
            for one in self._claims.values()
        ]
        return None if None in found else [step for steps in found for step in steps or ()]

    def has_copies(self, app_namespace: str) -> bool:
        """Return whether bound copies belong to an app namespace, or may do."""
        return any(one.has_copies(app_namespace) for one in self._instances.values())

    def vouches(self, app_namespace: str) -> bool:
        """Return whether an app namespace has an object whose counterpart is behind its mapping."""
        every = (*self._instances.values(), *self._running())
        try:
            return any(one.vouches(app_namespace) for one in every)
        except Oversized:
            return False

    def are_stamped(self, app_namespace: str) -> bool:
        """Return whether each copy behind a mapping is known to have its claim's uid."""
        return all(one.are_stamped(app_namespace) for one in self._instances.values())

    def has_brought(self, app_namespace: str) -> bool:
        """Return whether claimed objects were brought to or from an app namespace, or may have."""
        return any(one.has_brought(app_namespace) for one in self._running())

    def enqueue_everything(self) -> None:
        for one in self._instances.values():
            one.enqueue_everything()
        self.look_again("")

    def look_again(self, app_namespace: str) -> None:
        """Have all looked at that may come down into an app namespace, or may no more."""
        for sync in self._running():
            sync.enqueue_all(app_namespace) if app_namespace else sync.enqueue_everything()

    def _running(self) -> list[PermissionClaims]:
        return [claim.sync for claim in self._claims.values() if claim.sync is not None]

    async def _regroup(self) -> None:
        """Give each claimed kind the rules of all bindings; one worker set serves them."""
        rules: dict[Kind, list[Rule]] = {}
        for wanted in self._wanted.values():
            for rule in wanted.rules:
                rules.setdefault(_kind(rule), []).append(rule)
        for kind in self._claims.keys() - rules.keys():
            del self._claims[kind]
            await self.end(_name(kind))
        for kind, all_of_it in rules.items():
            claim = self._claims.get(kind)
            if claim is None:
                claim = self._claims[kind] = ClaimedResource(kind, self._link, self)
                self.start_worker(_name(kind), claim)
            claim.follow(all_of_it)


def _kind(rule: Rule) -> Kind:
    return Kind(rule.group, rule.version, "", rule.resource)


def _name(kind: Kind) -> str:
    return f"claims/{kind.resource}/{kind.version}"
