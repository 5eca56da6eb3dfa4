"""Runs Keycloak beside the clusters: its command, secrets, folder and realm.json."""

import base64
import hashlib
import json
import secrets
import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from klutchctl import files
from klutchctl.sandbox import credentials
from klutchctl.sandbox.addons import keycloak_distribution
from klutchctl.sandbox.addons.addon import Addon, Request, Run, outline
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import LOOPBACK, KeycloakPorts, Layout, NewPorts, State
from reconciler.core.secret import Secret

# As realm.json has them.
REALM: Final = "klutch"
DOOR_CLIENT: Final = "klutch-bind"
CLI_CLIENT: Final = "klutchctl"
MACHINE: Final = "machine"
KEYED_MACHINE: Final = "machine-with-key"
ADMINISTRATOR: Final = "admin"
PEOPLE: Final = {"alice": "team-a", "bob": "team-b"}  # by name, the group
_TEMPLATE: Final = Path(__file__).with_name("realm.json")
_IDS: Final = uuid.UUID("b0d3a5b2-6a0e-4f6f-9a3c-2f0a5a9d7c11")
NAME: Final = "keycloak"
KEY_FILE: Final = "machine-with-key.pem"
# For a shell: `klutch-bind $(cat klutch-bind.flags)`, `klutchctl bind $(cat door.url)`.
FLAGS_FILE: Final = "klutch-bind.flags"
URL_FILE: Final = "door.url"
_SHARED: Final = ("bin", "conf", "lib", "providers", "themes")
_IMPORT: Final = Path("data") / "import"
# 600 MB at most, where it would take what the machine has; it starts sooner without the second
# compiler, and few people use it.
_JAVA: Final = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:MaxMetaspaceSize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
    "-Djava.util.concurrent.ForkJoinPool.common.threadFactory="
    "io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.security=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--enable-native-access=ALL-UNNAMED",
    "-Dpicocli.disable.closures=true",
)
_MAIN: Final = "io.quarkus.bootstrap.runner.QuarkusEntryPoint"


class Purpose(StrEnum):
    """The secrets of a realm; the values are their file names."""

    ADMIN = "admin.password"
    ALICE = "alice.password"
    BOB = "bob.password"
    DOOR = "klutch-bind.secret"
    MACHINE = "machine.secret"


def issuer(port: int) -> str:
    """Return the issuer of the realm, of a Keycloak on this loopback port."""
    return f"http://127.0.0.1:{port}/realms/{REALM}"


def subject(seed: str, name: str) -> str:
    """Return the subject of a person's tokens, for a realm of this seed."""
    return str(uuid.uuid5(_IDS, f"{seed}/{name}"))


def document(door: str, secrets: Mapping[Purpose, Secret], *, key: str, seed: str) -> bytes:
    """Return the realm as Keycloak imports it, with its secrets.

    `door` is the public URL of klutch-bind, which tokens for it name as audience; `key` the JWK
    Set, public, of the machine with a private key; `seed` makes the subjects of the people, so
    that they keep them.

    A port of a loopback address in `redirectUris` is not compared (RFC 8252 7.3). The client with
    the URL of the door is the audience of tokens; the web client is none, so that its own tokens
    are no keys to the door. A machine is an audience of itself, so that it exchanges tokens.
    """
    blanks = {purpose.name.lower(): secret.reveal() for purpose, secret in secrets.items()}
    blanks |= {f"{name}_id": subject(seed, name) for name in PEOPLE}
    blanks |= {"url": door, "keys": key}
    quoted = {name: json.dumps(text)[1:-1] for name, text in blanks.items()}
    return Template(_TEMPLATE.read_text()).substitute(quoted).strip().encode()


@dataclass(frozen=True, slots=True)
class KeycloakKit:
    """The parts of a Keycloak on this machine: `distribution` is shared, and read only."""

    java: Path
    distribution: Path


def find(request: Request) -> KeycloakKit:
    """Return the Java of this machine. Raises HostError where none is new enough."""
    return KeycloakKit(keycloak_distribution.find_java(request.settings.environ), Path())


def provide(kit: KeycloakKit, request: Request, progress: Progress) -> KeycloakKit:
    """Return the kit with a Keycloak, made now if need be."""
    cache, environ = request.settings.cache_home, request.settings.environ
    made = keycloak_distribution.provide(cache, kit.java, environ=environ, progress=progress)
    return replace(kit, distribution=made)


def extend(state: State, _kit: KeycloakKit, new_ports: NewPorts) -> State:
    """Return the state with a Keycloak; one that is there keeps its ports."""
    return state if state.keycloak else replace(state, keycloak=KeycloakPorts(*new_ports(3)))


def door_url(ports: KeycloakPorts) -> str:
    """Return where klutch-bind is expected: the audience of tokens for it."""
    return f"http://{LOOPBACK}:{ports.door}"


def home(layout: Layout, ports: KeycloakPorts) -> Path:
    """Return the folder below which Keycloak writes.

    It is another one when the realm is, which is imported into an empty database only.
    """
    nothing = {purpose: Secret("") for purpose in Purpose}
    content = document(door_url(ports), nothing, key="", seed="")
    return layout.keycloak / f"home-{hashlib.sha256(content).hexdigest()[:8]}"


