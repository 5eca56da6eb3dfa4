"""Reads files that options name: secrets, and files that are read again after a change."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.secret import Secret

T = TypeVar("T")

_LARGEST: Final = 64 * 1024
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


def read_secret(path: Path, where: str) -> Secret:
    """Return the content of a file, without blanks around it. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", where=where) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text", where=where) from None
    if not text or len(content) > _LARGEST:
        raise ConfigError(f"{path} is empty, or larger than 64 KiB", where=where)
    return Secret(text)


class LastGood(Generic[T]):
    """The content of files: read again once they change; an unusable one leaves the last good one.

    `read` raises OSError, ValueError or KlutchError for what cannot be used: at first they are
    raised here, later `noted` gets them, or None for what can be used. Files are looked at once in
    `every` seconds of the clock.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], T],
        clock: Callable[[], float],
        noted: Callable[[Exception | None], None],
        *,
        every: float = 1.0,
    ) -> None:
        self._paths, self._read, self._clock, self._noted = paths, read, clock, noted
        self._every, self._looked_at = every, clock()
        self._stamp, self._value = self._look(), read()

    def current(self) -> T:
        if abs((now := self._clock()) - self._looked_at) < self._every:
            return self._value
        self._looked_at = now
        # What is not good is read again once it changes again.
        before, self._stamp = self._stamp, self._look()
        if self._stamp != before:
            try:
                self._value = self._read()
                self._noted(None)
            except (OSError, ValueError, KlutchError) as error:
                self._noted(error)
        return self._value

    def _look(self) -> _Stamp:
        try:
            stats = [path.stat() for path in self._paths]
        except OSError:
            return ()
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)
