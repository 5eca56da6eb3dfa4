"""The failures of a bind, each with its exit code."""

from typing import ClassVar

from klutchctl.entry import ExitCode
from reconciler.core.errors import KlutchError


class BindEnded(KlutchError):
    """A bind that ended early. `hint` says what to do about it."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)


class Denied(BindEnded):
    """Somebody who may decide says no: the provider, its identity provider, or an API server."""

    exit_code = ExitCode.DENIED


class NoConsent(BindEnded):
    """Nobody agreed: a required claim was rejected, or no answer came."""

    exit_code = ExitCode.HELD_BACK


class NotInTime(BindEnded):
    """The bind did not become Ready in time; earlier writes stay."""

    exit_code = ExitCode.UNHEALTHY


class BadAnswer(BindEnded):
    """A provider answered what cannot be used."""
