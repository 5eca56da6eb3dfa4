"""The Keycloak of a sandbox: its realm, its command without secrets, a Java that is new enough."""

import json
from pathlib import Path

import pytest

from klutchctl.sandbox.addons import keycloak, realm
from klutchctl.sandbox.addons import keycloak_distribution as distribution
from klutchctl.sandbox.addons.keycloak import KeycloakKit
from klutchctl.sandbox.addons.realm import Purpose, Realm
from klutchctl.sandbox.state import KeycloakPorts, Layout, State
from reconciler.core.errors import HostError
from reconciler.core.secret import Secret

DOOR = "http://127.0.0.1:20003"
PORTS = KeycloakPorts(http=20001, health=20002, door=20003)
REALM = Realm(
    door=DOOR,
    secrets={purpose: Secret(f"canary-{purpose}") for purpose in Purpose},
    key='{"keys":[]}',
    seed="/state/box",
)
DOCUMENT = json.loads(realm.document(REALM))
CLIENTS = {one["clientId"]: one for one in DOCUMENT["clients"]}


def audiences_of(client):
    configs = [one["config"] for one in client["protocolMappers"]]
    named = {one.get("included.client.audience") for one in configs}
    return named - {None}


def test_people_are_complete_and_in_a_group_each():
    found = {one["username"]: one.get("groups") for one in DOCUMENT["users"]}
    assert found == {"alice": ["/team-a"], "bob": ["/team-b"], "admin": None}
    for one in DOCUMENT["users"]:
        assert one["emailVerified"]
        assert "" not in (one["email"], one["firstName"], one["lastName"])


def test_people_keep_their_subjects_and_share_none_with_another_sandbox():
    other = json.loads(realm.document(Realm(DOOR, REALM.secrets, REALM.key, "/state/other")))
    again = json.loads(realm.document(REALM))
    assert again == DOCUMENT
    subjects = {one["id"] for each in (DOCUMENT, other) for one in each["users"] if "id" in one}
    assert len(subjects) == 4


FLOWS = {
    realm.DOOR_CLIENT: {"standardFlowEnabled"},
    realm.CLI_CLIENT: {"publicClient"},
    realm.MACHINE: {"serviceAccountsEnabled"},
    realm.KEYED_MACHINE: {"serviceAccountsEnabled"},
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_client_can_do_what_it_is_for_and_nothing_else(name):
    flags = {key for key, value in CLIENTS[name].items() if value is True}
    assert flags - {"enabled"} == FLOWS[name]


@pytest.mark.parametrize("name", [realm.DOOR_CLIENT, realm.CLI_CLIENT])
def test_people_prove_with_pkce_that_they_began(name):
    assert CLIENTS[name]["attributes"]["pkce.code.challenge.method"] == "S256"


@pytest.mark.parametrize("name", [realm.MACHINE, realm.KEYED_MACHINE])
def test_tokens_of_machines_are_for_the_door(name):
    assert audiences_of(CLIENTS[name]) == {DOOR, realm.MACHINE}
    assert CLIENTS[DOOR]["bearerOnly"]


def test_id_tokens_of_the_cli_name_the_door_which_alone_is_given_them():
    configs = [one["config"] for one in CLIENTS[realm.CLI_CLIENT]["protocolMappers"]]
    (door,) = [one for one in configs if "included.client.audience" in one]
    assert (door["included.client.audience"], door["id.token.claim"]) == (DOOR, "true")


@pytest.mark.parametrize("name", FLOWS)
def test_every_token_names_groups_without_a_slash(name):
    configs = [one["config"] for one in CLIENTS[name]["protocolMappers"]]
    (groups,) = [one for one in configs if one.get("claim.name") == "groups"]
    assert groups["full.path"] == "false"
    assert groups["access.token.claim"] == groups["id.token.claim"] == "true"


def test_each_secret_is_where_it_belongs():
    text = json.dumps(DOCUMENT)
    assert all(text.count(f'"canary-{purpose}"') == 1 for purpose in Purpose)
    assert "canary" not in repr(REALM)


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
