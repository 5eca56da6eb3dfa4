"""Makes the objects of a bind in the app cluster: from the Namespace to a Ready binding.

Reads the present objects, and executes the decisions of `decisions` and `konnector`. Repeatable.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, assert_never

from klutchctl.binding import Rights, decisions, konnector, response
from klutchctl.binding.decisions import CreateSecret, KeepSecret, RefreshSecret, SecretStep
from klutchctl.binding.progress import BindEnded, NotInTime, Progress
from klutchctl.binding.response import Wanted, until
from klutchctl.binding.signed_in import DRY_RUN, cluster_id
from reconciler import api
from reconciler.blueprints import objects
from reconciler.blueprints.policies import Policy
from reconciler.core import keys, manifest, names, refs
from reconciler.core.errors import AlreadyExists, ClusterError, Conflict, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource, Kind, Ref
from reconciler.core.times import format_time
from reconciler.kube.cluster import Cluster

_MANAGER: Final = keys.MANAGER_BIND
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """The state before the first write.

    `bindings` are all live ones by name; `namespaced` is the live scope of their kind. `policies`
    tells whether there can be admission policies.
    """

    deployment: Manifest | None
    bindings: Mapping[str, Manifest] = field(default_factory=dict)
    namespaced: bool = True
    policies: bool = True

    def binding(self, resource: GroupResource) -> Manifest | None:
        return self.bindings.get(resource.name)


class AppCluster:
    """The app cluster that is bound."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self._cluster, self._progress = cluster, progress

    async def identity(self, *, write: bool) -> str:
        """Return the cluster id; Namespace klutch-bind is made where absent, if `write`.

        Raises ClusterErrors.
        """
        ref = self._ref(refs.NAMESPACE, "", names.KLUTCH_NAMESPACE)
        live = await self._cluster.get(ref)
        if live is None and not write:
            return DRY_RUN
        if live is None:
            made = objects.namespace(names.KLUTCH_NAMESPACE)
            try:
                live = await self._cluster.create(made, refs.NAMESPACE, manager=_MANAGER)
                self._progress.report("namespace")
            except AlreadyExists:
                live = await self._cluster.get(ref)
        return cluster_id(manifest.uid_of(live or {}))

    async def seen(self) -> Seen:
        """Return the konnector and the bindings of the app cluster. Raises ClusterErrors."""
        deployment = await self._cluster.get(
            self._ref(refs.DEPLOYMENT, names.KLUTCH_NAMESPACE, names.KONNECTOR)
        )
        policies = await self._served(refs.ADMISSION_POLICY) is not None
        kind = await self._binding_kind()
        if kind is None:
            return Seen(deployment, policies=policies)
        place = names.KLUTCH_NAMESPACE if kind.namespaced else ""
        found = await self._cluster.list(kind, namespace=place)
        bindings = {manifest.name_of(one): one for one in found.items}
        return Seen(deployment, bindings, kind.namespaced, policies)

    async def secret_step(self, content: bytes, used: Collection[str]) -> SecretStep:
        """Return the step by which a Secret holds the kubeconfig. Raises ClusterErrors."""
        found = await self._cluster.list(refs.SECRET, namespace=names.KLUTCH_NAMESPACE)
        return decisions.secret_step(found.items, content, used)

    async def put_secret(self, content: bytes, used: Collection[str]) -> str:
        """Keep the kubeconfig in a Secret, and return its name. Raises ClusterErrors."""
        remote = response.remote_of(content)
        facts = {"host": remote.server, "namespace": remote.namespace}
        for _ in range(_TRIES):
            step = await self.secret_step(content, used)
            try:
                return await self._put(step, facts)
            except Conflict:
                continue
        raise BindEnded("another program changes the kubeconfig Secret in klutch-bind all the time")

    async def _put(self, step: SecretStep, facts: Mapping[str, str]) -> str:
        match step:
            case KeepSecret(name):
                return name
            case CreateSecret(wanted):
                made = await self._cluster.create(wanted, refs.SECRET, manager=_MANAGER)
                name, text = manifest.name_of(made), "secret-create"
            case RefreshSecret(name, patch):
                ref = self._ref(refs.SECRET, names.KLUTCH_NAMESPACE, name)
                await self._cluster.merge_patch(ref, patch, manager=_MANAGER)
                text = "secret-refresh"
            case _:
                assert_never(step)
        self._progress.report(text, name=name, **facts)
        return name

    async def install(
        self, decision: konnector.Decision, rights: Rights, served: Sequence[konnector.Served]
    ) -> None:
        """Install the konnector, with rights for its resources. Raises ClusterErrors."""
        rules = konnector.rules(served, rights)
        if decision.rights:
            if decision.policy:
                await self._bound(konnector.policy(served))
            await self._rights(decision, rules)
        if not decision.image:
            return
        ref = self._ref(refs.DEPLOYMENT, names.KLUTCH_NAMESPACE, names.KONNECTOR)
        live = await self._cluster.get(ref)
        if live is None:
            made = konnector.deployment(decision.image, rights)
            await self._cluster.create(made, refs.DEPLOYMENT, manager=_MANAGER)
        elif decision.fresh:
            return  # somebody else was quicker
        else:
            patch = konnector.image_patch(live, decision.image)
            await self._cluster.merge_patch(ref, patch, manager=_MANAGER)
        self._progress.report("konnector", image=decision.image)

    async def _bound(self, policy: Policy) -> None:
        """Put a policy in force; one that another program keeps stays as it is.

        Raises BindEnded where nothing enforces that, and ClusterErrors.
        """
        made, in_force = policy.manifests()
        try:
            await self._cluster.apply(made, refs.ADMISSION_POLICY, manager=_MANAGER, force=False)
        except Conflict:
            self._progress.report("policy-kept", name=policy.name)
        kind = refs.ADMISSION_POLICY_BINDING
        live = await self._cluster.apply(in_force, kind, manager=_MANAGER, force=True)
        if not policy.is_enforced_by(live):
            raise BindEnded(
                f"ValidatingAdmissionPolicyBinding {policy.name} narrows its policy; the konnector"
                " got no rights",
                hint="Delete it, and bind again; --no-policy does without",
            )

    async def _rights(self, decision: konnector.Decision, rules: Sequence[Manifest]) -> None:
        ref = self._ref(refs.CLUSTER_ROLE, "", names.KONNECTOR_CLUSTER_ROLE)
        live = await self._cluster.get(ref)
        if live is not None:
            if konnector.is_full(live) and not konnector.is_full({"rules": [*rules]}):
                self._progress.report("rights-full", name=ref.name)
            patch = konnector.widened(live, rules)
            if patch is not None:
                await self._cluster.merge_patch(ref, patch, manager=_MANAGER)
                self._progress.report("rights")
        elif decision.fresh:
            await self._cluster.create(konnector.role(rules), refs.CLUSTER_ROLE, manager=_MANAGER)
        if decision.fresh:
            await self._create_once(konnector.role_binding(), refs.CLUSTER_ROLE_BINDING)
            await self._create_once(konnector.account(), refs.SERVICE_ACCOUNT)

    async def _create_once(self, made: Manifest, kind: Kind) -> None:
        with contextlib.suppress(AlreadyExists):
            await self._cluster.create(made, kind, manager=_MANAGER)

    async def wait_for_api(self, *, seconds: float) -> Kind:
        """Return the kind of bindings, once the konnector has installed its CRD.

        Raises NotInTime (F29) and ClusterErrors.
        """
        kind = await self._binding_kind()
        if kind is None:
            self._progress.report("waiting")
            kind = await until(self._binding_kind, seconds=seconds)
        if kind is None:
            raise NotInTime(
                f"no konnector has installed the CRD of APIServiceBindings within {seconds:.0f} s",
                hint="See whether Deployment klutch-bind/konnector runs, and bind again",
            )
        return kind

    async def bind(
        self, wanted: Wanted, claims: Sequence[Manifest], *, secret: str, kind: Kind
    ) -> None:
        """Bind a resource; a binding of this provider that is there stays as it is.

        Raises BindEnded for one of another provider, and ClusterErrors.
        """
        name = wanted.resource.name
        place = names.KLUTCH_NAMESPACE if kind.namespaced else ""
        live = await self._cluster.get(self._ref(kind, place, name))
        if live is not None:
            crd = await self._cluster.get(self._ref(refs.CRD, "", name))
            decisions.require_provider(live, secret=secret)
            decisions.require_own_crd(live, crd)
            self._progress.report("bound-already", name=name)
            if unanswered := decisions.unanswered(live, wanted):
                self._progress.report("unanswered", kinds=", ".join(unanswered))
            return
        made = decisions.new_binding(wanted, claims, secret=secret, namespaced=kind.namespaced)
        live = await self._cluster.create(made, kind, manager=_MANAGER)
        await self._note_pending(live, kind)
        self._progress.report("bound", name=name)

    async def _note_pending(self, binding: Manifest, kind: Kind) -> None:
        """Report the wait for its konnector, unless the konnector already reported more."""
        ref = manifest.ref_of(self._cluster.name, kind, binding)
        patch = decisions.pending(binding, format_time(datetime.now(UTC)))
        with contextlib.suppress(ClusterError):
            await self._cluster.merge_patch(ref, patch, manager=_MANAGER, subresource="status")

    async def wait_ready(self, resource: GroupResource, kind: Kind, *, seconds: float) -> None:
        """Wait until a binding is Ready; show each error once. Raises NotInTime, ClusterErrors."""
        last: Manifest | None = None
        shown = {""}

        async def look() -> Manifest | None:
            nonlocal last
            last = await self.binding(resource, kind)
            if (error := decisions.error_of(last)) not in shown:
                shown.add(error)
                self._progress.report("note", text=f"{resource.name} is not Ready: {error}")
            return last if decisions.is_ready(last) else None

        if await until(look, seconds=seconds) is None:
            why = decisions.why_not_ready(last)
            raise NotInTime(f"{resource.name} is not Ready after {seconds:.0f} s: {why}")
        self._progress.report("ready", name=resource.name)

    async def binding(self, resource: GroupResource, kind: Kind) -> Manifest | None:
        """Return a live binding. Raises ClusterErrors."""
        place = names.KLUTCH_NAMESPACE if kind.namespaced else ""
        return await self._cluster.get(self._ref(kind, place, resource.name))

    async def _binding_kind(self) -> Kind | None:
        return await self._served(api.API_SERVICE_BINDING)

    async def _served(self, kind: Kind) -> Kind | None:
        try:
            return await self._cluster.kind(kind.group, kind.version, kind.plural)
        except NotServed:
            return None

    def _ref(self, kind: Kind, namespace: str, name: str) -> Ref:
        return Ref(self._cluster.name, kind, namespace, name)
