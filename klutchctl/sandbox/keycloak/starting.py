"""Start Keycloak beside the clusters: its secrets made once, its home, its realm."""

import base64
import json
import secrets
import shutil
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from klutchctl import files
from klutchctl.sandbox import credentials, lifecycle, startup
from klutchctl.sandbox.keycloak import realm, server
from klutchctl.sandbox.keycloak.realm import Purpose, Realm
from klutchctl.sandbox.keycloak.server import KeycloakKit
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.state import KeycloakPorts, Layout
from reconciler.core.errors import HostError
from reconciler.core.secret import Secret

_SHARED: Final = ("bin", "conf", "lib", "providers", "themes")
_IMPORT: Final = Path("data") / "import"


def up(layout: Layout, kit: KeycloakKit, *, progress: Progress) -> None:
    """Start Keycloak if it does not run, and return once it answers.

    `lifecycle.up` was told of `kit`. Raises HostError for one that does not start.
    """
    with lifecycle.locked(layout, progress):
        state = lifecycle.load(layout)
        if state is None or state.keycloak is None:
            raise HostError(
                "the sandbox was changed meanwhile", hint="Run the command again for Keycloak"
            )
        ensure_files(layout, state.keycloak, kit.distribution)
        stage = [server.server(layout, state.keycloak, kit)]
        startup.ensure_running(layout, stage, {}, progress=progress)


def ensure_files(layout: Layout, ports: KeycloakPorts, distribution: Path) -> None:
    """Make secrets and home, unless they are there; homes of older realms go.

    Also say in files where the front door is expected, and with which flags.
    """
    files.private_folder(layout.keycloak)
    home = server.home(layout, ports)
    for old in layout.keycloak.glob("home-*"):
        if old != home:
            shutil.rmtree(old)
    for folder in (home, home / "data", home / _IMPORT):
        files.private_folder(folder)
    for name in _SHARED:
        link = home / name
        link.unlink(missing_ok=True)
        link.symlink_to(distribution / name)
    wanted = Realm(
        door=server.door_url(ports),
        secrets={purpose: _secret(layout.keycloak / purpose) for purpose in Purpose},
        key=_public_keys(layout.keycloak / server.KEY_FILE),
        seed=str(layout.root),
    )
    flags = "\n".join(server.door_flags(layout, ports))
    files.write(layout.keycloak / server.FLAGS_FILE, flags.encode())
    files.write(layout.keycloak / server.URL_FILE, wanted.door.encode())
    files.write(home / _IMPORT / f"{realm.NAME}-realm.json", realm.document(wanted))


def _secret(file: Path) -> Secret:
    if not file.exists():
        files.write(file, secrets.token_urlsafe(24).encode())
    return Secret(file.read_text())


def _public_keys(file: Path) -> str:
    """Return the JWK Set for the private key in `file`, which is made if it is not there."""
    if not file.exists():
        files.write(file, credentials.private_pem(credentials.new_key()))
    key = load_pem_private_key(file.read_bytes(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey)
    numbers = key.public_key().public_numbers()
    jwk = {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256"}
    jwk |= {"kid": "machine", "x": _coordinate(numbers.x), "y": _coordinate(numbers.y)}
    return json.dumps({"keys": [jwk]})


def _coordinate(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(32)).rstrip(b"=").decode()
