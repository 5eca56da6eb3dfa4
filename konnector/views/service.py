"""The views of one kind on the control plane: one for each service namespace of a space.

That is as far as the rights of a konnector go (A.8), and no further than its own objects: a view
of all namespaces would hold those of every other tenant. Namespaces come and go with the homes.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from konnector.namespace.mapping import Homes
from reconciler.controller.metrics import Metrics
from reconciler.controller.supervisor import TaskSupervisor
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.read_your_writes import ReadYourWrites
from reconciler.kube.cache.store import Index, Trim
from reconciler.kube.cluster import Cluster

NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class Sort:
    """What is viewed, and what of it is kept.

    `deleted(app namespace, object)` is called for each object that a watch saw deleted.
    """

    kind: Kind
    trim: Trim
    indexes: Mapping[str, Index]
    deleted: Callable[[str, Manifest], None] = lambda _, __: None


class ServiceViews:
    """Follows the homes. `wake(app namespace, name)` is told of each object that changed since.

    `ready(app namespace)` is told when all objects of its service namespace were seen.
    """

    def __init__(
        self,
        cluster: Cluster,
        sort: Sort,
        homes: Homes,
        metrics: Metrics,
        *,
        wake: Callable[[str, str], None],
        ready: Callable[[str], None],
    ) -> None:
        self._cluster, self._sort, self._homes, self._metrics = cluster, sort, homes, metrics
        self._wake, self._ready = wake, ready
        self._supervisor = TaskSupervisor()
        # By app namespace, with its service namespace.
        self._views: dict[str, tuple[str, ReadYourWrites]] = {}

    def of(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the view for an app namespace; None until its objects were seen."""
        held = self._views.get(app_namespace)
        if held is None or held[0] != self._homes.service(app_namespace):
            return None
        return held[1] if held[1].view.synced else None

    def all(self) -> dict[str, ReadYourWrites]:
        """Return the views whose objects were seen, by app namespace."""
        found = {app: self.of(app) for app in self._views}
        return {app: recent for app, recent in found.items() if recent is not None}

    @property
    def missing(self) -> list[str]:
        """What could not be read yet, and why."""
        return [
            recent.view.trouble or f"{recent.view.ref}: not answered yet"
            for _, recent in self._views.values()
            if not recent.view.synced
        ]

    @property
    def troubles(self) -> list[str]:
        """Why views may be old, or cannot be had."""
        views = [recent.view for _, recent in self._views.values()]
        return [view.trouble for view in views if view.trouble]

    @property
    def pending(self) -> bool:
        """Whether what there is may still come to light: nothing is known to hinder it."""
        views = [recent.view for _, recent in self._views.values()]
        return any(not view.synced and not view.trouble for view in views)

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        unfollow = self._homes.follow(self._moved)
        try:
            for app in self._homes.all():
                self._moved(app)
            await self._supervisor.run()
        finally:
            unfollow()

    def _moved(self, app: str) -> None:
        """Take up, or give up, the view for an app namespace."""
        service = self._homes.service(app)
        held = self._views.get(app)
        if held is not None and held[0] != service:
            self._supervisor.drop(f"{app}/{held[0]}")
            del self._views[app]
            held = None
        if service and held is None:
            sort = self._sort
            view = Informer(
                self._cluster,
                sort.kind,
                namespace=service,
                indexes=sort.indexes,
                trim=sort.trim,
                deleted=lambda live: sort.deleted(app, live),
            )
            view.store.subscribe(NAME, lambda name: self._woken(app, view, name))
            self._views[app] = (service, ReadYourWrites(view))
            self._supervisor.start(f"{app}/{service}", lambda: self._follow(app, view))
        self._ready(app)

    def _woken(self, app: str, view: Informer, name: str) -> None:
        if view.synced:  # else `ready` follows
            self._wake(app, name)

    async def _follow(self, app: str, view: Informer) -> None:
        uncounted = self._metrics.watch(view)
        greeting = asyncio.create_task(self._greet(app, view))
        try:
            await view.run()
        finally:
            greeting.cancel()
            uncounted()

    async def _greet(self, app: str, view: Informer) -> None:
        await view.wait_synced()
        self._ready(app)


class ClusterView:
    """The view of a cluster-scoped kind, with the face of ServiceViews; its namespace is ""."""

    def __init__(
        self,
        cluster: Cluster,
        sort: Sort,
        metrics: Metrics,
        *,
        wake: Callable[[str, str], None],
        ready: Callable[[str], None],
    ) -> None:
        self._view = Informer(
            cluster,
            sort.kind,
            indexes=sort.indexes,
            trim=sort.trim,
            deleted=lambda live: sort.deleted("", live),
        )
        self._recent = ReadYourWrites(self._view)
        self._view.store.subscribe(NAME, self._woken)
        self._metrics, self._wake, self._ready = metrics, wake, ready
        self._supervisor = TaskSupervisor()
        self._supervisor.start("view", self._view.run)
        self._supervisor.start("greeting", self._greet)

    def of(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the view; None until its objects were seen."""
        return self._recent if self._view.synced and not app_namespace else None

    def all(self) -> dict[str, ReadYourWrites]:
        """Return the view under its namespace, if its objects were seen."""
        return {"": self._recent} if self._view.synced else {}

    @property
    def missing(self) -> list[str]:
        """What could not be read yet, and why."""
        view = self._view
        return [] if view.synced else [view.trouble or f"{view.ref}: not answered yet"]

    @property
    def troubles(self) -> list[str]:
        """Why the view may be old, or cannot be had."""
        return [self._view.trouble] if self._view.trouble else []

    @property
    def pending(self) -> bool:
        """Whether what there is may still come to light: nothing is known to hinder it."""
        return not self._view.synced and not self._view.trouble

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        uncounted = self._metrics.watch(self._view)
        try:
            await self._supervisor.run()
        finally:
            uncounted()

    def _woken(self, name: str) -> None:
        if self._view.synced:  # else `ready` follows
            self._wake("", name)

    async def _greet(self) -> None:
        await self._view.wait_synced()
        self._ready("")
