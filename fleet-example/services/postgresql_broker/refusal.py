"""What the broker says no with: a status, an error code of the API, a sentence."""

from typing import Final

CONCURRENCY: Final = "ConcurrencyError"
MAINTENANCE: Final = "MaintenanceInfoConflict"
ASYNC: Final = "AsyncRequired"


class Refusal(Exception):
    """A call that is not done, and why. The sentence holds no secret."""

    def __init__(self, status: int, description: str, code: str = "") -> None:
        super().__init__(description)
        self.status, self.description, self.code = status, description, code

    @property
    def body(self) -> dict[str, str]:
        """The answer."""
        about = {"error": self.code} if self.code else {}
        return {**about, "description": self.description}


def busy() -> Refusal:
    """Return that another operation goes on."""
    return Refusal(422, "Another operation of this instance goes on", CONCURRENCY)
