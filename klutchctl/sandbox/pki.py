"""The certificates of a sandbox on disk: made once, kept for as long as the sandbox lives.

Each cluster has an authority and a service account key of its own, so that no credential
of one cluster is worth anything in another. etcd has its own authority too: whoever holds a
client certificate of a cluster cannot read behind the API server's back.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import certificates
from klutchctl.sandbox.certificates import KeyPair, Use

_ADMINS: Final = "system:masters"
CONTROLLER_MANAGER_USER: Final = "system:kube-controller-manager"


def ensure_etcd(folder: Path) -> None:
    """Create the certificates of etcd in `folder`, unless they are there."""
    if folder.exists():
        return
    now = datetime.now(UTC)
    authority = certificates.authority("klutchctl sandbox etcd", now=now)
    contents = {"ca.crt": authority.certificate_pem}
    contents |= _named("server", certificates.issue(authority, "etcd", use=Use.PEER, now=now))
    client = certificates.issue(authority, "kube-apiserver", use=Use.CLIENT, now=now)
    files.write_folder(folder, contents | _named("client", client))


def ensure_cluster(folder: Path, *, context: str) -> None:
    """Create the certificates of the cluster `context` in `folder`, unless they are there."""
    if folder.exists():
        return
    now = datetime.now(UTC)
    # X.509 allows a common name of 64 characters; the name of the authority is for people only.
    authority = certificates.authority(f"klutchctl sandbox {context}"[:64], now=now)
    service_accounts = certificates.new_key()
    contents = _named("ca", authority) | {
        "service-account.key": certificates.private_pem(service_accounts),
        "service-account.pub": certificates.public_pem(service_accounts),
    }
    server = certificates.issue(authority, "kube-apiserver", use=Use.SERVER, now=now)
    contents |= _named("server", server)
    # The controllers run as one identity, so it needs the rights of all of them.
    for stem, user in (("admin", "admin"), ("controller-manager", CONTROLLER_MANAGER_USER)):
        client = certificates.issue(authority, user, organization=_ADMINS, use=Use.CLIENT, now=now)
        contents |= _named(stem, client)
    files.write_folder(folder, contents)


def _named(stem: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{stem}.crt": pair.certificate_pem, f"{stem}.key": pair.key_pem}
