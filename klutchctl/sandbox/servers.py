"""What a sandbox runs: processes as values, and how to tell whether each one works. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class HttpsProbe:
    """Ready once GET https://127.0.0.1:`port``path` answers 200."""

    port: int
    path: str
    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """Ready once GET http://127.0.0.1:`port``path` answers 200."""

    port: int
    path: str


@dataclass(frozen=True, slots=True)
class PostgresqlProbe:
    """Ready once the PostgreSQL server at 127.0.0.1:`port` lets clients log in."""

    port: int


@dataclass(frozen=True, slots=True)
class LifeProbe:
    """Ready once the process has run for `seconds`: it says nothing about itself."""

    seconds: float


Probe: TypeAlias = HttpsProbe | HttpProbe | PostgresqlProbe | LifeProbe


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and group to run as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a process that is known by a mark in its environment.

    It need not name a file of the sandbox in its arguments, and may run as another user: `owner`.
    `folder` is the working folder.
    """

    executable: Path
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """One process that should run, of a cluster or, with `cluster_id` "", for all of them.

    `identity` is an argument that no other process has; where the process has a mark, it is what
    the mark says. `launch` is None for the servers of the clusters, and where it is unknown.
    """

    name: str
    program: str
    cluster_id: str
    arguments: tuple[str, ...]
    identity: str
    log: Path
    ports: tuple[int, ...]
    probe: Probe
    launch: Launch | None = None

    @property
    def digest(self) -> str:
        """A text that changes with the whole command: it is "" for one without a mark."""
        if self.launch is None:
            return ""
        command = (str(self.launch.executable), *self.arguments)
        environment = sorted(self.launch.environment.items())
        facts = json.dumps((command, str(self.launch.folder), environment))
        return hashlib.sha256(facts.encode()).hexdigest()[:16]
