"""Decides whether a signature in its armor is that of a listed key over some content."""

from collections.abc import Sequence
from datetime import datetime

from reconciler.source.signature import Refused, shown
from reconciler.source.sshsig.allowed_signers import AllowedSigner
from reconciler.source.sshsig.envelope import opened
from reconciler.source.sshsig.keys import fingerprint

NAMESPACE = "git"


def verify(
    armor: bytes,
    content: bytes,
    signers: Sequence[AllowedSigner],
    *,
    principal: str,
    times: Sequence[datetime],
    namespace: str = NAMESPACE,
) -> None:
    """Check a signature. Raises Refused, whose sentence goes on from "its signature".

    `principal` is for whom the key has to be listed, `times` when it has to be valid. No key is
    used that is not listed.
    """
    envelope = opened(armor)
    if envelope.namespace != namespace.encode():
        raise Refused(f"is for namespace {shown(envelope.namespace)}, not for {namespace!r}")
    listed = [one for one in signers if one.blob == envelope.key]
    if not listed:
        raise Refused(f"is by a key that is not listed: {fingerprint(envelope.key)}")
    refusals = [one.refusal(principal, namespace, times) for one in listed]
    if all(refusals):
        raise Refused(f"{refusals[-1]}: {fingerprint(envelope.key)}")
    listed[0].key.check(envelope.signature, envelope.message(content))
