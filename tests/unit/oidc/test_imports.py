"""What comes along with this room: nothing that talks to servers."""

import subprocess
import sys

PROGRAM = """
import sys
import reconciler.oidc.grants, reconciler.oidc.tokens
names = ("httpx", "httpx2", "requests", "aiohttp", "authlib.jose", "authlib.integrations")
print([name for name in names if name in sys.modules])
"""


def test_no_client_of_http_is_loaded_nor_what_is_forbidden_of_authlib():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == "[]\n"
