"""The page in place of one that there is not. Pure."""

from dataclasses import dataclass
from datetime import datetime

from klutchctl.web.board.index import Index
from klutchctl.web.board.pages.parts import Frame, frame


@dataclass(frozen=True, slots=True)
class RefusalPage:
    """Why there is no page."""

    frame: Frame
    status: int
    sentence: str


def refusal(index: Index, status: int, sentence: str, now: datetime) -> RefusalPage:
    """Return the page."""
    return RefusalPage(frame(index, "", now), status, sentence)
