"""Programs of others that tests run, built from Go modules of ours as the servers are."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from klutchctl.sandbox import binaries
from klutchctl.sandbox.recipes import Patch, Recipe
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, Kind
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.observing import established
from tests.support.quiet import Quiet
from tests.support.web import fetch


def built(
    module: Path,
    subject: str,
    version: str,
    packages: Mapping[str, str],
    *,
    cache: str,
    crds: tuple[tuple[str, str], ...] = (),
    patches: tuple[Patch, ...] = (),
) -> Path:
    """Return the folder of the executables, built now if need be.

    `cache` is its folder in our cache. Without a Go, a test is skipped, but never in CI.
    """
    files = [module / "go.sum", *sorted(module.rglob("*.go"))]
    sources = b"".join(one.read_bytes() for one in files) + "".join(map(str, patches)).encode()
    recipe = Recipe(
        module=module,
        subject=subject,
        versions=f"{subject} {version}",
        otherwise="",
        go=(1, 26),
        arguments=("-trimpath", "-ldflags=-s -w"),
        packages=packages,
        crds=crds,
        patches=patches,
        id=f"{version}-{hashlib.sha256(sources).hexdigest()[:8]}",
    )
    shop = binaries.workshop(
        recipe, cache, cache_home=Settings(os.environ).cache_home, environ=os.environ
    )
    try:
        return binaries.provide_built(shop, recipe, progress=Quiet())
    except HostError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


async def install(live: LiveCluster, entry: Path, *kinds: Kind) -> None:
    """Apply the CRDs that were built beside the executables, and wait for some of their kinds."""
    for crd in _crds(entry):
        await live.cluster.apply(crd, CRD, manager="tests", force=True)
    for kind in kinds:
        await established(live.cluster, kind)


def _crds(entry: Path) -> Iterator[Manifest]:
    for file in sorted(entry.glob("crds/*/*.yaml")):
        for found in yaml.safe_load_all(file.read_text()):
            if found["kind"] == CRD.kind:  # a kustomization may be beside them
                yield found


async def healthy(*urls: str) -> None:
    """Wait until each of these pages answers with 200."""

    def answers() -> bool:
        try:
            return all(fetch(url)[0] == 200 for url in urls)
        except OSError:
            return False

    await eventually(answers)
