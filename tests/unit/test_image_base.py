"""Which files of Debian an image is built on: of chosen packages, and of what those need."""

import io
import tarfile

import pytest

from tests.images import archive, base

STATUS = """\
Package: app
Version: 1
Depends: libc (>= 2), interpreter (= 3) | other, debconf (>= 0.5) | debconf-2.0
Pre-Depends: awk

Package: libc
Version: 2

Package: python
Version: 3
Provides: interpreter (= 3)
Depends: libc

Package: mawk
Version: 1
Provides: awk

Package: debconf
Version: 1
Depends: perl-base
"""
CLOSURES = {
    "what it needs, and not what only maintainer scripts do": (["app"], {"app", "libc", "python"}),
    "what is left out unless it is chosen": (["app", "mawk"], {"app", "libc", "mawk", "python"}),
    "a package without needs": (["libc"], {"libc"}),
}


@pytest.mark.parametrize(("chosen", "want"), CLOSURES.values(), ids=CLOSURES)
def test_packages_that_are_chosen(chosen, want):
    assert base.closure(base.packages(STATUS), chosen) == want


def test_what_is_not_installed_is_an_error():
    with pytest.raises(KeyError):
        base.closure(base.packages(STATUS), ["absent"])


FILES = {
    "./var/lib/dpkg/status": STATUS,
    "./var/lib/dpkg/info/libc:amd64.list": "/.\n/lib/libc.so\n/usr\n/usr/lib/absent\n",
    "./var/lib/dpkg/info/python.list": "/usr/lib/python3.13/os.py\n/usr/lib/python3.13/test/x.py\n",
    "./var/lib/dpkg/info/debconf.list": "/usr/bin/debconf\n",
    "./usr/lib/libc.so": "libc",
    "./usr/lib/python3.13/os.py": "os",
    "./usr/lib/python3.13/__pycache__/os.cpython-313.pyc": "compiled",
    "./usr/lib/python3.13/test/x.py": "x",
    "./usr/bin/debconf": "",
    "./etc/ssl/certs/ca-certificates.crt": "authorities",
    "./etc/shadow": "secret",
}


def test_a_file_system_has_their_files_and_their_entries_and_one_time(tmp_path):
    whole, made = tmp_path / "whole.tar", tmp_path / "made.tar"
    with tarfile.open(whole, "w") as tar:
        for time, (name, text) in enumerate(FILES.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(text), time, 0o4755
            tar.addfile(entry, io.BytesIO(text.encode()))
    base.select(whole, made, ["app"])
    with tarfile.open(made) as tar:
        members = {one.name: one for one in tar}
        file = tar.extractfile("var/lib/dpkg/status")
        assert file is not None
        status = file.read().decode()
    assert members.keys() == {
        "etc/group",
        "etc/passwd",
        "etc/ssl/certs/ca-certificates.crt",
        "usr/lib/libc.so",
        "usr/lib/python3.13/os.py",
        "usr/lib/python3.13/__pycache__/os.cpython-313.pyc",
        "var/lib/dpkg/info/libc:amd64.list",
        "var/lib/dpkg/info/python.list",
        "var/lib/dpkg/status",
    }
    assert {one.mtime for one in members.values()} == {base.EPOCH}
    assert [name for name, one in members.items() if one.mode & 0o7000] == []
    assert base.packages(status).keys() == {"app", "libc", "python", "interpreter"}


def test_an_archive_is_the_same_whenever_it_was_written(tmp_path):
    """Buildah notes the time and the umask of each file and folder in it."""
    made = []
    for number, (time, mode) in enumerate([(1, 0o755), (2_000_000_000, 0o700)]):
        source, target = tmp_path / f"{number}.tar", tmp_path / f"{number}.copy"
        with tarfile.open(source, "w") as tar:
            folder, file = tarfile.TarInfo("blobs"), tarfile.TarInfo("index.json")
            folder.type, file.size = tarfile.DIRTYPE, 2
            for one in (folder, file):
                one.mtime, one.mode, one.uname = time, mode, f"user{number}"
            tar.addfile(folder)
            tar.addfile(file, io.BytesIO(b"{}"))
        archive.copy(source, target, epoch=base.EPOCH)
        made.append(target.read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "0.copy") as tar:
        read = tar.extractfile("index.json")
        assert read is not None
        assert (tar.getnames(), read.read()) == (["blobs", "index.json"], b"{}")
