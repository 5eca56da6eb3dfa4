"""The Keycloak of a sandbox: its realm, its command without secrets, a Java that is new enough."""

from pathlib import Path

import pytest

from klutchctl.sandbox.addons import keycloak
from klutchctl.sandbox.addons import keycloak_distribution as distribution
from klutchctl.sandbox.addons.keycloak import KeycloakKit
from klutchctl.sandbox.addons.realm import Purpose
from klutchctl.sandbox.state import KeycloakPorts, Layout, State
from reconciler.core.errors import HostError

DOOR = "http://127.0.0.1:20003"
PORTS = KeycloakPorts(http=20001, health=20002, door=20003)


def test_the_command_bounds_memory_listens_on_loopback_and_holds_no_secret(tmp_path):
    layout = Layout(tmp_path / "box")
    layout.root.mkdir()
    keycloak.ensure_files(layout, PORTS, tmp_path)
    known = State(1, 2, (), keycloak=PORTS)
    (made,) = keycloak.servers(layout, known, KeycloakKit(Path("/java"), Path("/cache")))
    assert made.launch is not None
    words = " ".join((*made.arguments, *made.launch.environment.values()))
    assert "-Xmx512m" in made.arguments
    assert "--http-host=127.0.0.1" in made.arguments
    assert "--http-management-host=127.0.0.1" in made.arguments
    for name in (*Purpose, keycloak.KEY_FILE):
        file = layout.keycloak / name
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text() not in words
    shown = f"{keycloak.facts(layout, PORTS)} {keycloak.door_flags(layout, PORTS)}"
    assert not [name for name in Purpose if (layout.keycloak / name).read_text() in shown]


def test_files_are_made_once_and_the_home_of_an_older_realm_goes(tmp_path):
    layout = Layout(tmp_path)
    keycloak.ensure_files(layout, PORTS, tmp_path)
    before = {one: one.read_bytes() for one in layout.keycloak.rglob("*") if one.is_file()}
    keycloak.ensure_files(layout, PORTS, tmp_path)
    assert {one: one.read_bytes() for one in before} == before
    moved = KeycloakPorts(http=20001, health=20002, door=20009)
    keycloak.ensure_files(layout, moved, tmp_path)
    assert [*layout.keycloak.glob("home-*")] == [keycloak.home(layout, moved)]


def test_a_shell_reads_the_flags_of_the_door_and_its_address_from_files(tmp_path):
    layout = Layout(tmp_path)
    keycloak.ensure_files(layout, PORTS, tmp_path)
    flags = (layout.keycloak / "klutch-bind.flags").read_text().split()
    assert flags == [*keycloak.door_flags(layout, PORTS)]
    assert (layout.keycloak / "door.url").read_text() == DOOR


def java(folder, version):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def test_the_java_of_java_home_comes_before_that_of_path(tmp_path):
    home, path = java(tmp_path / "home", "21.0.1"), java(tmp_path / "path", "17.0.15")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert distribution.find_java(environ) == home
    home.write_text(home.read_text().replace("21.0.1", "1.8.0_402"))
    assert distribution.find_java(environ) == path


@pytest.mark.parametrize(
    ("version", "said"), [("11.0.2", "is Java 11"), ("1.8.0_402", "is Java 8"), ("", "does not")]
)
def test_an_old_java_is_named_with_what_to_install(tmp_path, version, said):
    program = java(tmp_path, version)
    with pytest.raises(HostError, match=f"{program} {said}") as caught:
        distribution.find_java({"PATH": str(program.parent)})
    assert "openjdk-17" in (caught.value.hint or "")
