"""U6: `apply` tells each step once: as it is done; then what failed, what waits, and the sums."""

import io
from dataclasses import replace

from klutchctl.commands import apply
from klutchctl.render import apply_report
from klutchctl.settings import Settings, parse_outputs
from reconciler.apply import Report
from reconciler.planning.changes import Plan
from tests.golden import values

REPORT = values.report()


def read(*options):
    return Settings({}, verbose="-v" in options)


def test_a_run_that_went_well_is_one_line():
    good = Report(Plan("acme", "", "", (), {}), REPORT.outcomes[:2])
    assert apply_report.text(good, whole=False) == "Applied: 1 done, 1 unchanged.\n"
    assert apply_report.text(replace(good, outcomes=())) == "Applied: nothing to do.\n"


def test_more_with_v_and_in_files(capsys, tmp_path):
    file = tmp_path / "report.txt"
    apply.show(REPORT, parse_outputs(["text", f"text={file}"], known=("text",)), read())
    assert "went-well" not in capsys.readouterr().out
    assert "went-well" in file.read_text()
    apply.show(REPORT, parse_outputs(["text"], known=("text",)), read("-v"))
    assert "went-well" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_step_stays_on_a_terminal_too():
    stream = Terminal()
    with apply_report.progress(stream) as shown:
        shown.stage("writing")
        for one in REPORT.outcomes:
            shown.outcome(one)
    output = stream.getvalue()
    for name in ("went-well", "was-so", "broke"):
        assert f"Secret {name}" in output


def test_each_step_is_a_line_of_a_log():
    stream = io.StringIO()
    with apply_report.progress(stream) as shown:
        for one in REPORT.outcomes:
            shown.outcome(one)
    assert stream.getvalue().splitlines()[0] == "shop: done: create orders Secret went-well"
    assert len(stream.getvalue().splitlines()) == len(REPORT.outcomes)
