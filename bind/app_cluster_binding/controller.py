"""Reconciles AppClusterBindings."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from bind.app_cluster_binding import decide
from bind.app_cluster_binding.facts import Seen, Space, Terms
from bind.informers import NAME, OWNER, RESOURCE, SOURCE, SPACE, Informers, index_key
from reconciler.api import APP_CLUSTER_BINDING, secret_of
from reconciler.controller.controller import ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.core import names, refs
from reconciler.core.decision import Decision, preconditions_of
from reconciler.core.manifest import Manifest, is_deleting, ref_of
from reconciler.core.refs import Kind, ObjectKey, Ref

_SOON: Final = timedelta(seconds=1)  # where the view lags, and its event is yet to come


class AppClusterBindings(ObjectReconciler[ObjectKey, Seen]):
    """The controller `appclusterbinding` of protocol-bind.md C.6."""

    def __init__(self, informers: Informers, executor: Executor, *, terms: Terms) -> None:
        self._bindings = informers.recent(informers.app_cluster_bindings)
        super().__init__(executor, self._bindings)
        self._informers, self._terms = informers, terms

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers, bindings = self._informers, self._informers.app_cluster_bindings
        bindings.subscribe_keys(queue.enqueue)
        informers.templates.subscribe(RESOURCE, enqueue_mapped(queue, bindings, RESOURCE))
        informers.secrets.subscribe_keys(enqueue_mapped(queue, bindings, SOURCE))
        informers.bindings.subscribe(OWNER, queue.enqueue)
        in_space = enqueue_mapped(queue, bindings, SPACE)
        informers.namespaces.subscribe(NAME, in_space)
        for view in (
            informers.cluster_bindings,
            informers.exports,
            informers.requests,
            informers.service_namespaces,
            informers.role_bindings,
            informers.bindings,
            informers.secrets,
            informers.accounts,
            informers.roles,
            informers.connector_bindings,
            informers.network_policies,
            informers.limit_ranges,
            informers.deployments,
        ):
            view.subscribe(SPACE, in_space)

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one AppClusterBinding and all that concerns it. Raises ClusterErrors."""
        live = self._bindings.get(*key)
        return None if live is None else (observed(self._bindings, live), await self._look(live))

    def decide(self, view: Seen, now: datetime) -> Decision:
        return decide.decide(view, terms=self._terms, now=now)

    async def decided(self, view: Seen) -> Decision:
        """Return the decision, unless it deletes and the view lags. Raises ClusterErrors."""
        decision = await super().decided(view)
        lags = decision.deletes and await self._has_changed(view.app_cluster_binding)
        return Decision(again=_SOON) if lags else decision

    async def _has_changed(self, live: Manifest) -> bool:
        """Return whether it has changed by now: others may have made the requested objects."""
        now = await self._informers.cluster.get(
            ref_of(self._informers.cluster.name, APP_CLUSTER_BINDING, live), metadata_only=True
        )
        return now is None or preconditions_of(now) != preconditions_of(live)

    async def _look(self, live: Manifest) -> Seen:
        informers = self._informers
        seen = Seen(app_cluster_binding=live)
        space = await self._space(seen)
        crd = self._ref(refs.CRD, "", APP_CLUSTER_BINDING.resource)
        return Seen(
            app_cluster_binding=live,
            source=await self._secret(*secret_of(live)),
            templates=[
                one
                for resource in seen.resources
                for one in informers.templates.by(RESOURCE, index_key(resource))
            ],
            space=space,
            deployments_served=informers.deployments_served,
            legacy=self._legacy(seen) if is_deleting(live) else (),
            left=""
            if space is None or space.account is not None or is_deleting(live)
            else await informers.left_in(space.namespace),
            kind_goes=is_deleting(live)
            and is_deleting(await informers.cluster.get(crd, metadata_only=True) or {}),
        )

    async def _secret(self, *place: str) -> Manifest | None:
        known = self._informers.secrets.get(*place) is not None
        return await self._informers.cluster.get(self._ref(refs.SECRET, *place)) if known else None

    async def _space(self, seen: Seen) -> Space | None:
        informers, space = self._informers, seen.space_name
        namespace = informers.namespaces.get("", space)
        if namespace is None:
            return None
        deployment = names.konnector_deployment(seen.place[1])
        known = informers.deployments.get(space, deployment)
        return Space(
            namespace=namespace,
            account=informers.accounts.get(space, names.BINDER),
            cluster_binding=informers.cluster_bindings.get(space, names.CLUSTER_BINDING),
            role=informers.roles.get(space, names.CONTROL_PLANE_CONNECTOR),
            role_binding=informers.connector_bindings.get(space, names.CONTROL_PLANE_CONNECTOR),
            network_policy=informers.network_policies.get(space, names.KONNECTOR),
            limit_range=informers.limit_ranges.get(space, names.KONNECTOR),
            # Read again, because informers drop managedFields.
            deployment=known
            and await informers.cluster.get(self._ref(refs.DEPLOYMENT, space, deployment)),
            secrets=(await informers.cluster.list(refs.SECRET, namespace=space)).items,
            bindings=informers.bindings.inside(space),
            exports=informers.exports.inside(space),
            requests=informers.requests.inside(space),
            service_namespaces=informers.service_namespaces.inside(space),
        )

    def _legacy(self, seen: Seen) -> Sequence[tuple[Kind, Manifest]]:
        """Return the objects that older backends made for it: all that bear the name."""
        informers, name = self._informers, names.legacy_konnector_cluster_role(*seen.place)
        views = (informers.cluster_role_bindings, informers.cluster_roles)
        return [(view.kind, live) for view in views if (live := view.get("", name)) is not None]

    def _ref(self, kind: Kind, namespace: str, name: str) -> Ref:
        return Ref(self._informers.cluster.name, kind, namespace, name)
