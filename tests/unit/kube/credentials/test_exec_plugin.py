"""Real plug-ins: what they are given, what is taken from them, and that none outlives its run."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.connection import Connection, ExecPlugin
from reconciler.kube.kubeconfig import exec_plugin
from tests.support.eventually import eventually
from tests.support.kubeconfigs import leaks

V1 = "client.authentication.k8s.io/v1"
CONNECTION = Connection("c", "https://a")
ANSWER = json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"token": "t"}})
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS.values(), ids=list(LOOPS))
def on_loop(request):
    """Run a coroutine on a loop of its own, of both kinds."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture
def script(tmp_path):
    def write(body, name="plugin"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


def plugin(command, *args, **fields):
    defaults: dict[str, Any] = {
        "api_version": V1,
        "provide_cluster_info": False,
        "interactive_mode": "Never",
    }
    return ExecPlugin(str(command), tuple(map(Secret, args)), **defaults | {"env": ()} | fields)


def run(plugin, *, environ=os.environ, terminal=False, limit=None):
    return exec_plugin.run(plugin, CONNECTION, environ=environ, terminal=terminal, limit=limit)


def alive(script):
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if str(script) in (process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_a_token(on_loop, script):
    assert on_loop(run(plugin(script(f"cat <<'END'\n{ANSWER}\nEND")))).token == Secret("t")


def test_what_a_plug_in_is_given(on_loop, tmp_path):
    seen = tmp_path / "seen.json"
    path = tmp_path / "plugin"
    path.write_text(
        f"#!{sys.executable} -I\n"
        "import json, os, sys\n"
        "given = dict(args=sys.argv[1:], env=dict(os.environ), input=sys.stdin.read(),\n"
        "             alone=os.getsid(0) == os.getpid())\n"
        f"open({str(seen)!r}, 'w').write(json.dumps(given))\n"
        f"print({ANSWER!r})\n"
    )
    path.chmod(0o755)
    env = (("A", Secret("plugin's")), ("KUBERNETES_EXEC_INFO", Secret("not this")))
    environ = {"A": "machine's", "B": "b", "PATH": os.environ["PATH"]}
    on_loop(run(plugin(path, "$(id)", "a b", env=env), environ=environ))
    given = json.loads(seen.read_text())
    assert given["args"] == ["$(id)", "a b"]
    assert (given["env"]["A"], given["env"]["B"]) == ("plugin's", "b")
    assert json.loads(given["env"]["KUBERNETES_EXEC_INFO"])["spec"] == {"interactive": False}
    assert (given["input"], given["alone"]) == ("", True)


def test_a_bare_name_is_looked_up_on_the_path(on_loop, script, tmp_path):
    script(f"echo '{ANSWER}'", name="klutch-login")
    environ = {"PATH": f"/nowhere:{tmp_path}"}
    assert on_loop(run(plugin("klutch-login"), environ=environ)).token == Secret("t")


@pytest.mark.parametrize("path", ["", ".", "bin", "/nowhere"])
def test_a_bare_name_is_not_looked_up_in_the_current_folder(on_loop, script, monkeypatch, path):
    folder = script(f"echo '{ANSWER}'", name="klutch-login").parent
    (folder / "bin").symlink_to(folder)
    monkeypatch.chdir(folder)
    hint = "\x1b[1mRun:\n  brew install it"
    with pytest.raises(ConfigError) as caught:
        on_loop(run(plugin("klutch-login", install_hint=hint), environ={"PATH": path}))
    assert str(caught.value) == (
        "exec plug-in klutch-login: the command is not installed, or not executable. "
        "Run: brew install it"
    )


def test_a_command_that_is_not_executable(on_loop, script):
    path = script("true")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="not installed, or not executable"):
        on_loop(run(plugin(path)))


def test_a_command_that_the_system_refuses(on_loop, tmp_path):
    path = tmp_path / "plugin"
    path.write_text("#!/nowhere/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(ConfigError) as caught:
        on_loop(run(plugin(path)))
    assert str(caught.value) == f"exec plug-in {path}: cannot be started: No such file or directory"


UNSHOWN = "Run the command by itself: its output may contain a secret, so it is not shown here"
FAILURES = {
    "an exit status": ("echo canary; exit 3", f"failed with exit status 3. {UNSHOWN}"),
    "a short password among its complaints": (
        "echo 'bad password: hunter2' >&2; exit 1",
        f"failed with exit status 1. {UNSHOWN}",
    ),
    "much to complain about": (
        "i=0; while [ $i -lt 3000 ]; do echo 'complaint after complaint'; i=$((i+1)); done >&2;"
        " exit 1",
        f"failed with exit status 1. {UNSHOWN}",
    ),
    "a signal": ("kill -TERM $$", f"failed with signal 15. {UNSHOWN}"),
    "nothing printed": ("true", "printed no ExecCredential with a status"),
    "too much": (
        "exec head -c 9000000 /dev/zero",
        "printed more than 1048576 bytes and was stopped",
    ),
    "far too much": ("exec cat /dev/zero", "printed more than 1048576 bytes and was stopped"),
}


@pytest.mark.parametrize(("body", "want"), FAILURES.values(), ids=FAILURES.keys())
def test_failures(on_loop, script, body, want):
    path = script(body)
    secret = (("PASSWORD", Secret("canary pass")),)
    with pytest.raises(ConfigError) as caught:
        on_loop(run(plugin(path, "--secret", "canary", env=secret)))
    assert str(caught.value) == f"exec plug-in {path}: {want}"
    assert leaks(caught.value, ("canary", "hunter2")) == []
    assert alive(path) == []


def test_a_plug_in_that_hangs_is_stopped_with_its_children(on_loop, script):
    path = script('[ "$1" ] || "$0" child &\necho "canary waits for you" >&2\nsleep 1000')
    secret = (("PASSWORD", Secret("canary")),)
    with pytest.raises(ConfigError) as caught:
        on_loop(run(plugin(path, env=secret), limit=1))
    assert str(caught.value).startswith(
        f"exec plug-in {path}: did not answer within 1 s and was stopped"
    )
    assert leaks(caught.value, ("canary",)) == []
    on_loop(eventually(lambda: not alive(path)))


def test_children_that_keep_the_output_open_are_stopped(on_loop, script):
    path = script('[ "$1" ] && exec sleep 1000\n"$0" child &\necho unfinished')
    with pytest.raises(ConfigError, match="did not answer within 1 s"):
        on_loop(run(plugin(path), limit=1))
    on_loop(eventually(lambda: not alive(path)))


@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1"], ids=["pipes held", "pipes let go"])
def test_a_plug_in_may_leave_an_agent_behind(on_loop, script, tmp_path, redirect):
    path = script(
        f'[ "$1" ] && {{ echo $$ > "{tmp_path}/pid"; while :; do sleep 0.1; done; }}\n'
        f'"$0" child {redirect} &\n'
        f'while [ ! -s "{tmp_path}/pid" ]; do :; done\n'
        f"echo '{ANSWER}'"
    )
    try:
        assert on_loop(run(plugin(path))).token == Secret("t")
        assert alive(path)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_run_that_is_cancelled_leaves_nothing(on_loop, script, tmp_path):
    started = tmp_path / "started"
    path = script(f'[ "$1" ] || "$0" child &\necho > "{started}-$1"\nsleep 1000')

    async def cancel_it():
        task = asyncio.create_task(run(plugin(path)))
        await eventually(lambda: all(Path(f"{started}-{x}").exists() for x in ("", "child")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on_loop(cancel_it())
    on_loop(eventually(lambda: not alive(path)))


def test_a_run_can_be_cancelled_at_any_moment(on_loop, script):
    """Also while the process is being started, when nobody holds it yet."""
    path = script('[ "$1" ] || "$0" child &\nsleep 1000')

    async def cancel_after(milliseconds):
        task = asyncio.create_task(run(plugin(path)))
        await asyncio.wait([task], timeout=milliseconds / 1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for milliseconds in range(12):
        on_loop(cancel_after(milliseconds))
    on_loop(eventually(lambda: not alive(path)))


MODES = {
    "never, and nobody there": ("Never", False, False),
    "never, though somebody is there": ("Never", True, False),
    "if available, and nobody there": ("IfAvailable", False, False),
    "if available, and somebody there": ("IfAvailable", True, True),
    "always, and somebody there": ("Always", True, True),
}


@pytest.mark.parametrize(("mode", "terminal", "want"), MODES.values(), ids=MODES.keys())
def test_interactive(on_loop, script, tmp_path, mode, terminal, want):
    path = script(f"echo \"$KUBERNETES_EXEC_INFO\" > '{tmp_path}/info'; echo '{ANSWER}'")
    on_loop(run(plugin(path, interactive_mode=mode), terminal=terminal))
    assert json.loads((tmp_path / "info").read_text())["spec"] == {"interactive": want}


def test_an_interactive_plug_in_that_hangs_is_stopped(on_loop, script):
    path = script("exec sleep 1000")
    with pytest.raises(ConfigError, match=r"did not answer within 0\.1 s"):
        on_loop(run(plugin(path, interactive_mode="Always"), terminal=True, limit=0.1))


def test_a_plug_in_that_needs_a_person_and_has_none(on_loop, script):
    want = re.escape("needs a person at a terminal (interactiveMode: Always), and there is none")
    with pytest.raises(ConfigError, match=f"{want}$"):
        on_loop(run(plugin(script("true"), interactive_mode="Always")))
