"""`make release`: the same bytes of the same commit; signed, or said not to be."""

import base64
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.contract import test_airgap as of_release
from tests.release import __main__ as program
from tests.release import building, evidence, sign
from tests.support.shells import ran

ROOT = Path(__file__).parents[3]
KEY = ec.derive_private_key(1234567, ec.SECP256R1())
EPOCH = 1_700_000_000


def pem(key, encryption=None):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    )


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "release.pub"
    path.write_bytes(
        KEY.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return path


def verified(public, signature, content, folder):
    """Return whether openssl takes a signature in base64 for one of these bytes."""
    files = {"sig": base64.b64decode(signature), "content": content}
    for name, bytes_ in files.items():
        (folder / name).write_bytes(bytes_)
    command = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", "sig", "content"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


REFUSED = {
    "no PEM": (b"my key", "no private key"),
    "a public key": (b"-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n", "no private"),
    "of RSA": (pem(rsa.generate_private_key(65537, 2048)), "not of ECDSA P-256"),
    "of another curve": (pem(ec.generate_private_key(ec.SECP384R1())), "not of ECDSA P-256"),
    "with a password": (pem(KEY, serialization.BestAvailableEncryption(b"x")), "openssl pkey"),
    "of cosign": (b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\neyJ\n", "openssl pkey"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_key_is_refused_in_a_sentence_that_shows_nothing_of_it(case, capsys, tmp_path):
    given, named = REFUSED[case]
    environ = {sign.KEY: given.decode()}
    code = sign.main([str(tmp_path)], environ)
    said = capsys.readouterr()
    assert code == 1
    assert said.err.startswith("Error: the key ")
    assert named in said.err
    assert [line for line in given.decode().splitlines() if line in said.err] == []
    assert [*tmp_path.iterdir()] == []
    assert environ == {}  # for no program that builds


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    of_release.images(folder)
    return folder


def released(output, images, **changes):
    command = [sys.executable, "-m", "tests.release", f"--output={output}", f"--images={images}"]
    command += ["--without-plugins"]
    return ran(command, cwd=ROOT, **changes)


@pytest.fixture(scope="module")
def release(tmp_path_factory, images):
    output = tmp_path_factory.mktemp("release") / "dist"
    done = released(output, images)
    assert done.returncode == 0, done.stderr
    assert sign.main([str(output)], {sign.KEY: pem(KEY).decode()}) == 0
    return output


def test_a_release_is_the_same_again_to_the_byte(release, images, tmp_path):
    """Another umask, over an earlier release: nothing of it stays."""
    (tmp_path / "klutchctl-0.0.9.tar.gz").write_text("old")
    program.vouch(tmp_path, evidence.Source("c" * 40), {}, evidence.LOCAL)
    done = released(tmp_path, images, umask=0o077)
    assert done.returncode == 0, done.stderr
    assert sign.main([str(tmp_path)], {sign.KEY: pem(KEY).decode()}) == 0
    assert contents(tmp_path) == contents(release)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*")}


def test_a_release_is_vouched_for_as_a_whole(release, public, tmp_path):
    checked = ran(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, check=True)
    named = {line.removesuffix(": OK") for line in checked.stdout.splitlines()}
    assert named | {"SHA256SUMS", *evidence.SIGNATURES} == {path.name for path in release.iterdir()}
    sums = (release / "SHA256SUMS").read_bytes()
    assert verified(public, (release / "SHA256SUMS.sig").read_bytes(), sums, tmp_path)
    stated = json.loads((release / "provenance.json").read_text())
    subjects = {one["name"] for one in stated["subject"]}
    assert named - subjects == {"provenance.json"}
    commit = ran(["git", "rev-parse", "HEAD"], cwd=ROOT)
    kinds = (stated["_type"], stated["predicateType"])
    assert kinds == ("https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1")
    assert stated["predicate"]["runDetails"] == {"builder": {"id": evidence.LOCAL}}
    source, *locks = stated["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": commit.stdout.strip()}
    assert {"requirements.txt", "requirements-build.txt"} <= {one["name"] for one in locks}
    (line,) = (release / "provenance.intoto.jsonl").read_text().splitlines()
    envelope = json.loads(line)
    body, (signature,) = base64.b64decode(envelope["payload"]), envelope["signatures"]
    assert json.loads(body) == stated
    kind = "application/vnd.in-toto+json"
    assert envelope["payloadType"] == kind
    signed = f"DSSEv1 {len(kind)} {kind} {len(body)} ".encode() + body
    assert verified(public, signature["sig"], signed, tmp_path)
    assert not verified(public, signature["sig"], body, tmp_path)


def test_a_release_has_a_wheel_an_sdist_charts_crds_images_and_the_bundle(
    release, public, tmp_path
):
    (wheel,) = release.glob("*.whl")
    times = {one.date_time for one in zipfile.ZipFile(wheel).infolist()}
    assert len(times) == 1
    names = {path.name for path in release.iterdir()}
    assert {
        "klutchctl-0.1.0.tar.gz",
        "klutch-bind-0.1.0.tgz",
        "konnector-0.1.0.tgz",
        "klutchctl-controller-0.1.0.tgz",
        "klutchctl-0.1.0-crds.yaml",
        "klutchctl-0.1.0-crds-dataservices.yaml",
        "klutchctl-0.1.0-airgap.tar",
        *(f"{name}.{kind}" for name in building.IMAGES for kind in of_release.KINDS),
    } <= names
    with tarfile.open(release / "klutchctl-0.1.0-airgap.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "klutchctl-0.1.0-airgap"
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)
    for name in ("konnector-0.1.0.tgz", "konnector.oci.tar", "klutchctl-0.1.0-crds.yaml"):
        (packed,) = folder.rglob(name)
        assert packed.read_bytes() == (release / name).read_bytes()


@pytest.mark.parametrize("sums", ["", evidence.sums({"debian.iso": "0" * 64})])
def test_a_folder_with_other_files_is_left_alone(tmp_path, capsys, sums):
    """Whoever downloads has files called SHA256SUMS, too."""
    files = {"thesis.md": "mine"} | ({evidence.SUMS: sums} if sums else {})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert program.main([f"--output={tmp_path}"]) == 1
    assert f"files that are no release: {', '.join(sorted(files))}." in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_without_a_key_nothing_is_signed_and_it_is_said(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    program.vouch(tmp_path, evidence.Source("c" * 40), {}, evidence.LOCAL)
    assert sign.main([str(tmp_path)], {}) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"file", "provenance.json", "SHA256SUMS"}
    assert "Not signed: no key was given." in capsys.readouterr().out


def test_digests_are_all_that_is_signed(tmp_path, capsys):
    """S20: no file of the release is there; a provenance without a checksum is refused."""
    (tmp_path / "file").write_text("x")
    program.vouch(tmp_path, evidence.Source("c" * 40), {}, evidence.LOCAL)
    (tmp_path / "file").unlink()
    assert sign.main([str(tmp_path)], {sign.KEY: pem(KEY).decode()}) == 0
    (tmp_path / evidence.PROVENANCE).write_text("{}")
    for name in evidence.SIGNATURES:
        (tmp_path / name).unlink()
    assert sign.main([str(tmp_path)], {sign.KEY: pem(KEY).decode()}) == 1
    assert "is not the one that" in capsys.readouterr().err
    assert not any((tmp_path / name).exists() for name in evidence.SIGNATURES)


def test_the_key_of_a_release_is_where_nothing_builds():
    """S20: in one step of a job that gets digests alone, since `make` keeps its text."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text("utf-8"))["jobs"]
    with_key = {
        (name, step.get("run")) for name, job in jobs.items() for step in job["steps"]
        if "RELEASE_KEY" in json.dumps(step)
    }  # fmt: skip
    assert with_key == {("sign", "make sign")}
    assert "RELEASE_KEY" not in json.dumps({name: job.get("env") for name, job in jobs.items()})
    got = [step["with"] for step in jobs["sign"]["steps"] if "download" in step.get("uses", "")]
    assert [one["name"] for one in got] == ["digests"]
    (given,) = (
        step["with"]["path"].split() for step in jobs["build"]["steps"]
        if step.get("with", {}).get("name") == "digests"
    )  # fmt: skip
    assert given == [f"dist/{one}" for one in (evidence.SUMS, evidence.PROVENANCE)]
    assert jobs["sign"]["needs"] == "build"
    assert {*jobs["publish"]["needs"]} == {"build", "sign"}
