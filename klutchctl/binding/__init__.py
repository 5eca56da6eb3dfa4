"""`klutchctl bind` and `kubectl-bind`: an app cluster asks a provider for a service."""

from enum import StrEnum


class Claims(StrEnum):
    """The permission claims that are accepted without a question; openings still ask."""

    ASK = "ask"
    REQUIRED = "required"
    ALL = "all"
    NONE = "none"


class Rights(StrEnum):
    """The rights of a konnector in its app cluster."""

    MINIMAL = "Minimal"
    FULL = "Full"