def servers(layout: Layout, state: State, kit: KeycloakKit | None) -> tuple[Server]:
    """Return the one server; its command holds no secret."""
    ports = _ports(state)
    probe = HttpProbe(ports.health, "/health/ready")
    known = outline(layout, NAME, (ports.http, ports.health), probe, "Keycloak")
    if kit is None:
        return (known,)
    folder = home(layout, ports)
    arguments = (
        *_JAVA,
        f"-Dkc.home.dir={folder}",
        *("-cp", str(kit.distribution / "lib" / "quarkus-run.jar"), _MAIN),
        *("start", "--optimized", "--import-realm", "--cache=local"),
        "--http-enabled=true",
        f"--http-host={LOOPBACK}",
        f"--http-port={ports.http}",
        f"--http-management-host={LOOPBACK}",
        f"--http-management-port={ports.health}",
        f"--hostname=http://{LOOPBACK}:{ports.http}",
        "--log-level=INFO,io.smallrye.health:ERROR",  # not ready yet is no news
    )
    return (replace(known, arguments=arguments, launch=Launch(kit.java, folder)),)


def start(run: Run, kit: KeycloakKit) -> None:
    ensure_files(run.layout, _ports(run.state), kit.distribution)
    run.start(servers(run.layout, run.state, kit))


def ensure_files(layout: Layout, ports: KeycloakPorts, distribution: Path) -> None:
    """Make secrets and home, unless they are there; homes of older realms go.

    Also say in files where the front door is expected, and with which flags.
    """
    files.private_folder(layout.keycloak)
    own = home(layout, ports)
    for old in layout.keycloak.glob("home-*"):
        if old != own:
            shutil.rmtree(old)
    for folder in (own, own / "data", own / _IMPORT):
        files.private_folder(folder)
    for name in _SHARED:
        link = own / name
        link.unlink(missing_ok=True)
        link.symlink_to(distribution / name)
    door = door_url(ports)
    known = {purpose: _secret(layout.keycloak / purpose) for purpose in Purpose}
    keys = _public_keys(layout.keycloak / KEY_FILE)
    realm = document(door, known, key=keys, seed=str(layout.root))
    files.write(layout.keycloak / FLAGS_FILE, "\n".join(door_flags(layout, ports)).encode())
    files.write(layout.keycloak / URL_FILE, door.encode())
    files.write(own / _IMPORT / f"{REALM}-realm.json", realm)


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


def details(layout: Layout, state: State) -> Sequence[str]:
    """Return where and as whom to sign in, and how klutch-bind lets people in."""
    ports = _ports(state)
    people = (f"{name} ({group})" for name, group in PEOPLE.items())
    return (
        f"Issuer: {issuer(ports.http)}",
        f"People: {', '.join(people)}; passwords and client secrets: {layout.keycloak}",
        f"Clients: {DOOR_CLIENT}, {CLI_CLIENT} (device code), {MACHINE}, {KEYED_MACHINE}",
        f"Flags of klutch-bind: {shlex.join(door_flags(layout, ports))}",
    )


def facts(layout: Layout, ports: KeycloakPorts) -> dict[str, str]:
    """Return the facts for a sign-in there, without secrets: the files that hold them."""
    folder = layout.keycloak
    return {
        "issuer": issuer(ports.http),
        "door": door_url(ports),
        "doorClientID": DOOR_CLIENT,
        "doorClientSecretFile": str(folder / Purpose.DOOR),
        "cliClientID": CLI_CLIENT,
        "machineClientID": MACHINE,
        "machineClientSecretFile": str(folder / Purpose.MACHINE),
        "keyedMachineClientID": KEYED_MACHINE,
        "keyedMachineKeyFile": str(folder / KEY_FILE),
        **{f"{name}PasswordFile": str(folder / f"{name}.password") for name in PEOPLE},
        "adminPasswordFile": str(folder / Purpose.ADMIN),
    }


def door_flags(layout: Layout, ports: KeycloakPorts) -> Sequence[str]:
    """Return the flags with which a klutch-bind lets these people in."""
    door = door_url(ports)
    return (
        f"--listen-address={LOOPBACK}:{ports.door}",
        f"--oidc-issuer-url={issuer(ports.http)}",
        f"--oidc-issuer-client-id={DOOR_CLIENT}",
        f"--oidc-client-secret-file={layout.keycloak / Purpose.DOOR}",
        f"--oidc-callback-url={door}/callback",
        f"--cli-client-id={CLI_CLIENT}",
        "--oidc-username-claim=preferred_username",
        "--pretty-name=Sandbox",
    )


def _ports(state: State) -> KeycloakPorts:
    assert state.keycloak is not None
    return state.keycloak


ADDON: Final = Addon(
    NAME,
    find,
    extend,
    servers,
    start,
    provide,
    details=details,
    facts=lambda layout, state: {"oidc": facts(layout, _ports(state))},
)
