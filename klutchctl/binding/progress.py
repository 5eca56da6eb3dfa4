"""What a bind says on the way, in the words of `klutchctl` or of the original's `kubectl-bind`.

Progress goes to standard error. What other parties sent is shown with nothing in it that acts.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from klutchctl.render.terminal import visible

_VISIT: Final = "\n\nTo authenticate, visit in your browser:\n\n\t{url}"
KLUTCHCTL: Final[Mapping[str, str]] = {
    "namespace": "Created Namespace klutch-bind",
    "visit": "Sign in with your browser:\n\n\t{url}\n",
    "device": (
        "Your token will be given to {door}: go on only if you mean to bind there.\n"
        "Sign in with any browser at {url}\nand enter the code {code}"
    ),
    "device-complete": "or visit {url}",
    "signed-in": "Signed in at {url}",
    "secret-create": "Created Secret klutch-bind/{name} for {host}, namespace {namespace}",
    "secret-refresh": "Refreshed Secret klutch-bind/{name} for {host}, namespace {namespace}",
    "secret-keep": "Secret klutch-bind/{name} is as it should be",
    "request": "Requesting {name}",
    "rejected": "{name}: the provider's claims on {kinds} are rejected; --accept accepts them",
    "reserved": "{name}: what you accept reaches namespaces of the cluster itself: {opened}",
    "konnector": "Installed konnector {image}",
    "policy-kept": "Admission policy {name} is another program's, and left as it is",
    "rights": "Widened the rights of the konnector",
    "waiting": "Waiting for the konnector",
    "bound": "Created APIServiceBinding {name}",
    "bound-already": "APIServiceBinding {name} is there already; its claims are left as they are",
    "unanswered": "It does not answer the provider's claims on {kinds}: edit its permissionClaims",
    "ready": "{name} is Ready",
    "note": "{text}",
    "wrote": "Wrote {path}",
}
KUBECTL: Final[Mapping[str, str]] = {
    **KLUTCHCTL,
    "disclaimer": (
        "DISCLAIMER: This is a prototype. It will change in incompatible ways at any time.\n"
    ),
    "namespace": "📦 Created klutch-bind namespace.\n",
    "visit": f"{_VISIT}",
    "signed-in": "🔑 Successfully authenticated to {url}",
    "secret-create": (
        "🔒 Created secret klutch-bind/{name} for host {host}, namespace {namespace}"
    ),
    "secret-refresh": (
        "🔒 Updated secret klutch-bind/{name} for host {host}, namespace {namespace}"
    ),
    "secret-keep": "🔒 Updated secret klutch-bind/{name} for host {host}, namespace {namespace}",
    "request": (
        "🚀 Executing: kubectl bind apiservice --remote-kubeconfig-namespace klutch-bind"
        " --remote-kubeconfig-name {secret} -f -{flags}\n"
        '✨ Use "-o yaml" and "--dry-run" to get the APIServiceExportRequest.\n'
        '   and pass it to "kubectl bind apiservice" directly. Great for automation.'
    ),
    "konnector": "🚀 Deploying konnector {image} to namespace klutch-bind.",
    "waiting": "   Waiting for the konnector to be ready.",
    "bound": "✅ Created APIServiceBinding {name}",
    "bound-already": "✅ Updating existing APIServiceBinding {name}.",
}


class Progress:
    """Says sentences of one vocabulary, one a line."""

    def __init__(
        self, words: Mapping[str, str], *, write: Callable[[str], object] | None = None
    ) -> None:
        self._words, self._write = words, write

    def say(self, event: str, **facts: str) -> None:
        """Say what happened."""
        shown = {name: visible(text) for name, text in facts.items()}
        line = self._words[event].format(**shown) + "\n"
        if self._write is not None:
            self._write(line)
        else:
            print(line, end="", file=sys.stderr, flush=True)
