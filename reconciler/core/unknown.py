"""The marker for a value that only an apply can know, such as a token that is yet to be made."""

from typing import Final

KNOWN_AFTER_APPLY: Final = "(known after apply)"
