"""Files and folders that are there whole, or not at all."""

import errno
import os
import re
from pathlib import Path

import pytest

from klutchctl import files
from klutchctl.entry import sentence
from reconciler.core.errors import ConfigError


def test_a_folder_goes_with_what_a_killed_removal_has_left(tmp_path):
    folder, other = tmp_path / "demo", tmp_path / "other"
    left = tmp_path / ".demo.going-x" / "it"
    for one in (folder, other, left):
        one.mkdir(parents=True)
        (one / "state.json").write_text("{}")
    files.remove_folder(folder)
    assert list(tmp_path.iterdir()) == [other]
    files.remove_folder(folder)
    assert list(tmp_path.iterdir()) == [other]


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / ".demo.going-x").symlink_to(precious)
    files.remove_folder(tmp_path / "demo")
    assert precious.is_dir()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "state.json"
    files.write(target, b"old")

    def fails(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        files.write(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_folder_is_complete_or_absent(tmp_path, monkeypatch):
    def fails(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="No space"):
            files.write_folder(tmp_path / "deep" / "pki", {"ca.crt": b"x"})
    assert list((tmp_path / "deep").iterdir()) == []
    files.write_folder(tmp_path / "deep" / "pki", {"ca.crt": b"x"})
    assert (tmp_path / "deep" / "pki" / "ca.crt").read_bytes() == b"x"


def test_a_file_that_is_too_large_is_refused_before_it_is_read_whole(tmp_path):
    file = tmp_path / "status.json"
    with file.open("wb") as stream:
        stream.truncate(files.LARGEST + 1)
    with pytest.raises(ConfigError, match=re.escape(f"{file}: cannot be read: larger than 512 M")):
        files.read(file)


def test_what_a_shell_gives_for_a_file_is_read():
    """As in `klutchctl show <(zcat x.plan.gz)`."""
    end, other = os.pipe()
    os.write(other, b"{}")
    os.close(other)
    assert files.read(Path(f"/dev/fd/{end}")) == b"{}"
    os.close(end)


def test_a_full_disk_names_the_file_that_was_written(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as failed:
        files.write_shared(tmp_path / "plan.json", b"{}")
    assert sentence(failed.value) == f"No space left on device: {tmp_path / 'plan.json'}"
    assert list(tmp_path.iterdir()) == []
