"""The book of reasons, and what leads to it."""

import ast
import re
from typing import Final

import pytest

from klutchctl import main
from klutchctl.binding.checkup import Examined
from klutchctl.entry import ExitCode
from klutchctl.render import doctor, status
from reconciler.controller.events import Source, event_of
from reconciler.core.decision import Note, page_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.doctor.diagnosis import problem
from tests.support import boards, reason_book, site
from tests.support.reason_book import BOOK, NAMES, TEXT

SITE: Final = "https://docs.example.org/0.1.0"
SEE: Final = r"\b[Ss]ee ([A-Z]\w+)(?:(?:, (\w+))? and (\w+))?"


STRAY: Final = (
    'Note("Nope", "x")',
    'A: Final = "Nope"; Cause(1, 2, A)',
    'Condition(reason="Nope")',
    'released(seen, "Nope" if seen else "NotRead", "x")',
    'C = ("Nope", "x"); Note(*C)',
    'def why(): return "Nope", "x"\nreason, said = why(); Stop(reason, said)',
    'event = {"reason": "Nope"}',
    'held = ("NopeNope", f"{count} wait")',
    'def verified(): return UNKNOWN, "Nope", "x"',
    '_Fault({"Degraded": "NotRead"}.get(state, "Nope"), "x")',
    'Note(f"{what}Nope", "x")',
)


@pytest.mark.parametrize("code", STRAY)
def test_a_reason_elsewhere_fails_the_check(code: str) -> None:
    found = [reason for _, reason in reason_book.given(ast.parse(code))]
    assert [one for one in found if one not in NAMES | reason_book.SPELLED.keys()]


def test_the_book_has_what_programs_give_and_no_other() -> None:
    """`make check` prints the same."""
    assert [*reason_book.faults()] == []
    for one in BOOK:
        for other in re.findall(SEE, one.fields["Do"]):
            assert {name for name in other if name} <= NAMES, one.name


def test_explain_prints_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "massdeletion"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("MassDeletion (Spaces on the control plane)\n")
    assert "klutchctl.dev/confirm-mass-delete" in out


def test_texts_events_and_conditions_link_to_the_page_of_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages = {f"{SITE}/reasons/{name}/" for name, _ in site.reason_pages(TEXT)}
    assert {page_of(name, f"{SITE}/") for name in NAMES} == pages
    page = f"{SITE}/reasons/MassDeletion/"
    assert main.run(["explain", "MassDeletion", "--docs", SITE]) == 0
    assert capsys.readouterr().out.endswith(f"  Page:   {page}\n")
    board = boards.plain().board
    assert board is not None
    shown = {line.strip() for line in status.text(board, docs=SITE).splitlines()} & pages
    assert f"{SITE}/reasons/CrdMissing/" in shown
    assert pages.isdisjoint(line.strip() for line in status.text(board).splitlines())
    note, source = Note("MassDeletion", "ö" * 2_000), Source("tests", "tests-1", SITE)
    event = event_of(Ref("", NAMESPACE, "", "shop"), "uid", note, source=source, now=boards.NOW)
    assert str(event["note"]).endswith(f"ö ({page})")
    assert len(str(event["note"]).encode()) in {1_023, 1_024}
    finding = Examined("https://door", "door", (problem("routes", "404"),))
    assert f"{SITE}/reasons/routes/" in doctor.address_text([finding], docs=SITE)


def test_explain_names_reasons_that_are_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "MassDeletoin"]) == ExitCode.INVALID
    assert "Did you mean MassDeletion?" in capsys.readouterr().err
