"""The front door: a pipeline binds a cluster that no fleet names, as a machine of a Keycloak."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from klutchctl.entry import ExitCode
from klutchctl.sandbox.addons import keycloak_distribution as distribution
from reconciler.core.errors import HostError
from tests.demo import developer
from tests.demo.developer import Developer
from tests.demo.place import FLEET, NAME, PIPELINE, Place
from tests.demo.telling import Background, Story, fail, klutchctl

DATABASE: Final = "results"
_CLUSTER: Final = f"""\
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {{name: {PIPELINE}}}
spec:
  access: {{kubeconfigContext: {PIPELINE}}}
  controlPlane: eu
"""


@dataclass(frozen=True, slots=True)
class Preparation:
    """A start of Keycloak and of the pipeline's cluster; None where there is no Java for it."""

    start: Background | None
    missing: str = ""


@contextlib.asynccontextmanager
async def prepared(place: Place) -> AsyncIterator[Preparation]:
    """Start what the front door needs beside the rest of the demo, which need not wait for it."""
    try:
        distribution.find_java(os.environ)
    except HostError as error:
        yield Preparation(None, str(error))
        return
    wider = place.layout.root / f"{FLEET}-and-{PIPELINE}"
    shutil.copytree(FLEET, wider)
    (wider / "clusters" / f"{PIPELINE}.yaml").write_text(_CLUSTER)
    command = ("sandbox", "up", "--name", NAME, "--fleet", str(wider), "--oidc")
    async with Background.running(*command) as start:
        yield Preparation(start)


async def use_the_front_door(place: Place, story: Story, preparation: Preparation) -> None:
    """Bind without a fleet and without a browser, or say why not."""
    if preparation.start is None:
        print(f"\n== Left out, a pipeline at the front door: {preparation.missing}", flush=True)
        return
    with story.step("Without a fleet: start Keycloak, a front door, and a cluster for a pipeline"):
        if await preparation.start.ends() != ExitCode.SUCCESS:
            if os.environ.get("CI"):
                fail("there is no Keycloak")
            print("   So the front door is left out", flush=True)
            return
    with story.step("The pipeline binds its own cluster at the front door, with its client secret"):
        await klutchctl("bind", *place.machine(), *place.reach, "--context", PIPELINE)
    async with place.app_cluster(PIPELINE) as cluster:
        one = Developer(cluster, DATABASE)
        with story.step("A database for its tests, with credentials"):
            await one.claim_a_database()
            await one.is_ready(developer.BINDING)
            await developer.ask(await one.credentials(), "SELECT 'bound without a fleet'")
