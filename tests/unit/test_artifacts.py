"""`--artifact` and `--oci`: an archive on a server, which its digest vouches for."""

import base64
import hashlib
import json
from dataclasses import dataclass, field

import pytest

from klutchctl import main
from tests.support import git_server
from tests.support.answering import answering
from tests.support.fleet_texts import GOOD
from tests.unit.source.test_archive import packed

CONTENT = packed()
SUMMARY = "acme: 1 control plane, 1 cluster, 1 template, 1 binding -> 1 unit\n"
LAYER = "application/vnd.cncf.flux.content.v1.tar+gzip"


def digest_of(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def manifest(*layers):
    return json.dumps({"schemaVersion": 2, "layers": layers}).encode()


MANIFEST = manifest({"mediaType": LAYER, "digest": digest_of(CONTENT), "size": len(CONTENT)})


@dataclass
class Registry:
    """Serves `files` by path; with `token`, to who brings what /token gives for a password."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    token: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def host(self):
        return f"localhost:{self.port}"

    def put(self, content, kind="blobs"):
        self.files[f"/v2/team/fleet/{kind}/{digest_of(content)}"] = content
        return f"{self.host}/team/fleet@{digest_of(content)}"

    def answer(self, asked):
        path, given = asked.target.partition("?")[0], asked.headers.get("Authorization", "")
        self.seen.append((asked.target, given))
        password = base64.b64encode(b"me:hunter2canary").decode()
        if path == "/token":
            good = given == f"Basic {password}"
            return 200 if good else 403, {}, json.dumps({"token": self.token}).encode()
        if path in self.moved:
            return 307, {"Location": self.moved[path]}, b""
        if self.token and path.startswith("/v2/") and given != f"Bearer {self.token}":
            said = f'Bearer realm="https://{self.host}/token",service="s",scope="pull"'
            return 401, {"WWW-Authenticate": said}, b""
        content = self.files.get(path)
        return 404 if content is None else 200, {}, content or b""


@pytest.fixture
def registry(tmp_path, monkeypatch):
    with git_server.served(tmp_path, tmp_path):  # makes the authority
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    made = Registry()
    with answering(made.answer, pem=tmp_path / "server.pem") as made.port:
        yield made


def said(arguments, capsys):
    code = main.run(arguments)
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


def test_an_archive_of_flux_is_read_by_its_digest(registry, capsys):
    registry.files["/gitrepository/x.tar.gz"] = CONTENT
    where = f"https://{registry.host}/gitrepository/x.tar.gz"
    good = ["--artifact", f"{where}@{digest_of(CONTENT)}"]
    assert said(["validate", *good], capsys) == (0, SUMMARY, "")
    code, out, _ = said(["render", *good, "-o", "json"], capsys)
    assert (code, json.loads(out)["revision"]) == (0, digest_of(CONTENT))
    code, _, err = said(["validate", "other", *good], capsys)
    assert (code, "there is no folder 'other' in it" in err) == (3, True)


def test_another_archive_under_the_digest_is_not_unpacked(registry, capsys, monkeypatch):
    monkeypatch.setattr("reconciler.source.artifact.read", lambda *_, **__: pytest.fail("unpacked"))
    registry.files["/x"] = packed(files={"fleet.yaml": GOOD["fleet.yaml"].encode()})
    for path, why in (("x", f"and not {digest_of(CONTENT)}"), ("x/gone", "HTTP 404")):
        where = f"https://{registry.host}/{path}@{digest_of(CONTENT)}"
        code, _, err = said(["plan", "--artifact", where], capsys)
        assert (code, why in err) == (1, True)


def log_in(tmp_path, host):
    auth = base64.b64encode(b"me:hunter2canary").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@pytest.mark.parametrize("opened", [False, True])
def test_an_oci_artifact_is_read_also_with_a_token_and_from_storage_elsewhere(
    opened, registry, tmp_path, capsys
):
    registry.put(CONTENT)
    found = registry.put(MANIFEST, "manifests")
    if opened:
        registry.token = "c4n4ry"
        code, _, err = said(["validate", "--oci", found], capsys)
        assert (code, "HTTP 403" in err) == (1, True)
        log_in(tmp_path, registry.host)
    blob = next(path for path in registry.files if "/blobs/" in path)
    registry.files["/storage"] = registry.files.pop(blob)
    registry.moved[blob] = f"https://{registry.host}/storage?signed=1"
    for name in (found, f"oci://{found}", found.replace("@", ":latest@")):
        assert said(["validate", "--oci", name], capsys) == (0, SUMMARY, "")
    code, out, _ = said(["render", "--oci", found, "-o", "json"], capsys)
    assert (code, json.loads(out)["revision"]) == (0, digest_of(MANIFEST))
    assert {given for path, given in registry.seen if path.startswith("/storage")} == {""}
    storage = Registry(token="wanted")
    with answering(storage.answer, pem=tmp_path / "server.pem") as storage.port:
        registry.moved[blob] = f"https://{storage.host}{blob}"
        assert said(["validate", "--oci", found], capsys)[0] == 1
    assert {given for _, given in storage.seen} == {""}


ARTIFACTS = {
    "two layers": manifest(*[{"mediaType": LAYER, "digest": digest_of(CONTENT)}] * 2),
    "no layer": manifest(),
    "another kind": manifest({"mediaType": "application/zip", "digest": digest_of(CONTENT)}),
    "no digest": manifest({"mediaType": LAYER, "digest": "sha256:../x"}),
    "no JSON": b"x",
    "another JSON": b"[[]]",
}


@pytest.mark.parametrize("content", ARTIFACTS.values(), ids=ARTIFACTS)
def test_what_is_no_artifact_of_files(content, registry, capsys):
    code, _, err = said(["validate", "--oci", registry.put(content, "manifests")], capsys)
    assert (code, "it is no artifact of one layer of tar+gzip" in err) == (3, True)


HEX = "@sha256:" + "a" * 64
REFUSED = {
    "a tag": (["--oci", "ghcr.io/team/fleet:latest"], 3, "it names no digest of SHA-256"),
    "no digest": (["--artifact", "https://x.example/y"], 3, "it names no digest of SHA-256"),
    "no repository": (["--oci", f"ghcr.io/{HEX}"], 3, "HOST/REPOSITORY@sha256:DIGEST"),
    "a path out": (["--oci", f"ghcr.io/../x{HEX}"], 3, "HOST/REPOSITORY@sha256:DIGEST"),
    "a password": (["--artifact", f"https://a:b@x.example/y{HEX}"], 3, "contains credentials"),
    "metadata": (["--artifact", f"http://169.254.169.254/y{HEX}"], 1, "where no URL may lead"),
    "two places": (["--oci", f"x/y{HEX}", "--git", "https://x.example/y"], 64, "name one of them"),
    "a ref": (["--oci", f"x/y{HEX}", "--ref", "main"], 64, "neither --ref nor --base"),
    "a base": (["--oci", f"x/y{HEX}", "--base", "main"], 64, "neither --ref nor --base"),
}


@pytest.mark.parametrize(("options", "code", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_never_asked(options, code, why, capsys):
    found, _, err = said(["validate", *options], capsys)
    assert (found, why in err.replace("│ ", "")) == (code, True), err


def test_an_archive_cannot_be_followed(capsys):
    code, _, err = said(["apply", "--watch", "--oci", f"x/y{HEX}"], capsys)
    assert (code, "are read once" in err) == (64, True)
