"""Which clusters are meant and how they are reached, as global options say it: one value."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from klutchctl.settings import Settings
    from reconciler.fleet.documents.service_models import Selector
    from reconciler.kube.registry import Surroundings
    from reconciler.observe import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Times are in seconds; `qps` and `burst` hold for each cluster, `timeout` for all its reads.

    `kubeconfig` None: the files of $KUBECONFIG, else ~/.kube/config. `allow_unreachable`: not
    to have read every cluster is no failure. `clusters` and `selector` both narrow which app
    clusters are meant; empty and None are all of them (`repository.chosen`).
    """

    clusters: tuple[str, ...] = ()
    selector: "Selector | None" = None
    kubeconfig: str | None = None
    parallelism: int = 32
    qps: float = 100.0
    burst: int = 300
    timeout: float = 60.0
    connect_timeout: float = 10.0
    deny_networks: tuple[str, ...] = ()
    allow_networks: tuple[str, ...] = ()
    allow_unreachable: bool = False

    def pace(self) -> "Pace":
        """Return how many clusters are read at once, and for how long each."""
        from reconciler.observe import Pace

        return Pace(parallelism=self.parallelism, timeout=self.timeout)

    def surroundings(self, settings: "Settings") -> "Surroundings":
        """Return where access leads from here. Raises ConfigError."""
        from reconciler.kube import host, kubeconfig, networks
        from reconciler.kube.limits import Limits
        from reconciler.kube.registry import Surroundings

        environ = settings.environ
        return Surroundings(
            kubeconfigs=kubeconfig.search_paths(
                self.kubeconfig, environ=environ, home=host.home_directory()
            ),
            environ=environ,
            limits=Limits(
                qps=self.qps,
                burst=self.burst,
                connect_timeout=min(self.connect_timeout, self.timeout),
                deadline=self.timeout,
            ),
            networks=networks.of_flags(
                self.allow_networks,
                self.deny_networks,
                in_cluster=networks.IN_CLUSTER in environ,
            ),
        )


def selector(text: str | None) -> "Selector | None":
    """Return what --selector means. Raises typer.BadParameter."""
    if text is None:
        return None
    from reconciler.core.errors import ConfigError
    from reconciler.fleet import reference_index

    try:
        return reference_index.parse_label_query(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="'--selector' / '-l'") from None


def set_on(context: typer.Context, options: ClusterOptions) -> None:
    """Hand the global options to the command that follows."""
    context.meta[__name__] = options


def of(context: typer.Context) -> ClusterOptions:
    """Return the global options of this run."""
    options = context.meta[__name__]
    assert isinstance(options, ClusterOptions)
    return options
