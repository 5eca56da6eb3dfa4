"""Which app cluster and which space these are, and so what may be deleted and made again."""

from collections.abc import Callable, Iterable
from datetime import datetime

from konnector.decisions import guard
from konnector.decisions.guard import Count, Identity
from reconciler.core import keys, names
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest, uid_of
from reconciler.core.refs import NAMESPACE, Kind, Ref
from reconciler.kube.cluster import Reader
from reconciler.kube.store import Store


class Guardian:
    """The guards of one space (mapping.md 10). `secrets` are those that hold its kubeconfig.

    `changed` is called when there is something new to say in the ClusterBinding.
    """

    def __init__(  # noqa: PLR0913 - each is known to another part of the program
        self,
        app: Reader,
        plane: Reader,
        space: str,
        *,
        mappings: Store,
        cluster_bindings: Store,
        secrets: Callable[[], Iterable[Manifest]],
        now: Callable[[], datetime],
        changed: Callable[[], None],
    ) -> None:
        self._app, self._plane, self._space = app, plane, space
        self._mappings, self._cluster_bindings = mappings, cluster_bindings
        self._secrets, self._now, self._changed = secrets, now, changed
        self.app_cluster_uid = ""
        self.space_uid = ""
        self._copies: dict[str, Count] = {}
        self._claims: dict[str, Count] = {}

    async def look(self) -> None:
        """Read which clusters these are. Raises ClusterErrors, and keeps what was known then."""
        system = await self._app.get(
            Ref(self._app.name, NAMESPACE, "", names.KUBE_SYSTEM), metadata_only=True
        )
        space = await self._plane.get(
            Ref(self._plane.name, NAMESPACE, "", self._space), metadata_only=True
        )
        self.app_cluster_uid = uid_of(system or {})
        self.space_uid = uid_of(space or {})

    @property
    def identity(self) -> Identity:
        """Return what is known, and what was recorded."""
        return Identity(
            self._space,
            self.app_cluster_uid,
            guard.recorded(self._mappings.all(), keys.APP_CLUSTER_UID),
            self.space_uid,
            guard.recorded(self._secrets(), keys.SPACE_UID),
        )

    @property
    def confirmed(self) -> bool:
        """Whether a person allowed a mass delete."""
        allowed = guard.confirmations_of(self._cluster_binding)
        return guard.is_confirmed(allowed.mass_delete, self._now())

    def deletes_held(self, kind: Kind, count: Callable[[], tuple[int, int]] | None) -> str:
        """Return why nothing may be deleted on the control plane, or ""."""
        lost, bound = (0, 0) if count is None else count()
        return self.deletes_of(Count(kind.resource, lost, bound), noted=count is not None)

    def deletes_of(self, count: Count, *, noted: bool = True) -> str:
        """Return why nothing of the counted objects may be deleted, or ""."""
        if noted:
            self._note(self._copies, count)
        allowed = guard.confirmations_of(self._cluster_binding)
        return guard.deletes(self.identity, count, confirmations=allowed, now=self._now())

    def creates_held(self, kind: Kind, count: Callable[[], tuple[int, int]]) -> str:
        """Return why a lost copy may not be made again, or ""."""
        counted = Count(kind.resource, *count())
        self._note(self._claims, counted)
        allowed = guard.confirmations_of(self._cluster_binding)
        return guard.recreations(self.identity, counted, confirmations=allowed, now=self._now())

    def told(self, cluster_binding: Manifest) -> Decision:
        """Return what the ClusterBinding has to say of all this."""
        seen = guard.Seen(
            cluster_binding,
            self.identity,
            copies=tuple(self._copies.values()),
            claims=tuple(self._claims.values()),
        )
        return guard.told(seen, now=self._now())

    def forget(self, kind: Kind) -> None:
        """Forget what was counted of a kind that is synced no more."""
        self._copies.pop(kind.resource, None)
        self._claims.pop(kind.resource, None)

    @property
    def _cluster_binding(self) -> Manifest | None:
        return self._cluster_bindings.get(self._space, names.CLUSTER_BINDING)

    def _note(self, counts: dict[str, Count], count: Count) -> None:
        before = counts.get(count.what)
        counts[count.what] = count
        if (before is not None and before.is_mass) != count.is_mass:
            self._changed()
