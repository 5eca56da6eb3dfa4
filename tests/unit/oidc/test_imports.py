"""What comes along with this room: nothing that talks to servers."""

import sys

from tests.support.shells import ran

PROGRAM = """
import sys
import reconciler.oidc.grants, reconciler.oidc.tokens
names = ("httpx", "httpx2", "requests", "httptools", "authlib.jose", "authlib.integrations")
print([name for name in names if name in sys.modules])
"""


def test_no_client_of_http_is_loaded_nor_what_is_forbidden_of_authlib():
    assert ran([sys.executable, "-c", PROGRAM], check=True, timeout=60).stdout == "[]\n"
