"""`klutchctl show`: a saved plan in each format, and files that are no plan."""

import json

import pytest

from klutchctl import main
from klutchctl.render import plan_json, plan_markdown, plan_text
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.planning import planfile
from reconciler.planning.changes import Action, Change, Plan

PLAN = planfile.identified(
    Plan(
        fleet="acme",
        revision="",
        digest="",
        changes=(Change("shop", "db", Ref("shop", CONFIG_MAP, "ns", "a"), Action.CREATE, "new"),),
        sections={"shop": "eu"},
        clusters_total=1,
    )
)
FORMATS = {
    "text": ([], plan_text.render(PLAN)),
    "text by name": (["-o", "text"], plan_text.render(PLAN)),
    "json": (["-o", "json"], plan_json.render(PLAN)),
    "markdown": (["--output", "markdown"], plan_markdown.render(PLAN)),
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(planfile.dump(PLAN))
    return path


@pytest.mark.parametrize(("options", "output"), FORMATS.values(), ids=FORMATS.keys())
def test_formats(capsys, file, options, output):
    assert main.run(["show", str(file), *options]) == 0
    assert capsys.readouterr().out == output


def test_several_formats_at_once(capsys, file, tmp_path):
    comment = tmp_path / "comment.md"
    assert main.run(["show", str(file), "-o", "text", "-o", f"markdown={comment}"]) == 0
    assert capsys.readouterr().out == plan_text.render(PLAN)
    assert comment.read_text() == plan_markdown.render(PLAN)


def test_the_json_output_is_a_plan_file(capsys, file, tmp_path):
    main.run(["show", str(file), "-o", "json"])
    other = tmp_path / "other.json"
    other.write_text(capsys.readouterr().out)
    assert main.run(["show", str(other)]) == 0
    assert capsys.readouterr().out == plan_text.render(PLAN)


REFUSED = {
    "not a plan": (b"{}", 3, "{file}: not a plan. `klutchctl plan --out FILE` writes one"),
    "an edited plan": (
        json.dumps({**json.loads(planfile.dump(PLAN)), "fleet": "b"}).encode(),
        3,
        "{file}: the plan was changed after it was written",
    ),
    "no file": (None, 1, "No such file or directory: {file}"),
}


@pytest.mark.parametrize(("content", "code", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(capsys, tmp_path, content, code, says):
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_bytes(content)
    assert main.run(["show", str(file)]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(f"Error: {says.format(file=file)}")
    assert captured.out == ""


def test_an_unknown_format_is_a_usage_error(capsys, file):
    assert main.run(["show", str(file), "-o", "xml"]) == 64
