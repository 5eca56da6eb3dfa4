"""Downloads of later steps, beside the build of the control plane, which waits for no network."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

from klutchctl.sandbox import binaries, go_build, recipes
from klutchctl.sandbox.addons import keycloak_distribution as distribution
from klutchctl.sandbox.report import Lines
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from tests.demo.telling import Background


@contextlib.asynccontextmanager
async def fetched() -> AsyncIterator[None]:
    code = f"from {__name__} import fetch; fetch()"
    async with Background.running("-c", code, program=sys.executable):
        yield


def fetch() -> None:
    """Fetch Go's modules and Keycloak. The steps that need them try again, and report errors."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # children end, too
    with contextlib.suppress(HostError, KeyboardInterrupt):
        for recipe in (recipes.of_crossplane(max(recipes.CROSSPLANES)), recipes.of_provider()):
            fetch_modules(recipe)
        java = distribution.find_java(os.environ)
        cache = Settings(os.environ).cache_home
        distribution.provide(cache, java, environ=os.environ, progress=Lines(sys.stdout))


def fetch_modules(recipe: recipes.Recipe) -> None:
    cache = Settings(os.environ).cache_home
    shop = binaries.workshop(recipe, "services", cache_home=cache, environ=os.environ)
    if not shop.cache.entry(recipe.id).exists():
        tools = go_build.find_toolchain(os.environ, recipe, otherwise=shop.packaged_go)
        command = (str(tools.go), "list", "-deps", *recipe.packages.values())
        environ = go_build.go_environment(os.environ)
        subprocess.run(command, cwd=recipe.module, env=environ, capture_output=True, check=False)
