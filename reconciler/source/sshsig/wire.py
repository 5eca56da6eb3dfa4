"""Reads the binary format of SSH (RFC 4251, section 5), in which a stranger chose every length."""

from typing import Final

from reconciler.source.signature import Refused

_HIGHEST_BIT: Final = 0x80


class Reader:
    """Reads values one after another. Each method raises Refused at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content, self._position = content, 0

    def take(self, length: int) -> bytes:
        """Return so many bytes."""
        end = self._position + length
        if end > len(self._content):
            raise Refused("is cut short, or names a length beyond its end")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def byte(self) -> int:
        """Return a byte as a number."""
        return self.take(1)[0]

    def number(self) -> int:
        """Return a uint32."""
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        """Return a string, which begins with its length."""
        return self.take(self.number())

    def mpint(self) -> int:
        """Return an integer. Raises Refused for a negative one, or one with idle zeros before."""
        content = self.string()
        if not content or content[0] >= _HIGHEST_BIT:
            raise Refused("holds a number that is not positive")
        if content[0] == 0 and (len(content) == 1 or content[1] < _HIGHEST_BIT):
            raise Refused("holds a number that is not in its shortest form")
        return int.from_bytes(content, "big")

    def end(self) -> None:
        """Raise Refused where there is more."""
        if self._position != len(self._content):
            raise Refused("holds more than belongs there")


def string(content: bytes) -> bytes:
    """Return a string with its length before it."""
    return len(content).to_bytes(4, "big") + content
