"""What the user says by global options, and the environment by variables: one value."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.core.errors import HostError

if TYPE_CHECKING:
    import typer

    from reconciler.fleet.documents.service_models import Selector
    from reconciler.kube.registry import Surroundings
    from reconciler.observe import Pace


@dataclass(frozen=True, slots=True)
class Settings:
    """How this run behaves, and how clusters are reached. `environ` is for programs, too.

    Times are in seconds; `qps` and `burst` hold for each cluster, `timeout` for all its reads.
    `git_owner_check`: a checkout that belongs to another user is refused. `clusters` and `selector`
    both narrow which app clusters are meant; empty and None are all of them (`repository.chosen`).
    `kubeconfig` None: the files of $KUBECONFIG, else ~/.kube/config. `allow_unreachable`: not to
    have read every cluster is no failure.
    """

    environ: Mapping[str, str]
    _: KW_ONLY
    verbose: bool = False
    no_color: bool = False
    git_owner_check: bool = True
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

    @property
    def color(self) -> bool:
        """Tell whether colours are wanted (https://no-color.org)."""
        return not (self.no_color or self.environ.get("NO_COLOR"))

    @property
    def state_home(self) -> Path:
        """What a run leaves for the next one. Raises HostError where no folder can be told."""
        return _base("XDG_STATE_HOME", ".local/state", self.environ)

    @property
    def cache_home(self) -> Path:
        """What can be made again. Raises HostError where no folder can be told."""
        return _base("XDG_CACHE_HOME", ".cache", self.environ)

    def pace(self) -> "Pace":
        """Return how many clusters are read at once, and for how long each."""
        from reconciler.observe import Pace

        return Pace(parallelism=self.parallelism, timeout=self.timeout)

    def surroundings(self) -> "Surroundings":
        """Return where access leads from here. Raises ConfigError."""
        from reconciler.kube import host, kubeconfig, networks
        from reconciler.kube.limits import Limits
        from reconciler.kube.registry import Surroundings

        return Surroundings(
            kubeconfigs=kubeconfig.search_paths(
                self.kubeconfig, environ=self.environ, home=host.home_directory()
            ),
            environ=self.environ,
            limits=Limits(
                qps=self.qps,
                burst=self.burst,
                connect_timeout=min(self.connect_timeout, self.timeout),
                deadline=self.timeout,
            ),
            networks=networks.of_flags(
                self.allow_networks,
                self.deny_networks,
                in_cluster=networks.IN_CLUSTER in self.environ,
            ),
        )


def of(context: "typer.Context") -> Settings:
    """Return the settings of this run."""
    settings = context.obj
    assert isinstance(settings, Settings)
    return settings


def _base(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    """XDG Base Directory Specification: what is not absolute counts as unset."""
    value = Path(environ.get(variable, ""))
    return value if value.is_absolute() else _home(variable, environ) / default


def _home(variable: str, environ: Mapping[str, str]) -> Path:
    """Return the user's home. Raises HostError where HOME is not an absolute path."""
    said = environ.get("HOME")
    if said is not None and not Path(said).is_absolute():
        problem = f"HOME is {said!r}, which is no absolute path"
    else:
        try:
            return Path.home()
        except RuntimeError:
            problem = "HOME is not set, and this user has no entry that tells it"
    raise HostError(problem, hint=f"Set HOME, or {variable} to an absolute path")
