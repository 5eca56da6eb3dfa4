"""One sandbox per test process, started by the first test that needs it and stopped at the end.

Namespace klutch-bind and much else have fixed names, so the workers of pytest-xdist would wait
for each other in a shared one.
"""

import asyncio
import gc
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio
import yaml
from hypothesis import settings

from klutchctl.sandbox import processes
from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Layout, Role, layout_of
from klutchctl.settings import Settings
from reconciler.core.errors import HostError, KlutchError
from reconciler.core.manifest import Manifest, uid_of
from reconciler.core.refs import NAMESPACE, Ref

if TYPE_CHECKING:
    from tests.support.clusters import LiveCluster
    from tests.support.keycloak import Keycloak

# A law that is slow on a busy machine is still a law.
settings.register_profile("usual", deadline=None, max_examples=50)
settings.register_profile("soak", deadline=None, max_examples=5_000)
settings.load_profile("usual")
# Tests read much YAML: libyaml takes a tenth of the time.
yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc,assignment]

_ON_CLUSTERS: Final = frozenset({"contract", "integration"})
_TESTS: Final = Path(__file__).parent
_STORIES: Final = _TESTS / "stories.txt"
_HOME: Final = pytest.StashKey[Path]()
_PROGRAMS: Final = pytest.StashKey[Mapping[Program, Path] | HostError]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Write the expected outputs anew."
    )
    parser.addoption("--stories", action="store_true", help="Run the tests of stories.txt alone.")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore it, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_HOME] = Path(tempfile.mkdtemp(prefix="klutchctl-tests-"))
    _take_ports_of_our_own()
    gc.set_threshold(500_000)  # until all is collected


def _take_ports_of_our_own() -> None:
    """Share the ports of sandboxes with the other workers of pytest-xdist.

    What is free when one of them looks may be another's by the time that a server listens there.
    Several runs on one machine are given a range each, by the environment.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    given = (
        processes.port_range(os.environ.get(processes.PORTS_VARIABLE, "")) or processes.USUAL_PORTS
    )
    share = len(given) // workers
    ours = given[number * share : (number + 1) * share]
    processes.USUAL_PORTS = ours  # type: ignore[misc]
    os.environ[processes.PORTS_VARIABLE] = f"{ours[0]}-{ours[-1]}"  # for programs that tests start


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look seldom for cycles, and never among the tests: 15 % of the CPU time of unit tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Show a failure with the log of the programs in it, each record with its fields."""
    from reconciler.controller.process import Text

    logged = session.config.pluginmanager.get_plugin("logging-plugin")
    if logged is not None:
        logged.report_handler.setFormatter(Text())


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_HOME, None)
    if home is None:
        return
    from klutchctl.sandbox import lifecycle
    from tests.support.quiet import Quiet

    lifecycle.down(_layout(home), delete=True, progress=Quiet())
    shutil.rmtree(home)


