"""Servers of a sandbox that are small Python programs, and are never ready."""

from pathlib import Path

from klutchctl.sandbox.servers import HttpsProbe, Program, Server
from klutchctl.sandbox.state import Layout

NOWHERE = HttpsProbe(1, "/readyz", Path("ca"), Path("crt"), Path("key"))
SLEEPS = "import signal; print('up', flush=True); signal.pause()"


def stand_in(layout: Layout, name: str, code: str) -> Server:
    """Return a server that runs `code`, for an executable called etcd that is Python."""
    identity = f"--data-dir={layout.root}/{name}"
    return Server(
        name=name,
        program=Program.ETCD,
        cluster_id="",
        arguments=("-c", code, identity),
        identity=identity,
        log=layout.root / f"{name}.log",
        ports=(),
        probe=NOWHERE,
    )
