"""The certificates of a sandbox on disk: made once, kept for as long as the sandbox lives.

Each cluster has an authority and a service account key of its own, so that no credential
of one cluster is worth anything in another. etcd has its own authority too: whoever holds a
client certificate of a cluster cannot read behind the API server's back.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import certificates
from klutchctl.sandbox.certificates import KeyPair, Use
from reconciler.core.errors import HostError

_ADMINS: Final = "system:masters"
CONTROLLER_MANAGER_USER: Final = "system:kube-controller-manager"


_OF_ETCD: Final = ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")
_OF_COMPONENT: Final = ("ca.crt", "tls.crt", "tls.key")
_OF_CLUSTER: Final = (
    *(f"{s}{e}" for s in ("ca", "server", "admin", "controller-manager") for e in (".crt", ".key")),
    "service-account.key",
    "service-account.pub",
)


def ensure_etcd(folder: Path, *, removal: str) -> None:
    """Create the certificates of etcd in `folder`, unless they are there.

    Raises HostError if only some are: new ones would not fit what runs or is stored with them.
    """
    if folder.exists():
        _require(folder, _OF_ETCD, removal)
        return
    now = datetime.now(UTC)
    authority = certificates.authority("klutchctl sandbox etcd", now=now)
    contents = {"ca.crt": authority.certificate_pem}
    contents |= _named("server", certificates.issue(authority, "etcd", use=Use.PEER, now=now))
    client = certificates.issue(authority, "kube-apiserver", use=Use.CLIENT, now=now)
    files.write_folder(folder, contents | _named("client", client))


def ensure_cluster(folder: Path, *, context: str, removal: str) -> None:
    """Create the certificates of the cluster `context` in `folder`, unless they are there.

    Raises HostError if only some are, as `ensure_etcd` does.
    """
    if folder.exists():
        _require(folder, _OF_CLUSTER, removal)
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


def ensure_component(folder: Path, *, removal: str) -> None:
    """Create the certificate of the services in `folder`, unless it is there.

    With the file names of a Secret of type kubernetes.io/tls. Raises HostError as `ensure_etcd`.
    """
    if folder.exists():
        _require(folder, _OF_COMPONENT, removal)
        return
    now = datetime.now(UTC)
    authority = certificates.authority("klutchctl sandbox services", now=now)
    both = certificates.issue(authority, "services", use=Use.PEER, now=now)
    contents = {"ca.crt": authority.certificate_pem} | _named("tls", both)
    files.write_folder(folder, contents)


def _require(folder: Path, names: Sequence[str], removal: str) -> None:
    lost = next((name for name in names if not (folder / name).is_file()), None)
    if lost is not None:
        raise HostError(
            f"{folder / lost} is lost",
            hint=f"Put it back, or start afresh: {removal}",
        )


def _named(stem: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{stem}.crt": pair.certificate_pem, f"{stem}.key": pair.key_pem}
