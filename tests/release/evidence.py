"""States what a release is made of, and signs it: checksums, provenance, signatures.

Signatures are ECDSA of P-256 over SHA-256, as `cosign sign-blob --key` makes, with nonces by RFC
6979: the same bytes give the same signature.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SUMS: Final = "SHA256SUMS"
PROVENANCE: Final = "provenance.json"
SIGNATURES: Final = (f"{SUMS}.sig", "provenance.intoto.jsonl")
BUILD_TYPE: Final = "https://klutchctl.dev/make-release/v1"
LOCAL: Final = "https://klutchctl.dev/builder/local"  # a machine that vouches for nothing
_PAYLOAD: Final = "application/vnd.in-toto+json"
_ALGORITHM: Final = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey


class KeyRefused(Exception):
    """No private key to sign with; the text says what is wrong, and nothing of the key."""


@dataclass(frozen=True, slots=True)
class Source:
    """A build's source: the full id of the commit; `uri` of its repository, `tag`, or ""."""

    commit: str
    uri: str = ""
    tag: str = ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums(digests: Mapping[str, str]) -> str:
    """Return what `sha256sum --check` reads, of digests by the names of files."""
    return "".join(f"{value}  {name}\n" for name, value in sorted(digests.items()))


def statement(
    digests: Mapping[str, str], source: Source, locks: Mapping[str, str], builder: str
) -> dict[str, Any]:
    """Return the provenance, an in-toto statement of SLSA v1. No time: each build says the same.

    `digests`: SHA-256 of what was built, by name; `locks`: of the files that pin what is installed
    for it; `builder`: the URI of what ran the build.
    """
    uri = {"uri": source.uri} if source.uri else {}
    commit = {**uri, "name": "source", "digest": {"gitCommit": source.commit}}
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"tag": source.tag, "source": source.uri},
        "resolvedDependencies": [commit, *_descriptors(locks)],
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": _descriptors(digests),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": definition, "runDetails": {"builder": {"id": builder}}},
    }


def _descriptors(digests: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": value}} for name, value in sorted(digests.items())]


def load(pem: bytes) -> PrivateKey:
    """Return the private key that a PEM holds. Raises KeyRefused."""
    if b"ENCRYPTED" in pem.partition(b"\n")[0]:
        raise KeyRefused(
            "the key is encrypted; give it without a password, as `openssl pkey` writes it, or make"
            " one by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`"
        )
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyRefused("the key is no private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise KeyRefused("the key is not of ECDSA P-256")
    return key


def sign(key: PrivateKey, content: bytes) -> bytes:
    """Return a signature as `cosign sign-blob` makes it: the DER of ECDSA in base64."""
    return base64.b64encode(key.sign(content, _ALGORITHM))


def envelope(key: PrivateKey, stated: Mapping[str, Any]) -> str:
    """Return a statement signed, as one line of JSON: a DSSE envelope."""
    body = json.dumps(stated, sort_keys=True).encode()
    kind = _PAYLOAD.encode()
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)
    signature = {"keyid": key_id(key), "sig": sign(key, signed).decode()}
    made = {
        "payloadType": _PAYLOAD,
        "payload": base64.b64encode(body).decode(),
        "signatures": [signature],
    }
    return json.dumps(made, sort_keys=True) + "\n"


def key_id(key: PrivateKey) -> str:
    """Return the name of a key: the SHA-256 of its public half in DER."""
    der = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def seal(folder: Path) -> None:
    found = {
        path.relative_to(folder).as_posix(): digest(path)
        for path in folder.rglob("*")
        if path.is_file()
    }
    (folder / SUMS).write_text(sums(found), "utf-8")
