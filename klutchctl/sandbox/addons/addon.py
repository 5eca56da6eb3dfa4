"""The base of an add-on: an optional part of a sandbox."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from klutchctl.sandbox import binaries, processes, startup
from klutchctl.sandbox.recipes import Recipe
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Probe, Server
from klutchctl.sandbox.state import Layout, NewPorts, State
from klutchctl.settings import Settings

# What an add-on needs of this machine, such as executables: a type of each add-on's own.
Kit: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Request:
    """A call of `up`. `known` is the state before it.

    `chosen` has add-ons by their names: True to run them, False to end them, None to leave them as
    they are. The rest are values of options.
    """

    layout: Layout
    settings: Settings
    known: State | None
    chosen: Mapping[str, bool | None] = field(default_factory=dict)
    fleet: Path | None = None
    crossplane: str | None = None

    def workshop(self, recipe: Recipe, folder: str) -> binaries.Workshop:
        """Return where a recipe is made, and kept in a folder of our cache."""
        cache, environ = self.settings.cache_home, self.settings.environ
        return binaries.workshop(recipe, folder, cache_home=cache, environ=environ)

    def remembers(self, name: str) -> bool:
        """Return whether the sandbox has an add-on already."""
        return self.known is not None and getattr(self.known, name) is not None


@dataclass(frozen=True, slots=True)
class Run:
    """A sandbox whose clusters run, and whose files are written."""

    layout: Layout
    state: State
    progress: Progress

    def start(self, stage: Sequence[Server]) -> None:
        """Start the missing parts of a stage, and return when all of it is ready."""
        startup.ensure_running(self.layout, stage, {}, progress=self.progress)


def outline(
    layout: Layout, program: str, ports: Iterable[int], probe: Probe, name: str = ""
) -> Server:
    """Return how to recognise and to probe the one process of a program beside the clusters."""
    return Server(
        name=name or program,
        program=program,
        cluster_id="",
        arguments=(),
        identity=processes.identity(layout, program),
        log=layout.logs / f"{program}.log",
        ports=tuple(ports),
        probe=probe,
    )


@dataclass(frozen=True, slots=True)
class Addon:
    """A row of the table. `name` is the field of the state that is None without the add-on.

    - `find` returns its kit as far as it is on this machine; nothing is built, HostError says what
      to install. `provide` completes the kit, by a build or a download.
    - `extend` returns the state with its ports, `servers` its servers: without a kit only how to
      recognise and to probe them. Both are pure.
    - `start` writes its files and starts its servers, where they do not run.
    - `summary` and `details` are lines for people, `facts` are keys of the JSON.
    """

    name: str
    find: Callable[[Request], Kit]
    extend: Callable[[State, Kit, NewPorts], State]
    servers: Callable[[Layout, State, Kit | None], Sequence[Server]]
    start: Callable[[Run, Kit], None]
    provide: Callable[[Kit, Request, Progress], Kit] = lambda kit, _request, _progress: kit
    summary: Callable[[State], str] = lambda _state: ""
    details: Callable[[Layout, State], Sequence[str]] = lambda _layout, _state: ()
    facts: Callable[[Layout, State], Mapping[str, Any]] = lambda _layout, _state: {}