def _layout(home: Path) -> Layout:
    return layout_of("tests", state_home=home)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mix the kinds of tests, and leave stories to `make stories`, and `soak` to `make soak`.

    `soak` marks more cases of what others show, and longer stories. Stories of a named file run.
    """
    turns = _turns({item.path for item in items})
    items.sort(key=lambda item: turns[item.path])
    if config.getoption("--hypothesis-profile") == "soak":
        return
    left = {item for item in items if item.get_closest_marker("soak")}
    if all(Path(one).resolve() == _TESTS for one in config.args):
        stories, only = set(_STORIES.read_text("utf-8").splitlines()), config.getoption("--stories")
        left |= {item for item in items if (item.nodeid.partition("[")[0] in stories) != only}
    config.hook.pytest_deselected(items=[*left])
    items[:] = [item for item in items if item not in left]


def _turns(files: Iterable[Path]) -> Mapping[Path, tuple[float, Path]]:
    """Return when it is each file's turn.

    Beside one worker that waits for clusters another one computes, so both cores are used. Short
    files end the run, so that no worker waits long for another: units, before them the first of the
    alphabet on clusters, and after all others those on the model. These run on a loop of their own:
    a worker that changed between two loops would connect to its clusters again and again.
    """
    groups: dict[str, list[Path]] = {}
    for file in sorted(files, reverse=True):
        groups.setdefault(file.relative_to(_TESTS).parts[0], []).append(file)
    return {
        file: (place / len(group) * (0.8 if name in _ON_CLUSTERS else 1) + (name == "model"), file)
        for name, group in groups.items()
        for place, file in enumerate(group)
    }


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build the servers before the first test: it takes minutes once, and tests have time-outs."""
    if session.config.option.collectonly:
        return
    if not any("programs" in getattr(item, "fixturenames", ()) for item in session.items):
        return
    from klutchctl.sandbox import binaries, recipes
    from klutchctl.sandbox.report import Lines

    capture = session.config.pluginmanager.getplugin("capturemanager")
    settings = Settings(os.environ)
    own = recipes.of()
    where = binaries.workshop(
        own.recipe, "controlplane", cache_home=settings.cache_home, environ=os.environ
    )
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[_PROGRAMS] = binaries.provide(
                own, where, progress=Lines(sys.stderr)
            )
        except HostError as error:
            session.config.stash[_PROGRAMS] = error


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with an expected output, a file beside the test."""
    update = request.config.getoption("--update-golden")

    def compare(text: str, name: str) -> None:
        file = request.path.parent / "expected" / name
        if update:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
        assert file.is_file(), f"{name} is new: run pytest {request.path} --update-golden"
        assert text == file.read_bytes().decode(), f"{name} differs"

    return compare


@pytest.fixture
def refusals(golden: Callable[[str, str], None]) -> Callable[..., None]:
    """Compare how attempts are refused with an expected output, its error and sentence for each.

    No sentence may hold one of `secrets`. What differs from run to run is left out: `unique`.
    """
    from tests.support.kubeconfigs import leaks

    def compare(
        name: str,
        attempts: Mapping[str, Callable[[], object]],
        *,
        secrets: Iterable[str] = (),
        unique: str = "",
    ) -> None:
        lines = []
        for title, attempt in attempts.items():
            with pytest.raises(KlutchError) as caught:
                attempt()
            assert leaks(caught.value, tuple(secrets)) == []
            sentence = str(caught.value).replace(unique, "") if unique else str(caught.value)
            lines.append(f"{title} ({type(caught.value).__name__})")
            lines += (f"  {line}" for line in sentence.splitlines())
        golden("".join(f"{line}\n" for line in lines), f"{name}.txt")

    return compare


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Mapping[Program, Path]:
    """The real executables. Without them a test is skipped, but never in CI."""
    found = pytestconfig.stash[_PROGRAMS]
    if isinstance(found, HostError):
        if os.environ.get("CI"):
            pytest.fail(str(found), pytrace=False)
        pytest.skip(str(found))
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def live_clusters(
    request: pytest.FixtureRequest, programs: Mapping[Program, Path]
) -> "AsyncIterator[Mapping[Role, LiveCluster]]":
    from tests.support import clusters

    layout = _layout(request.config.stash[_HOME])
    members = await asyncio.to_thread(clusters.start, layout, programs)
    live = {member.role: await clusters.connect(layout, member) for member in members}
    yield live
    for each in live.values():
        await each.cluster.close()


@pytest.fixture(scope="session")
def keycloak(
    request: pytest.FixtureRequest, live_clusters: "Mapping[Role, LiveCluster]"
) -> "Iterator[Keycloak]":
    """A real Keycloak; each worker of a run has its own, so that one file should use it.

    It is started after the clusters, which could take the port that it keeps for a front door.
    """
    from tests.support.keycloak import served

    with served(request.config.stash[_HOME]) as running:
        yield running


@pytest.fixture(scope="session")
def control_plane(live_clusters: "Mapping[Role, LiveCluster]") -> "LiveCluster":
    return live_clusters[Role.CONTROL_PLANE]


@pytest.fixture(scope="session")
def app_cluster(live_clusters: "Mapping[Role, LiveCluster]") -> "LiveCluster":
    """The cluster with the CRD `apiservicebindings` only."""
    return live_clusters[Role.APP_CLUSTER]


@pytest.fixture(scope="session")
def without(
    request: pytest.FixtureRequest,
    programs: Mapping[Program, Path],
    live_clusters: "Mapping[Role, LiveCluster]",
) -> Callable[[Role, Program], AbstractAsyncContextManager[None]]:
    """What kills a server of one of the two clusters for as long as a block lasts."""
    from tests.support import clusters

    layout = _layout(request.config.stash[_HOME])

    @asynccontextmanager
    async def dead(role: Role, program: Program) -> AsyncIterator[None]:
        clusters.kill(layout, live_clusters[role].context, program)
        try:
            yield
        finally:
            await asyncio.to_thread(clusters.repair, layout, programs)

    return dead


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def second_app_cluster(
    request: pytest.FixtureRequest, programs: Mapping[Program, Path], app_cluster: "LiveCluster"
) -> "AsyncIterator[LiveCluster]":
    """Another app cluster, started by the first test that needs it, after the others."""
    from tests.support import clusters

    layout = _layout(request.config.stash[_HOME])
    member = await asyncio.to_thread(clusters.add_app_cluster, layout, programs)
    live = await clusters.connect(layout, member)
    yield live
    await live.cluster.close()


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(control_plane: "LiveCluster") -> AsyncIterator[str]:
    """A new namespace of the control plane, for one test."""
    from reconciler.kube.requests import Preconditions, Propagation

    name = f"test-f{uuid.uuid4().hex[:11]}"
    cluster = control_plane.cluster
    manifest: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    created = await cluster.create(manifest, NAMESPACE, manager="tests")
    yield name
    await cluster.delete(
        Ref(cluster.name, NAMESPACE, "", name),
        preconditions=Preconditions(uid=uid_of(created)),
        propagation=Propagation.BACKGROUND,
    )
