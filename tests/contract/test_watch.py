"""`klutchctl apply --watch` on real clusters, with backend and konnector at work."""

import signal

import pygit2

from reconciler.core.manifest import Manifest, get_list
from tests.support import git_server
from tests.support.apply_runs import files, mode, scene
from tests.support.checkouts import commit_work_tree
from tests.support.eventually import eventually
from tests.support.watching import watching

__all__ = ["files", "mode", "scene"]

OFTEN = ("--interval", "1")
LISTENING = ("--listen", "127.0.0.1:0")
QUICK = ("--poll", "0.5", "--wait-timeout", "20")
DRIFT: Manifest = {"spec": {"permissionClaims": []}}


def committed(files):
    """Commit all files, and return the repository."""
    repository = pygit2.init_repository(files, initial_head="main")
    commit_work_tree(repository)
    return repository


async def claims(scene):
    bound = await scene.at(scene.binding)
    return None if bound is None else len(get_list(bound, "spec", "permissionClaims"))


async def bound_with(scene, number):
    async def probe():
        return await claims(scene) == number

    await eventually(probe)


async def test_a_folder_is_followed_and_silence_costs_no_write(scene, files):
    async with scene.peers(), watching(scene.kubeconfig, str(files), *QUICK) as watch:
        await bound_with(scene, 1)
        await watch.says(" start (")
        marks = scene.marks()
        scene.fleet.claims = ", claims: []"
        scene.fleet.write()
        await bound_with(scene, 0)
        await watch.says("the files have changed")
        assert scene.writes(marks)
        marks = scene.marks()
        # A comment makes other files, and no other state.
        scene.fleet.extra = "# nothing\n"
        scene.fleet.write()
        await watch.says("as before: nothing to apply")
        assert await watch.end() == 143
        assert scene.writes(marks) == []
    assert await scene.lines() == []


async def test_a_checkout_that_was_cut_short_changes_nothing(scene, files):
    whole, _, more = (files / "fleet.yaml").read_text().rpartition("---\n")
    (files / "fleet.yaml").write_text(whole.replace("spec: {", "spec: {include: ['m*.yaml'], ", 1))
    (files / "more.yaml").write_text(more)
    committed(files)
    async with (
        scene.peers(),
        watching(scene.kubeconfig, str(files), *QUICK, *OFTEN, *LISTENING) as watch,
    ):
        await bound_with(scene, 1)

        async def is_unreadable():
            return await watch.metric("source_readable") == 0

        (files / "more.yaml").unlink()
        await watch.says("lacks more.yaml")
        await eventually(is_unreadable)  # so no round is on its way
        marks = scene.marks()
        await scene.app.cluster.merge_patch(scene.binding, DRIFT, manager="someone")

        async def is_ill():  # after more than three times the interval
            return (await watch.get("/healthz"))[0] == 503

        await eventually(is_ill)
        assert await watch.metric("source_failures_total") > 1
        assert scene.writes(marks) == []
        assert await claims(scene) == 0
        # What drifted meanwhile is repaired as soon as the files are there again.
        (files / "more.yaml").write_text(more)
        await bound_with(scene, 1)
        await watch.says("a look at everything")
        assert await watch.end() == 143


async def test_a_signal_ends_it_after_the_write_in_flight(scene, files):
    """Without peers, the round waits for an export when it is ended."""
    async with watching(scene.kubeconfig, str(files), "--wait-timeout", "600") as watch:
        await watch.says("create orders-db APIServiceExportRequest")
        assert await watch.end() == 143
        await watch.says("ended by SIGTERM: no new write starts")
        await watch.says("interrupted")
    async with scene.peers():
        await scene.apply("--wait")
    assert await scene.lines() == []


async def test_a_repository_on_a_server_is_followed_until_that_is_down(scene, files, tmp_path):
    bare = tmp_path / "root" / "fleet.git"
    committed(files)
    pygit2.clone_repository(str(files), str(bare), bare=True)
    (tmp_path / "token").write_text("hunter2canary")
    environ = {
        "SSL_CERT_FILE": str(tmp_path / "ca.crt"),
        "KLUTCHCTL_GIT_TOKEN_FILE": str(tmp_path / "token"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with git_server.served(bare.parent, tmp_path) as server:
        server.token = "hunter2canary"
        url = ("--git", f"{server.url}/fleet.git", "--ref", "main")
        async with (
            scene.peers(),
            watching(scene.kubeconfig, *url, *QUICK, *OFTEN, environ=environ) as watch,
        ):
            await bound_with(scene, 1)
            scene.fleet.claims = ", claims: []"
            scene.fleet.write()
            repository = committed(files)
            repository.remotes.create_anonymous(str(bare)).push(["refs/heads/main"])
            await bound_with(scene, 0)
            server.broken = True
            await watch.says("unexpected http status code: 500")
            assert await watch.end(signal.SIGINT) == 130
            assert "hunter2canary" not in watch.text
