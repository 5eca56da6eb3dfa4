"""Fleets in archives: what is read of them, and what is refused before it is unpacked."""

import gzip
import io
import tarfile
import zlib

import pygit2
import pytest
from pygit2.enums import FileMode

from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.source import artifact
from tests.support.checkouts import commit_files
from tests.support.fleet_texts import GOOD

FLEET = {path: text.encode() for path, text in GOOD.items()}
GIB = 1 << 30


def member(name, kind=tarfile.REGTYPE, **more):
    made = tarfile.TarInfo(name)
    made.type = kind
    for key, value in more.items():
        setattr(made, key, value)
    return made


def packed(*members, files=FLEET, form=tarfile.PAX_FORMAT):
    """Return an archive as Flux makes it: the folder itself first; `members` are (entry, bytes)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=form) as tar:
        tar.addfile(member(".", tarfile.DIRTYPE))
        for path, content in files.items():
            tar.addfile(member(path, size=len(content)), io.BytesIO(content))
        for entry, content in members:
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def read(content, folder=""):
    return artifact.read(content, revision="sha256:x", folder=folder, where="here")


@pytest.mark.parametrize("above", ["", "./", "fleets/", "./deep/fleets/"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_fleet_is_read_as_from_a_folder(above, form):
    content = packed(files={above + path: text for path, text in FLEET.items()}, form=form)
    folder = above.removeprefix("./")
    found = read(content, folder)
    assert (found.files, found.unread) == (FLEET, {})
    assert (found.revision, found.folder, found.entry) == ("sha256:x", folder, "fleet.yaml")


def test_a_folder_has_the_id_that_git_gives_it(tmp_path):
    large = {"a/big": b"x" * (MAX_BYTES + 1), "a.b/c": b"", "a-b": b"y", "a/\u00e9/z": b"z"}
    git = pygit2.init_repository(tmp_path, bare=True)
    run = {"script": (FileMode.BLOB_EXECUTABLE, git.create_blob(b"#!"))}
    commit = git[commit_files(git, FLEET | large | run)]
    content = packed(
        (member("script", size=2, mode=0o700), b"#!"),
        (member("empty/folder", tarfile.DIRTYPE), b""),
        files=FLEET | large,
    )
    top = artifact.opened(content, where="here")
    assert artifact.tree_id(top, "") == str(commit.tree.id)
    assert artifact.tree_id(top, "a/") == str(commit.tree["a"].id)
    assert artifact.tree_id(top, "b/") == ""


def test_a_file_that_is_too_large_is_a_problem_only_where_an_include_means_it():
    large = {"big.bin": b"x" * (MAX_BYTES + 1), "bindings/big.yaml": b"x" * (MAX_BYTES + 1)}
    found = read(packed(files={**FLEET, **large}))
    assert found.files == FLEET
    assert {path: one.code for path, one in found.unread.items()} == {
        "bindings/big.yaml": "file-too-large"
    }


def unpacking_to(size):
    """Return an archive of zeros; as gzip is made of parts, one part is compressed once."""
    part = gzip.compress(bytes(64 << 20), 1)
    head = gzip.compress(member("zeros", size=size).tobuf(tarfile.GNU_FORMAT))
    return head + part * (size // (64 << 20) + 1)


# A header of PAX would be read into memory as one piece.
HEAD = gzip.compress(member("x", tarfile.XHDTYPE, size=GIB).tobuf(tarfile.USTAR_FORMAT))
X, SYMLINK, LINK = b"x", tarfile.SYMTYPE, tarfile.LNKTYPE
REFUSED = {
    "a link": (packed((member("a", SYMLINK, linkname="fleet.yaml"), b"")), "'a', which is a link"),
    "a link out": (packed((member("a", SYMLINK, linkname="/etc/x"), b"")), "which is a link"),
    "a hard link": (packed((member("a", LINK, linkname="fleet.yaml"), b"")), "which is a link"),
    "a device": (packed((member("a", tarfile.CHRTYPE), b"")), "which is no file and no folder"),
    "a pipe": (packed((member("a", tarfile.FIFOTYPE), b"")), "which is no file and no folder"),
    "a path out": (packed((member("a/../../x", size=1), X)), "which leaves the repository"),
    "an absolute path": (packed((member("/x", size=1), X)), "which is absolute"),
    "a control character": (packed((member("a\x1b[2J", size=1), X)), r"'a\x1b[2J', which contains"),
    "a file twice": (packed((member("fleet.yaml", size=1), X)), "'fleet.yaml' twice, or below"),
    "a file below a file": (packed((member("fleet.yaml/x", size=1), X)), "twice, or below a file"),
    "a folder for a file": (packed((member("fleet.yaml", tarfile.DIRTYPE), b"")), "twice, or"),
    "a deep path": (packed((member("a/" * 65 + "x", size=1), X)), "below more than 64 folders"),
    "many files": (
        packed(*((member(f"f{n}"), b"") for n in range(10_001))),
        "more than 10000 entr",
    ),
    "two GiB": (unpacking_to(2 * GIB), "unpacks to more than 128 MiB"),
    "a header of a GiB": (
        HEAD + gzip.compress(bytes(64 << 20), 1) * 16,
        "unpacks to more than 128 MiB",
    ),
    "no gzip": (b"PK\x03\x04", "is no tar archive, compressed by gzip"),
    "no tar": (gzip.compress(b"x" * 2_000), "is no tar archive, compressed by gzip"),
    "half of one": (packed()[:200], "is no tar archive, compressed by gzip"),
    "half of a file": (
        gzip.compress(gzip.decompress(packed(files={"x": b"x" * 5_000}))[:3_000]),
        "is no tar archive, compressed by gzip",
    ),
    "zlib": (zlib.compress(b"x"), "is no tar archive, compressed by gzip"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_no_checkout_would_have_is_refused_as_a_whole(content, said):
    with pytest.raises(ConfigError) as caught:
        read(content)
    assert str(caught.value).startswith("here: ")
    assert said in str(caught.value)


def test_a_folder_that_is_not_there():
    for folder in ("other/", "fleet.yaml/"):
        with pytest.raises(ConfigError, match=f"no folder '{folder[:-1]}' in it"):
            read(packed(), folder)
    with pytest.raises(InvalidRepository, match=r"fleet\.yaml"):
        read(packed(), "bindings/")


def test_all_that_a_byte_changes_is_refused_or_read():
    """No exception but those that are named, wherever an archive is damaged."""
    raw = bytearray(gzip.decompress(packed()))
    for place in range(0, 3 * 512, 7):
        damaged = bytes([*raw[:place], raw[place] ^ 0x5A, *raw[place + 1 :]])
        try:
            found = read(gzip.compress(damaged, 1))
        except ConfigError:
            continue
        assert found.entry == "fleet.yaml"
