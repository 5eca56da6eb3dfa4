"""Reads secrets from files that options name."""

from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret

_LARGEST: Final = 64 * 1024


def read_secret(path: Path, where: str) -> Secret:
    """Return what a file holds, without blanks around it. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        text = content.decode().strip()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(message, where=where) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text", where=where) from None
    if not text or len(content) > _LARGEST:
        raise ConfigError(f"{path} is empty, or larger than 64 KiB", where=where)
    return Secret(text)
