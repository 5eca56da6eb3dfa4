"""`klutchctl bind` and `kubectl-bind`: bind a service of a provider in an app cluster."""

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
