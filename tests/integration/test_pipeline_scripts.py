"""What the pipelines of fleet-example share: the script that applies, and that which comments."""

import os
import sys
from pathlib import Path

import pytest

from klutchctl.entry import ExitCode
from tests.support.forge import Forge, on_github, on_gitlab, serving
from tests.support.shells import ran

PIPELINES = Path(__file__).parents[2] / "fleet-example" / "pipelines"
APPLY, COMMENT = PIPELINES / "apply.sh", PIPELINES / "comment.py"


@pytest.fixture
def stub(tmp_path):
    """A klutchctl that ends with the codes of a file, one after the other."""
    program = tmp_path / "bin" / "klutchctl"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "$*" >> calls\ncode=$(head -n 1 codes) && sed -i 1d codes && exit $code\n'
    )
    program.chmod(0o755)
    environ = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "LOCK_PAUSE": "0"}

    def applied(codes, **more):
        (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
        (tmp_path / "calls").unlink(missing_ok=True)
        done = ran(["sh", APPLY, "fleet.plan"], env=environ | more, cwd=tmp_path)
        return done.returncode, (tmp_path / "calls").read_text().splitlines(), done.stderr

    return applied


def test_who_holds_the_lock_is_waited_for(stub):
    code, calls, output = stub([8, 8, 0])
    assert (code, output) == (0, "")
    assert calls == ["apply fleet.plan --repository . --wait -o text -o junit=apply.xml"] * 3


def test_nobody_is_waited_for_for_ever(stub):
    code, calls, output = stub([8] * 9, LOCK_TRIES="3")
    assert (code, len(calls)) == (8, 3)
    assert "holds the lock" in output


@pytest.mark.parametrize("first", [one for one in ExitCode if one not in (0, 8)])
def test_nothing_else_is_tried_again(stub, first):
    code, calls, output = stub([first.value, 0])
    assert (code, len(calls)) == (first, 1)
    assert output.count("\n") == 1
    if first is ExitCode.STALE:
        assert "it plans anew" in output


COMMENTS = {
    "github": (on_github, "PATCH", "/repos/acme/fleet/issues"),
    "gitlab": (on_gitlab, "PUT", "/api/v4/projects/42/merge_requests/7/notes"),
}


@pytest.fixture(params=COMMENTS.values(), ids=list(COMMENTS))
def forge(request, tmp_path):
    environ_of, change, place = request.param
    with serving(Forge()) as forge:

        def comment(text, **more):
            file = tmp_path / "plan.md"
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            return ran([sys.executable, COMMENT, file], env=environ_of(forge) | more)

        yield forge, comment, change, place


def test_there_is_one_comment_and_it_is_kept_up_to_date(forge):
    api, comment, change, place = forge
    api.comments += (
        {"id": n, "body": None if n == 3 else "from a person", **api.by("person")}
        for n in range(1, 151)
    )
    for text in ("### Plan 1\n", "### Plan 2 \u2026\n"):
        done = comment(text)
        assert (done.returncode, done.stderr) == (0, "")
        (ours,) = [one for one in api.comments if "### Plan" in (one["body"] or "")]
        assert ours["body"].endswith(text)
    asked = [(verb, path) for verb, path, _ in api.asked if not path.endswith("/user")]
    assert [verb for verb, _ in asked] == ["GET", "GET", "POST", "GET", "GET", change]
    assert all(path.startswith(place) for _, path in asked)
    assert all("canary" in token for _, _, token in api.asked)


def test_the_plan_of_an_earlier_push_does_not_stay(forge):
    api, comment, _, _ = forge
    assert comment("### Plan 1\n").returncode == 0
    assert comment(None).returncode == 0
    (ours,) = api.comments
    assert "### No plan" in ours["body"]
    assert "Plan 1" not in ours["body"]


MARK = "<!-- klutchctl plan -->"
STRANGERS = {
    "a person": {"body": f"{MARK}\nI wrote this."},
    "the mark alone": {"body": MARK},
    "somebody who is gone": {"body": f"{MARK}\nx", "user": None, "author": None},
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
def test_t20_a_comment_of_somebody_else_is_left_alone(forge, stranger):
    api, comment, change, _ = forge
    theirs = {"id": 1, **api.by("mallory"), **stranger}
    api.comments.append(dict(theirs))
    for text in ("### Plan 1\n", "### Plan 2\n"):
        assert comment(text).returncode == 0
    assert api.comments[0] == theirs
    assert [one["body"] for one in api.comments[1:]] == [f"{MARK}\n### Plan 2\n"]
    assert [verb for verb, _, _ in api.asked if verb != "GET"] == ["POST", change]


def test_t20_the_name_of_another_token_of_github(tmp_path):
    with serving(Forge()) as api:
        api.comments.append({"id": 1, "body": f"{MARK}\nold", **api.by("acme-fleet[bot]")})
        (tmp_path / "plan.md").write_text("### Plan\n")
        for environ, number in (({}, 2), ({"COMMENT_AUTHOR": "acme-fleet[bot]"}, 1)):
            command = [sys.executable, COMMENT, tmp_path / "plan.md"]
            assert ran(command, env=on_github(api) | environ).returncode == 0
            assert api.comments[number - 1]["body"] == f"{MARK}\n### Plan\n"
        assert len(api.comments) == 2


@pytest.mark.parametrize("answer", [302, 403, 500])
def test_a_comment_that_is_refused_is_reported_in_a_sentence(forge, answer):
    api, comment, _, _ = forge
    api.answer = answer
    done = comment("### Plan\n")
    assert done.returncode == 1
    assert done.stderr.startswith(f"The comment was refused: HTTP {answer}")
    assert "canary" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(api.asked) == 1


def test_a_variable_that_is_missing_is_named(tmp_path):
    with serving(Forge()) as forge:
        environ = on_github(forge)
        del environ["GITHUB_TOKEN"]
        (tmp_path / "plan.md").write_text("### Plan\n")
        done = ran([sys.executable, str(COMMENT), str(tmp_path / "plan.md")], env=environ)
        assert (done.returncode, done.stderr) == (1, "GITHUB_TOKEN is not set\n")
