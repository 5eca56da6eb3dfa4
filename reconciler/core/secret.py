"""Text that must not be seen: a value whose every rendering hides it."""

from typing import Final

HIDDEN: Final = "<redacted>"


class Secret:
    """A token, password or key. `str`, `repr` and `format` show only that it is there.

    Comparable and hashable by value, so that a rotated credential can be noticed.
    `reveal` is the one way to the text; call it where the bytes leave the process.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not written to files or pipes")


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with every occurrence of each secret (of 4 characters or more) hidden.

    The longest goes first, so that a secret inside another leaves no rest behind.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:
            text = text.replace(secret, HIDDEN)
    return text
