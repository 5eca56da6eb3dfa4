"""`--git` of the commands that read files once: a commit on a server is read as a folder is."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from klutchctl import main
from reconciler.core.live import Live, dump_live
from tests.support.checkouts import commit_files
from tests.support.fleet_texts import BINDING, GOOD
from tests.support.git_server import home, repository, server
from tests.support.signing import ed25519, signed_commit

__all__ = ["home", "repository", "server"]

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")
OTHER = {**GOOD, "bindings/db.yaml": BINDING.replace("name: db", "name: other")}


def tree(files):
    return {f"fleets/{path}": text.encode() for path, text in files.items()}


@pytest.fixture
def run(server, repository, tmp_path, monkeypatch, capsys):
    """A function that runs a command on the repository; it returns exit code and both streams."""
    monkeypatch.chdir(tmp_path)
    named = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("cp", "shop")]
    access = {
        "contexts": named,
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    Path("kubeconfig").write_text(json.dumps(access))
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    Path("live.json").write_bytes(dump_live(Live({}, {}, {})))
    Path("allowed").write_text(f"*@acme.example {ed25519().line}\n")

    def made(line, url=f"{server.url}/fleet.git"):
        command, *more = line.split()
        return main.run([command, "fleets", "--git", url, *more]), *capsys.readouterr()

    return made


COMMANDS = {
    "validate": "validate -o json",
    "render": "render -o json",
    "plan": "plan --snapshot live.json -o json",
    "diff": "diff --snapshot live.json -o json",
}


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_a_branch_a_tag_and_a_commit_are_read_as_a_folder_is(
    line, run, repository, capsys, tmp_path
):
    def common(text):
        document = json.loads(text)
        return {key: one for key, one in document.items() if key not in ("id", "revision")}

    first = commit_files(repository, tree(GOOD))
    repository.references.create("refs/tags/v1", first)
    second = commit_files(repository, tree(OTHER))
    for files, refs, revision in (
        (GOOD, (first, "v1", "refs/tags/v1"), first),
        (OTHER, (second, "main", "HEAD"), second),
    ):
        found = [run(f"{line} --ref {ref}") for ref in refs]
        assert found[1:] == found[:-1]
        for path, content in files.items():
            (tmp_path / "fleets" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "fleets" / path).write_text(content)
        command, *more = line.split()
        assert main.run([command, "fleets", *more]) == found[0][0]
        assert common(found[0][1]) == common(capsys.readouterr().out)
        assert command == "validate" or json.loads(found[0][1])["revision"] == revision


def test_a_saved_plan_is_applied_to_its_commit_on_the_server(run, repository, server, capsys):
    planned = commit_files(repository, tree(GOOD))
    run(f"plan --snapshot live.json --out a.plan --ref {planned}")
    commit_files(repository, tree(OTHER))
    dry = ["apply", "a.plan", "--dry-run", "--git", f"{server.url}/fleet.git"]
    assert main.run([*dry, "--ref", planned]) == main.run(dry) == 1  # no cluster was read
    assert f"Fleet acme @ {planned[:7]}" in capsys.readouterr().out
    assert main.run([*dry, "--ref", "v1"]) == 1
    repository.references.delete("refs/heads/main")
    commit_files(repository, tree(OTHER))
    assert main.run(dry) == 7
    assert "is not in it" in capsys.readouterr().err


FAULTS = {
    "an unknown commit": ("--ref " + "f" * 40, 3, "is not in it. It was never pushed, or was"),
    "an unknown branch": ("--ref other", 3, "'other' is not in it"),
    "no signature": ("--verify head --allowed-signers allowed", 4, "it has no signature"),
    "no keys": ("--verify head", 3, "there are no keys to verify signatures with"),
    "a memory": ("--verify history --allowed-signers allowed", 64, "only a controller keeps"),
    "another mode": ("--verify some", 64, "'some' is not one of off, head, tag, history"),
}


@pytest.mark.parametrize(("options", "code", "said"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_used_is_named(options, code, said, run, repository):
    commit_files(repository, tree(GOOD))
    assert run("validate")[0] == 0
    found, out, err = run(f"validate {options}")
    assert (found, out) == (code, "")
    assert said in " ".join(err.replace("│", "").split())


def test_a_signed_commit_is_used(run, repository):
    signed_commit(repository, tree(GOOD), ed25519())
    assert run("validate --verify head --allowed-signers allowed")[0] == 0


def test_a_server_that_is_down_or_silent_ends_the_run_as_a_failure(
    run, repository, server, monkeypatch
):
    """Exit code 1: unlike 3, a Job tries it again."""
    head = commit_files(repository, tree(GOOD))
    server.broken = True
    for ref in ("main", head):
        code, _, err = run(f"apply --auto-approve --ref {ref}")
        assert (code, "500" in err) == (1, True)
    monkeypatch.setattr("reconciler.source.remote._SILENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/fleet.git"
        for ref in ("main", head):
            code, _, err = run(f"apply --auto-approve --ref {ref}", url)
            assert (code, "cannot be fetched" in err) == (1, True)


def test_a_pull_request_on_a_server_is_judged_by_its_branch_there(run, repository):
    base = commit_files(repository, tree(GOOD))
    repository.references.create("refs/heads/topic", base)
    commit_files(repository, tree(OTHER), "refs/heads/topic")
    _, out, _ = run("plan --snapshot live.json --ref topic --base main -o json")
    against = json.loads(out)["summary"]["against"]
    assert (against["ref"], against["revision"]) == ("main", base)
    assert [one["name"] for one in against["edits"]] == ["other"]


@pytest.mark.parametrize("output", ["json", "text=plan.txt"])
def test_a_dry_run_leaves_no_output_that_was_asked_for_unwritten(output, capsys):
    assert main.run(["apply", "--dry-run", "-o", output]) == 64
    assert "`klutchctl plan -o` has other formats" in " ".join(capsys.readouterr().err.split())


REFUSED = ("--verify head", "--git-ca f", "--allowed-signers f", "--gpg-keys f")


@pytest.mark.parametrize("options", REFUSED)
def test_trust_without_a_server_is_refused(options, capsys):
    assert main.run(["validate", *options.split()]) == 64
    assert " --git" in capsys.readouterr().err.rpartition("need")[2]


def test_a_url_with_a_password_is_refused_and_not_repeated(capsys):
    for command in ("validate", "plan", "apply", "status", "render", "drift"):
        assert main.run([command, "--git", "https://me:hunter2canary@git.example.com/f.git"]) == 64
        said = capsys.readouterr().err
        assert "it contains a password" in " ".join(said.split())
        assert "hunter2canary" not in said
