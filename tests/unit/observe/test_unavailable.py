"""What people read about a cluster that could not be read."""

from collections.abc import Mapping, Sequence

import pytest

from reconciler.core.errors import (
    ClusterError,
    Expired,
    Forbidden,
    Unauthorized,
    Unreachable,
)
from reconciler.core.live import Address, Unavailable
from reconciler.core.refs import CRD, SECRET, Ref
from reconciler.fleet.values import Access
from reconciler.observe import unavailable

ACCESS = Access(context="eu-1")
ADDRESS = Address("https://cp.example:6443", "")
CRDS = Ref("eu-1", CRD, "", "")
SECRETS = Ref("eu-1", SECRET, "klutch-bind", "")


def forbidden(ref: Ref) -> ClusterError:
    return Forbidden("robot may not", ref=ref, verb="list", status=403)


def unreachable(ref: Ref) -> ClusterError:
    return Unreachable("no connection in time", ref=ref, verb="list")


FAILED: Mapping[str, tuple[Sequence[ClusterError], Unavailable]] = {
    "of one cause the first read says it all": (
        [unreachable(CRDS), unreachable(SECRETS)],
        Unavailable(
            "list CustomResourceDefinition list: no connection in time",
            "Check that https://cp.example:6443 runs, and that it can be reached from here",
        ),
    ),
    "all that is forbidden is named, also behind another failure": (
        [unreachable(CRDS), forbidden(SECRETS), forbidden(CRDS)],
        Unavailable(
            "list Secret list in namespace klutch-bind: robot may not; "
            "list CustomResourceDefinition list: robot may not",
            "Grant the user of context/eu-1: list customresourcedefinitions.apiextensions.k8s.io, "
            "list secrets",
        ),
    ),
    "but not without end": (
        [forbidden(SECRETS)] * 7,
        Unavailable(
            "; ".join(["list Secret list in namespace klutch-bind: robot may not"] * 5)
            + "; and 2 more",
            "Grant the user of context/eu-1: list secrets",
        ),
    ),
    "credentials": (
        [Unauthorized("HTTP 401", ref=CRDS, verb="list", status=401)],
        Unavailable(
            "list CustomResourceDefinition list: HTTP 401", "Renew the credentials of context/eu-1"
        ),
    ),
    "anything else": (
        [Expired("too old", ref=CRDS, verb="list", status=410)],
        Unavailable(
            "list CustomResourceDefinition list: too old",
            "Check that https://cp.example:6443 is the right API server",
        ),
    ),
}


@pytest.mark.parametrize(("errors", "verdict"), FAILED.values(), ids=FAILED.keys())
def test_failed_reads(errors: Sequence[ClusterError], verdict: Unavailable) -> None:
    assert unavailable.failed(errors, ACCESS, ADDRESS) == verdict


def test_a_defect_is_named_by_its_place_and_never_by_its_text() -> None:
    try:
        raise KeyError("canary")
    except KeyError as error:
        verdict = unavailable.defect(error)
    assert verdict.reason.startswith(f"unexpected KeyError at {__name__}:")
    assert "canary" not in repr(verdict)


def test_an_app_cluster_behind_an_unseen_control_plane_has_the_same_remedy() -> None:
    why = Unavailable("no connection", "Check it")
    assert unavailable.behind("eu", why) == Unavailable(
        "its control plane eu is unseen: no connection", "Check it"
    )
