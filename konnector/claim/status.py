"""What a claim's status says: what its copy's does, and nothing of a sync that has stopped.

protocol-konnector.md D.3. Refuses to know when it is written.
"""

from konnector import APP_CLUSTER
from konnector.claim.copies import Pair
from reconciler.api import claim_status
from reconciler.core import decision, manifest
from reconciler.core.decision import Step
from reconciler.core.manifest import JSON, Manifest


def carried(pair: Pair, claim: Manifest, copy: Manifest) -> tuple[Step, ...]:
    """Return the patch that makes the status the copy's, which it is alone."""
    return _patch(pair, claim, copy.get("status"))


def resumed(pair: Pair, claim: Manifest) -> tuple[Step, ...]:
    """Return the patch of a claim without copy that still says that the sync has stopped."""
    if (change := claim_status.resumed(claim)) is None:
        return ()
    return _patch(pair, claim, {**manifest.get_map(claim, "status"), **change})


def _patch(pair: Pair, claim: Manifest, status: JSON) -> tuple[Step, ...]:
    """Return the patch to this status: a JSON patch, since a merge patch cannot set a null.

    A custom resource's status is patched whatever uid the patch states, so only the test of the
    resourceVersion keeps it from a claim that was made again.
    """
    before, after = ({} if s is None else {"status": s} for s in (claim.get("status"), status))
    changes = decision.changes(before, after)
    if not changes:
        return ()
    ref = manifest.ref_of(APP_CLUSTER, pair.kind, claim)
    subresource = "status" if pair.has_status else ""
    return (decision.JsonPatch(ref, (decision.unchanged(claim), *changes), subresource),)
