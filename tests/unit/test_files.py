"""Files and folders that are there whole, or not at all."""

import os

import pytest

from klutchctl import files


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
