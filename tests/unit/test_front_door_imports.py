"""What works without a front door pays nothing for it: neither time nor memory."""

import sys
import textwrap
from pathlib import Path
from typing import Final

import pytest

from tests.support.shells import ran

OF_THE_DOOR: Final = (
    "authlib",
    "bind.door.door",
    "bind.door.handlers",
    "bind.door.pages",
    "cryptography.fernet",
    "jinja2",
    "joserfc",
    "reconciler.web.serve",
    "reconciler.oidc",
    "reconciler.web.issuer",
    "reconciler.web.outbound",
)
# Nor of what exports traces, where nobody collects them.
LATE: Final = (*OF_THE_DOOR, "opentelemetry")
KUBECONFIG: Final = """
apiVersion: v1
kind: Config
current-context: away
clusters: [{name: away, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: away, context: {cluster: away, user: nobody}}]
users: [{name: nobody, user: {token: t}}]
"""
FLEET: Final = Path(__file__).parents[2] / "fleet-example"
COMMAND: Final = "from klutchctl import main; main.run({})"
SERVED: Final = """
import asyncio
from pathlib import Path
from bind import program, settings

async def serve():
    stop = asyncio.Event()
    stop.set()
    given = settings.parse(["--kubeconfig=kubeconfig", "--probe-address=", "--metrics-address="])
    await program.serve(given, {}, Path.home(), stop=stop)

asyncio.run(serve())
"""
# Sentence: the program.
RUNS: Final = {
    "the help of klutchctl": COMMAND.format(["--help"]),
    "the help of bind": COMMAND.format(["bind", "--help"]),
    "validate": COMMAND.format(["validate", str(FLEET)]),
    "a plan of clusters that are away": COMMAND.format(
        ["plan", str(FLEET), "--kubeconfig=kubeconfig"]
    ),
    "a backend without a door": SERVED,
    "a konnector": "import konnector.program",
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_nothing_of_the_front_door_is_loaded_by(run, tmp_path):
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    report = f"""
import sys
print("loaded:", [one for one in {LATE} if one in sys.modules], file=sys.stderr)
"""
    script = textwrap.dedent(run) + report
    ended = ran([sys.executable, "-c", script], check=True, cwd=tmp_path, timeout=60)
    assert ended.stderr.splitlines()[-1] == "loaded: []"


def test_a_front_door_loads_all_of_that():
    script = f"""
import sys
import bind.door.door
print([one for one in {OF_THE_DOOR} if one not in sys.modules])
"""
    assert ran([sys.executable, "-c", script], check=True, timeout=60).stdout == "[]\n"
