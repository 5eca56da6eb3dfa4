"""What `klutchctl board` and `status -o html` take, and what they refuse."""

import pytest

from klutchctl import main
from klutchctl.render import status_document
from tests.support import boards

OTHERS = "--listen 0.0.0.0:0"


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "status.json"
    path.write_text(status_document.dump(boards.plain().board))
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("board --from FILE .", "so it takes no PATH"),
        ("board --plan FILE", "--plan needs --from"),
        ("board --from FILE --cluster shop", "--cluster and --selector narrow looks"),
        ("board --from FILE --listen 8080", "is not ADDR:PORT"),
        (f"board --from FILE {OTHERS}", "a proxy that authenticates has to stand in front"),
        ("board --from FILE --listen [::]:0", "Give --behind-proxy"),
        ("board --from FILE --listen board.example:0", "Give --behind-proxy"),
        ("status --from FILE --watch -o html", "is not FORMAT[=PATH]"),
    ],
)
def test_what_makes_no_sense_is_refused(line, said, given, capsys):
    assert main.run(line.replace("FILE", str(given)).split()) == 64
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_others_may_be_served_where_a_proxy_is_said_to_be_there(given, capsys, tmp_path):
    missing = str(tmp_path / "missing.json")
    assert main.run(["board", "--from", missing, *OTHERS.split(), "--behind-proxy"]) == 3
    assert "past the proxy reads all of this without a login" in capsys.readouterr().err


def test_a_file_of_a_status_that_was_written(given, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main.run(["status", "--from", str(given), "-o", f"html={page}"]) == 5
    assert "the app cluster has no CRD" in page.read_text("utf-8")
    assert "<script" not in page.read_text("utf-8")
    assert capsys.readouterr().out == ""
