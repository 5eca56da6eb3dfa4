"""Keycloak as a server of a sandbox: its command, how it is probed, what a person needs. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klutchctl.sandbox.keycloak import realm
from klutchctl.sandbox.keycloak.realm import Purpose, Realm
from klutchctl.sandbox.processes import identity
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import KeycloakPorts, Layout
from reconciler.core.secret import Secret

NAME: Final = "keycloak"
KEY_FILE: Final = "machine-with-key.pem"
# For a shell: `klutch-bind $(cat klutch-bind.flags)`, `klutchctl bind $(cat door.url)`.
FLAGS_FILE: Final = "klutch-bind.flags"
URL_FILE: Final = "door.url"
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
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class KeycloakKit:
    """What Keycloak needs of this machine: `distribution` is shared, and written to by nobody."""

    java: Path
    distribution: Path


def door_url(ports: KeycloakPorts) -> str:
    """Return where klutch-bind is expected: the audience of tokens for it."""
    return f"http://{_LOOPBACK}:{ports.door}"


def home(layout: Layout, ports: KeycloakPorts) -> Path:
    """Return the folder below which Keycloak writes.

    It is another one when the realm is, which is imported into an empty database only.
    """
    nothing = {purpose: Secret("") for purpose in Purpose}
    content = realm.document(Realm(door_url(ports), nothing, key="", seed=""))
    return layout.keycloak / f"home-{hashlib.sha256(content).hexdigest()[:8]}"


def outline(layout: Layout, ports: KeycloakPorts) -> Server:
    """Return the server as far as the state knows it: how to recognise and to probe it."""
    return Server(
        name="Keycloak",
        program=NAME,
        cluster_id="",
        arguments=(),
        identity=identity(layout, NAME),
        log=layout.logs / f"{NAME}.log",
        ports=(ports.http, ports.health),
        probe=HttpProbe(ports.health, "/health/ready"),
    )


def server(layout: Layout, ports: KeycloakPorts, kit: KeycloakKit) -> Server:
    """Return the server with its whole command, which holds no secret."""
    folder = home(layout, ports)
    arguments = (
        *_JAVA,
        f"-Dkc.home.dir={folder}",
        *("-cp", str(kit.distribution / "lib" / "quarkus-run.jar"), _MAIN),
        *("start", "--optimized", "--import-realm", "--cache=local"),
        "--http-enabled=true",
        f"--http-host={_LOOPBACK}",
        f"--http-port={ports.http}",
        f"--http-management-host={_LOOPBACK}",
        f"--http-management-port={ports.health}",
        f"--hostname=http://{_LOOPBACK}:{ports.http}",
        "--log-level=INFO,io.smallrye.health:ERROR",  # not ready yet is no news
    )
    launch = Launch(kit.java, folder)
    return replace(outline(layout, ports), arguments=arguments, launch=launch)


def facts(layout: Layout, ports: KeycloakPorts) -> dict[str, str]:
    """Return what a person or a program needs to sign in there, and no secret: files with them."""
    folder = layout.keycloak
    return {
        "issuer": realm.issuer(ports.http),
        "door": door_url(ports),
        "doorClientID": realm.DOOR_CLIENT,
        "doorClientSecretFile": str(folder / Purpose.DOOR),
        "cliClientID": realm.CLI_CLIENT,
        "machineClientID": realm.MACHINE,
        "machineClientSecretFile": str(folder / Purpose.MACHINE),
        "keyedMachineClientID": realm.KEYED_MACHINE,
        "keyedMachineKeyFile": str(folder / KEY_FILE),
        **{f"{one.name}PasswordFile": str(folder / one.password) for one in realm.PEOPLE},
        "adminPasswordFile": str(folder / Purpose.ADMIN),
    }


def door_flags(layout: Layout, ports: KeycloakPorts) -> Sequence[str]:
    """Return the flags with which a klutch-bind lets these people in."""
    door = door_url(ports)
    return (
        f"--listen-address={_LOOPBACK}:{ports.door}",
        f"--oidc-issuer-url={realm.issuer(ports.http)}",
        f"--oidc-issuer-client-id={realm.DOOR_CLIENT}",
        f"--oidc-client-secret-file={layout.keycloak / Purpose.DOOR}",
        f"--oidc-callback-url={door}/callback",
        f"--cli-client-id={realm.CLI_CLIENT}",
        "--oidc-username-claim=preferred_username",
        "--pretty-name=Sandbox",
    )
