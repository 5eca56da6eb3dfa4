"""Classifies deletions of claims: intended, one of too many, or a consequence.

A deleted CRD takes all claims of its kind along, which hardly anybody means (T11). A deleted
Namespace does so too, and is a clear wish, unless many go at once.
"""

from datetime import timedelta

from konnector.claim.copies import InstanceTerms, Pair
from konnector.claim.decide import Seen
from konnector.context import SOON, Early, SyncContext
from konnector.mass_loss import decide, rules
from konnector.mass_loss.waves import ClaimDeletions
from reconciler.core.manifest import Manifest, is_deleting, name_of, uid_of
from reconciler.core.refs import CRD, NAMESPACE, Kind, Ref
from reconciler.kube.store import Store


class Deletions:
    """Asks about deletions of the claims of one kind, which have the CLAIM_INDEXES."""

    def __init__(self, pair: Pair, link: SyncContext, claims: Store) -> None:
        self._pair, self._link, self._resource = pair, link, pair.kind.resource
        self._namespaces = link.guards.ending_namespaces
        self._namespaces.follow(self._resource, claims)
        self._single = ClaimDeletions(claims, self._namespaces)

    async def guard(self, seen: Seen, claim: Manifest, terms: InstanceTerms) -> str:
        """Return why the copy of a claim that is being deleted is kept, or "".

        Raises Early while it is not known how many go, or not recorded, and where the app cluster
        was set back to when the claim was not being deleted, and ClusterErrors.
        """
        if not (why := await self._why(seen, claim, terms)):
            app = self._link.agent.app
            live = await app.get(Ref(app.name, self._pair.kind, *seen.place), metadata_only=True)
            if not live or uid_of(live) != uid_of(claim) or not is_deleting(live):
                raise Early(SOON)
        return why

    async def _why(self, seen: Seen, claim: Manifest, terms: InstanceTerms) -> str:
        if (guards := self._link.guards).mass_delete_confirmed:
            return ""
        if self._pair.is_part(seen.copy):
            return self._mass(f"{'/'.join(filter(None, seen.place))} is a part of a service")
        if (hesitates := guards.deletes_in()) is not None:
            raise Early(hesitates)  # until then, the former process may still count some
        # A view is enough to keep a copy. To delete one, both sides are asked.
        shown = None if terms.drains else self._namespaces.shown(seen.place.namespace)
        why = self._with_namespace(shown, claim, terms.few)
        if not why or await guards.is_being_deleted(self._resource):
            why = "" if terms.drains else await self._of_many(seen, claim, terms.few)
            is_uncounted = not why and guards.forgets(claim)
            if is_uncounted and not await guards.is_being_deleted(self._resource):
                raise Early(guards.count(), f"its deletion is to be counted first: {guards.beat}")
            crd = await self._read(CRD, self._resource)
            if crd is None or is_deleting(crd):
                # It is on its way out before its claims are, but the view of it may be behind.
                crd_name = f"CustomResourceDefinition {self._resource}"
                return self._mass(f"{crd_name} is being deleted in the app cluster")
        return "" if why and await guards.is_being_deleted(self._resource) else why

    async def _of_many(self, seen: Seen, claim: Manifest, few: int) -> str:
        """Return why a deletion is one of more at once than can be meant, or ""."""
        if rules.was_guarded(seen.copy, claim, few):
            return self._mass("they were deleted at once with others, and kept since then")
        name = seen.place.namespace
        if self._namespaces.shown(name) is None and not self._single.too_many(claim, few):
            return ""
        why = self._with_namespace(await self._read(NAMESPACE, name) if name else None, claim, few)
        if why is not None or not self._single.too_many(claim, few):
            return why or ""
        return self._mass("more than half of them were deleted within a minute")

    def _mass(self, why: str) -> str:
        return decide.mass_deletion(self._resource, why, self._pair.space)

    def _with_namespace(self, namespace: Manifest | None, claim: Manifest, few: int) -> str | None:
        """Return why a claim is kept that its Namespace takes along, or ""; None: it does not.

        Raises Early while it is not known how many Namespaces go.
        """
        if namespace is None or not self._asks_for(namespace, claim):
            return None
        if (wait := self._namespaces.wait(namespace)) > timedelta():
            raise Early(wait)
        too_many = self._namespaces.too_many(namespace, few)
        return decide.many_namespaces(self._pair.space) if too_many else ""

    def _asks_for(self, namespace: Manifest, claim: Manifest) -> bool:
        """Return whether a claim goes with its Namespace, which somebody deletes on purpose."""
        binding = self._link.callbacks.binding(self._resource)
        mapping = self._link.mappings.get(name_of(namespace))
        is_bound = binding is not None and not is_deleting(binding)
        return is_bound and rules.goes_with(namespace, mapping, claim)

    async def _read(self, kind: Kind, name: str) -> Manifest | None:
        agent = self._link.agent
        return await agent.looks.metadata(Ref(agent.app.name, kind, "", name))
