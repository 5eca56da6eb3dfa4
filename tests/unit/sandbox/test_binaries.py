"""Where the executables come from, official ones too, and every way in which getting them fails."""

import hashlib
import io
import platform
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from klutchctl import files, main
from klutchctl.sandbox import recipes
from klutchctl.sandbox.binaries import Origins
from klutchctl.sandbox.servers import Program
from reconciler.core.errors import HostError
from tests.support.answering import answering

RECIPE = recipes.of().recipe
ENTRY = RECIPE.id


def test_a_build_is_made_once_and_then_found(workshop):
    workshop.go()
    first = workshop.provide()
    assert first == workshop.provide()
    assert set(first) == set(Program)
    assert all(path.parent.name == ENTRY for path in first.values())
    assert workshop.builds == 1
    assert workshop.entries() == {ENTRY}


FAILURES = {
    "a compile error shows the last lines": (
        'echo "main.go:3: undefined: x"; exit 1',
        r"status 1:\n.*undefined: x",
    ),
    "go itself killed": ("kill -9 $$", "status -9"),
}


@pytest.mark.parametrize(("does", "says"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_build_says_why_and_leaves_nothing(workshop, does, says):
    workshop.go(does)
    with pytest.raises(HostError, match=f"(?s){says}") as caught:
        workshop.provide()
    assert caught.value.hint
    assert workshop.entries() == set()
    workshop.go()
    workshop.provide()
    assert workshop.entries() == {ENTRY}


TOOLCHAINS = {
    "too old": ("go1.25.9", "is go1.25.9"),
    "too old, though its number sorts later as text": ("go1.9", "is go1.9"),
    "of no version": ("devel", "is devel"),
}


@pytest.mark.parametrize(("version", "says"), TOOLCHAINS.values(), ids=TOOLCHAINS.keys())
def test_a_go_that_cannot_do_it_is_named(workshop, version, says):
    workshop.go(version=version)
    with pytest.raises(HostError, match=f"no Go toolchain of version 1.26 .*{says}") as caught:
        workshop.provide()
    for remedy in ("'.[sandbox]'", "--download", "KUBEBUILDER_ASSETS"):
        assert remedy in caught.value.hint


def test_the_entry_is_another_when_sources_versions_or_flags_change(tmp_path):
    module = tmp_path / "module"
    shutil.copytree(recipes.MODULE, module)
    original = recipes.of(module)
    assert original.recipe.id == ENTRY
    assert original.recipe.id.startswith("v1.36.3-")
    (module / "etcd" / "main.go").write_text("package main\n")
    assert recipes.of(module).recipe.id != original.recipe.id


def test_a_disk_that_fills_up_is_reported_as_such(tmp_path):
    with (
        pytest.raises(HostError, match=rf"no space left for {tmp_path}.*XDG_STATE_HOME"),
        files.full_disk_explained(tmp_path, variable="XDG_STATE_HOME"),
    ):
        Path("/dev/full").write_text("x")


ETCD = "etcd-v3.6.8-linux-amd64"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The folder that the server shows."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    folder = tmp_path / "site"
    kubernetes = folder / "kubernetes/v1.36.3/bin/linux/amd64"
    kubernetes.mkdir(parents=True)
    for program in (Program.API_SERVER, Program.CONTROLLER_MANAGER):
        content = f"this is {program}".encode()
        (kubernetes / program).write_bytes(content)
        (kubernetes / f"{program}.sha512").write_text(hashlib.sha512(content).hexdigest())
    (folder / "etcd/v3.6.8").mkdir(parents=True)
    publish_etcd(folder / "etcd/v3.6.8")
    return folder


def publish_etcd(folder):
    with tarfile.open(folder / f"{ETCD}.tar.gz", "w:gz") as tar:
        content = b"this is etcd"
        member = tarfile.TarInfo(f"{ETCD}/etcd")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    digest = hashlib.sha256((folder / f"{ETCD}.tar.gz").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  other.zip\n{digest}  {ETCD}.tar.gz\n")


@pytest.fixture
def origins(site):
    def answer(asked):
        file = site / asked.target.strip("/")
        return (200, {}, file.read_bytes()) if file.is_file() else (404, {}, b"")

    with answering(answer) as port:
        base = f"http://127.0.0.1:{port}"
        yield Origins(kubernetes=f"{base}/kubernetes", etcd=f"{base}/etcd")


def test_all_programs_are_fetched_checked_and_kept(workshop, origins):
    paths = workshop.provide(downloads=origins)
    for program in Program:
        assert paths[program].read_text() == f"this is {program}"
        assert paths[program].stat().st_mode & 0o111
    assert {file.name for file in paths[Program.ETCD].parent.iterdir()} == {*Program}
    assert workshop.builds == 0


@pytest.mark.parametrize("old", [["--nodes"], ["--images", "folder"]])
def test_the_flags_of_nodes_say_that_there_are_none(old, capsys):
    assert main.run(["sandbox", "up", *old]) == 64
    assert "use kind to run the manifests as pods" in capsys.readouterr().err


KUBERNETES = "kubernetes/v1.36.3/bin/linux/amd64"
SPOILT = {
    "a changed binary": (f"{KUBERNETES}/kube-apiserver", b"evil", "sha512 checksum"),
    "a changed archive": (f"etcd/v3.6.8/{ETCD}.tar.gz", b"evil", "sha256 checksum"),
    "a list without our file": ("etcd/v3.6.8/SHA256SUMS", b"0  x\n", "do not list"),
    "an empty checksum": (f"{KUBERNETES}/kube-apiserver.sha512", b"", "checksum"),
    "a missing file": (f"{KUBERNETES}/kube-controller-manager", None, "answers 404"),
}


@pytest.mark.parametrize(("file", "content", "says"), SPOILT.values(), ids=SPOILT.keys())
def test_what_does_not_match_is_refused(workshop, site, origins, file, content, says):
    if content is None:
        (site / file).unlink()
    else:
        (site / file).write_bytes(content)
    with pytest.raises(HostError, match=says):
        workshop.provide(downloads=origins)
    assert workshop.entries() == set()


def test_no_network(workshop, site):
    nowhere = Origins(kubernetes="http://127.0.0.1:1", etcd="http://127.0.0.1:1")
    with pytest.raises(HostError, match=r"cannot be read: .*refused.*HTTPS_PROXY"):
        workshop.provide(downloads=nowhere)


# Not shared: libraries that the provider, one release older, needs at their old versions.
APART = {
    "github.com/antlr4-go/antlr/v4",
    "github.com/google/cel-go",
    "github.com/stoewer/go-strcase",
    "golang.org/x/exp",
    "github.com/crossplane/crossplane-runtime/v2",
}


def test_go_compiles_a_package_once_for_all_that_the_demo_builds():
    versions: dict[str, set[str]] = {}
    for recipe in (RECIPE, recipes.of_crossplane("2.4"), recipes.of_provider()):
        text = (recipe.module / "go.mod").read_text()
        for name, version in re.findall(r"^\s+(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE):
            versions.setdefault(name, set()).add(version)
    assert {name for name, found in versions.items() if len(found) > 1} == APART
