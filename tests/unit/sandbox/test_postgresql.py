"""Which PostgreSQL is used, where its data is, and whose folder is refused."""

import asyncio
import importlib.util
import os
from pathlib import Path

import pytest

from klutchctl import main
from klutchctl.entry import ExitCode
from klutchctl.sandbox import lifecycle, processes
from klutchctl.sandbox.addons import postgresql
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Layout
from reconciler.core.errors import HostError
from tests.support.eventually import eventually
from tests.support.quiet import Quiet

NEEDED = ("postgres", "initdb", "pg_dump", "pg_restore")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as somebody else")


def install(folder, *, programs=NEEDED, status=0):
    folder.mkdir(parents=True)
    for name in programs:
        (folder / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """No PostgreSQL is there but what a test installs, and everybody may look."""
    monkeypatch.setattr(postgresql, "_PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(processes, "unprivileged_owner", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return tmp_path


def found(machine, path=""):
    layout = Layout(machine / "box")
    return postgresql.find(layout, {"PATH": str(path)}).binaries


def test_that_on_path_is_first_and_its_link_is_followed(machine):
    real = install(machine / "real" / "bin")
    install(machine / "packaged" / "17" / "bin")
    (machine / "links").mkdir()
    (machine / "links" / "postgres").symlink_to(real / "postgres")
    assert found(machine, machine / "links") == real


def test_that_there_is_none_is_reported_before_anything_is_built(machine, monkeypatch, capsys):
    monkeypatch.setenv("PATH", os.defpath)
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(machine / variable))
    assert main.run(["sandbox", "up", "--services"]) == ExitCode.FAILED
    assert "apt-get install postgresql" in capsys.readouterr().err
    assert not list(machine.iterdir())


def test_of_packages_the_newest_is_used(machine):
    for version in ("9", "15", "15.old"):
        install(machine / "packaged" / version / "bin")
    assert found(machine) == machine / "packaged" / "15" / "bin"


def test_what_is_not_whole_or_does_not_work_gives_way(machine):
    install(machine / "packaged" / "17" / "bin", programs=("postgres", "initdb"))
    install(machine / "packaged" / "16" / "bin", status=1)
    working = install(machine / "packaged" / "15" / "bin")
    assert found(machine) == working


def test_without_any_the_way_out_is_reported_and_what_was_refused(machine):
    install(machine / "packaged" / "17" / "bin", programs=("postgres",))
    with pytest.raises(HostError, match=r"17/bin has no initdb, pg_dump, pg_restore") as caught:
        found(machine)
    for remedy in ("apt-get install postgresql", "before 3.13", "'.[sandbox]'"):
        assert remedy in caught.value.hint


def test_root_on_a_machine_without_other_users_is_reported(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(HostError, match=r"refuses to run as root.*ordinary user"):
        found(machine)


def test_data_without_its_password_is_not_used(tmp_path):
    layout = Layout(tmp_path / "box")
    data = tmp_path / "data"
    data.mkdir()
    with pytest.raises(HostError, match=r"postgresql\.password is lost.*down --delete"):
        postgresql.ensure_data(layout, PostgresqlPlace(data, Path("/bin"), None), progress=Quiet())


def of_another_user(home):
    home.mkdir(mode=0o700)
    os.chown(home, 12345, 12345)


def open_to_others(home):
    home.mkdir()
    os.chown(home, 65534, 65534)
    home.chmod(0o777)


def a_link(home):
    home.symlink_to("/etc")


def a_file(home):
    home.touch()


@as_root
@pytest.mark.parametrize("trespass", [of_another_user, open_to_others, a_link, a_file])
def test_a_folder_that_somebody_else_made_is_refused(tmp_path, monkeypatch, trespass):
    monkeypatch.setattr(postgresql, "_SHARED", tmp_path)
    layout = Layout(tmp_path / "state" / "box")
    home = postgresql._home(layout)
    trespass(home)
    place = PostgresqlPlace(home / "data", Path("/bin"), Owner(65534, 65534))
    with pytest.raises(HostError, match="is not the folder that this sandbox made"):
        postgresql.ensure_data(layout, place, progress=Quiet())


@as_root
def test_the_folder_in_the_shared_place_goes_with_the_sandbox(tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql, "_SHARED", tmp_path)
    layout, other = Layout(tmp_path / "a" / "box"), Layout(tmp_path / "b" / "box")
    for each in (layout, other):
        postgresql._ensure_home(
            PostgresqlPlace(postgresql._home(each) / "data", Path("/bin"), Owner(65534, 65534))
        )
    postgresql.remove(layout)
    assert not postgresql._home(layout).exists()
    assert postgresql._home(other).stat().st_mode & 0o777 == 0o700
    assert postgresql._home(other).stat().st_uid == 65534


async def test_down_ends_the_making_of_data_whose_run_was_killed(tmp_path):
    layout = Layout(tmp_path / "box")
    binaries = install(tmp_path / "bin")
    (binaries / "initdb").write_text("#!/bin/sh\nexec sleep 600\n")
    place = PostgresqlPlace(layout.services / "postgresql" / "data", binaries, None)
    made = asyncio.create_task(
        asyncio.to_thread(postgresql.ensure_data, layout, place, progress=Quiet())
    )
    # Not while it is still becoming that program.
    await eventually(lambda: [one.arguments for one in processes.observe(layout)] == [("600",)])
    assert await asyncio.to_thread(lifecycle.down, layout, delete=False, progress=Quiet()) == 1
    with pytest.raises(HostError, match="initdb failed with status -15"):
        await made
