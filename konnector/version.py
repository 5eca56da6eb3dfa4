"""What a ClusterBinding says of the konnector's version: always `vX.Y.Z`, or that nobody knows."""

import re
from typing import Final

UNKNOWN: Final = "unknown"  # what stands in the status where a build does not say its version

_OF_A_RELEASE: Final = re.compile(r"[^+]*\+kube-bind-(v[0-9]+\.[0-9]+\.[0-9]+)(?:-.*)?")
_OF_A_BRANCH: Final = re.compile(r"(v0\.0\.0)-.*")
_OF_A_DISTRIBUTION: Final = re.compile(
    r"([0-9]+\.[0-9]+\.[0-9]+)((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9.]+)?"
)


def konnector_version(build: str) -> str | None:
    """Return `vX.Y.Z` of a build, or None where its version says no such thing.

    `build` is a Python distribution's version (PEP 440, as ours), or a git version as the
    originals bear it: `v1.32.0+kube-bind-v1.5.0-12-gabc` (protocol-konnector.md B).
    """
    for pattern in (_OF_A_BRANCH, _OF_A_RELEASE):
        if found := pattern.fullmatch(build):
            return found[1]
    found = _OF_A_DISTRIBUTION.fullmatch(build)
    return None if found is None else f"v{found[1]}"
