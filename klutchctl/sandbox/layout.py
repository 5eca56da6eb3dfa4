"""Where one sandbox keeps its files. Decides paths only; reads and writes nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.errors import ConfigError

DEFAULT = "default"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder of one sandbox. `root` is absolute and free of symbolic links.

    The servers' arguments name files below `root`: this is how they are recognised later.
    """

    root: Path

    def command(self, words: str) -> str:
        """Return `klutchctl sandbox WORDS` as a person types it for this sandbox and no other."""
        name = "" if self.root.name == DEFAULT else f" --name {self.root.name}"
        return f"`klutchctl sandbox {words}{name}`"

    @property
    def removal(self) -> str:
        """Tell how to begin anew, where nothing else helps."""
        return f"{self.command('down --delete')} removes the sandbox with its data"

    @property
    def state_file(self) -> Path:
        """Ports and clusters."""
        return self.root / "state.json"

    @property
    def kubeconfig(self) -> Path:
        """One context per cluster, for people."""
        return self.root / "kubeconfig"

    @property
    def etcd_data(self) -> Path:
        """What every cluster stores. Losing it is losing the sandbox."""
        return self.root / "etcd" / "data"

    @property
    def etcd_pki(self) -> Path:
        """Certificates that only etcd and the API servers use."""
        return self.root / "etcd" / "pki"

    @property
    def logs(self) -> Path:
        """One file per server; `.previous` holds the run before."""
        return self.root / "logs"

    @property
    def services(self) -> Path:
        """Everything of what runs beside the clusters, but its logs."""
        return self.root / "services"

    @property
    def services_kubeconfig(self) -> Path:
        """For services: the control plane alone, as an administrator."""
        return self.services / "kubeconfig"

    @property
    def postgresql_address(self) -> Path:
        """For services: one line, the address of PostgreSQL with its superuser's password."""
        return self.services / "postgresql.address"

    @property
    def postgresql_password(self) -> Path:
        """The password of PostgreSQL's superuser, made with its data."""
        return self.services / "postgresql.password"

    def program_data(self, name: str) -> Path:
        """What a program of the services keeps."""
        return self.services / "data" / name

    @property
    def lock_file(self) -> Path:
        """Beside the folder, so that it outlives `down --delete`."""
        return self.root.parent / f".{self.root.name}.lock"

    def cluster(self, cluster_id: str) -> Path:
        """Everything of one cluster but its data and logs."""
        return self.root / "clusters" / cluster_id

    def pki(self, cluster_id: str) -> Path:
        """The certificates of one cluster."""
        return self.cluster(cluster_id) / "pki"


def check_name(name: str) -> None:
    """Raise ConfigError if no sandbox can have this name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot name a sandbox",
            where="--name",
            hint="Use up to 40 lower case letters, digits and dashes",
        )


def named(name: str, *, state_home: Path) -> Layout:
    """Return the layout of the sandbox `name`. Raises ConfigError for an unusable name."""
    check_name(name)
    return Layout((state_home / "klutchctl" / "sandbox").resolve() / name)
