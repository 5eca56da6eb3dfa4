"""What all parts of one konnector process work with."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from reconciler.controller.clock import Clock
from reconciler.controller.executor import Executor
from reconciler.controller.metrics import Metrics
from reconciler.controller.program import Runtime
from reconciler.kube.cache.read_your_writes import Bodies
from reconciler.kube.cache.store import Store
from reconciler.kube.cluster import Cluster

# Opens a way with the kubeconfig in a Secret; `name` is what the cluster is called. It is not
# used before the first call. Raises ConfigError.
Connect: TypeAlias = Callable[[bytes, str], Cluster]


@dataclass(frozen=True, slots=True)
class Tools:
    """The app cluster with the views of it that all share, and what writes, tells and counts.

    Of Namespaces and CRDs only metadata are held (H28); `bodies` are those of the CRDs.
    `own_namespace` is where the konnector runs in the app cluster, "" where it does elsewhere.
    `orphan_grace` is how long after an orphan is deleted unconfirmed, None: never.
    """

    app: Cluster
    namespaces: Store
    crds: Store
    bodies: Bodies
    connect: Connect
    runtime: Runtime
    workers: int
    control_plane_mode: bool
    own_namespace: str
    orphan_grace: timedelta | None = None

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self.runtime.clock

    @property
    def metrics(self) -> Metrics:
        """What is counted."""
        return self.runtime.metrics

    def executor(self, *clusters: Cluster) -> Executor:
        """Return what carries decisions out in the app cluster and in these clusters."""
        return self.runtime.executor(self.app, *clusters)
