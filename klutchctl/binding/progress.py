"""Prints the progress of a bind, for `klutchctl bind` and `kubectl bind`; its failures beside it.

Progress goes to standard error. What other parties sent is shown with nothing in it that acts.
"""

import sys
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from klutchctl.entry import ExitCode
from klutchctl.render.terminal import visible
from reconciler.core.errors import KlutchError

SENTENCES: Final[Mapping[str, str]] = {
    "namespace": "Created Namespace klutch-bind",
    "visit": "Sign in with your browser:\n\n\t{url}\n",
    "agree": "Agree to {name} in your browser, too:\n\n\t{url}\n",
    "device": (
        "Your token will be given to {door}: continue only if you want to bind there.\n"
        "Sign in with any browser at {url}\nand enter the code {code}"
    ),
    "device-complete": "or visit {url}",
    "signed-in": "Signed in at {url}",
    "secret-create": "Created Secret klutch-bind/{name} for {host}, namespace {namespace}",
    "secret-refresh": "Refreshed Secret klutch-bind/{name} for {host}, namespace {namespace}",
    "request": "Requesting {name}",
    "rejected": "{name}: the provider's claims on {kinds} are rejected; --accept accepts them",
    "reserved": "{name}: what you accept reaches namespaces of the cluster itself: {opened}",
    "konnector": "Installed konnector {image}",
    "policy-kept": "Admission policy {name} is another program's, and left as it is",
    "rights": "Widened the rights of the konnector",
    "rights-full": "The konnector may do everything in this cluster, by ClusterRole {name};"
    " konnector/deploy/minimal limits it",
    "waiting": "Waiting for the konnector",
    "bound": "Created APIServiceBinding {name}",
    "bound-already": "APIServiceBinding {name} is there already; its claims are left as they are",
    "unanswered": "It does not answer the provider's claims on {kinds}: edit its permissionClaims",
    "ready": "{name} is Ready",
    "note": "{text}",
    "wrote": "Wrote {path}",
}


class Progress:
    """Writes one sentence a line."""

    def __init__(self, *, write: Callable[[str], object] | None = None) -> None:
        self._write = write

    def report(self, event: str, **facts: str) -> None:
        shown = {name: visible(text) for name, text in facts.items()}
        line = SENTENCES[event].format(**shown) + "\n"
        if self._write is not None:
            self._write(line)
        else:
            print(line, end="", file=sys.stderr, flush=True)


class BindEnded(KlutchError):
    """A bind that ended early. `hint` is the remedy."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)


class Denied(BindEnded):
    """A refusal by the provider, its identity provider, or an API server."""

    exit_code = ExitCode.DENIED


class NoConsent(BindEnded):
    """Nobody agreed: a required claim was rejected, or no answer came."""

    exit_code = ExitCode.HELD_BACK


class NotInTime(BindEnded):
    """The bind did not become Ready in time; earlier writes stay."""

    exit_code = ExitCode.UNHEALTHY


class BadAnswer(BindEnded):
    """A provider's answer cannot be used."""
