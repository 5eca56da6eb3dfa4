"""`make scan`: what debsecan finds in an image, and that nothing passes where it cannot look."""

import pytest

from tests.images.building import Failed
from tests.release import scan

NOTED = b"Package: openssl\nStatus: install ok installed\nVersion: 3.5.1-1\n"


@pytest.fixture
def debsecan(tmp_path, monkeypatch):
    """Return how to have a program of this name that does what a shell does."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def written(lines):
        program = tmp_path / "debsecan"
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)

    return written


def test_what_debian_has_mended_is_named(debsecan):
    debsecan('for one; do case $one in --status=*) grep -h Package "${one#--status=}";; esac; done')
    assert scan.vulnerable(NOTED) == ["Package: openssl"]


def test_a_database_that_is_not_reached_is_no_clean_image(debsecan, capsys, tmp_path, monkeypatch):
    debsecan("echo 'error: Name or service not known' >&2; exit 1")
    monkeypatch.setattr(scan, "packages", lambda path: NOTED)
    (tmp_path / "one.oci.tar").touch()
    assert scan.main([str(tmp_path)]) == 1
    assert capsys.readouterr() == ("", "Error: debsecan: error: Name or service not known\n")


def test_a_machine_without_debsecan_is_told_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match="apt-get install debsecan"):
        scan.vulnerable(NOTED)
