"""Signatures of SSH and signed objects of Git, made by hand so that each part can be wrong."""

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pygit2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pygit2.enums import ObjectType

from tests.support.checkouts import nested, tree_of

ALICE: Final = "alice@acme.example"
AT: Final = 1_700_000_000  # 2023-11-14T22:13:20Z
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"


def string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def mpint(number: int) -> bytes:
    return string(number.to_bytes(number.bit_length() // 8 + 1, "big"))


@dataclass(frozen=True)
class Signer:
    """A key pair. `name` is what its signatures say they are made with."""

    kind: str
    private: Any
    name: bytes
    flags: int = 1
    application: bytes = b"ssh:"

    @property
    def blob(self) -> bytes:
        public = self.private.public_key()
        application = string(self.application) if self.kind.startswith("sk-") else b""
        if "ed25519" in self.kind:
            key = string(public.public_bytes(Encoding.Raw, PublicFormat.Raw))
        elif self.kind == "ssh-rsa":
            key = mpint(public.public_numbers().e) + mpint(public.public_numbers().n)
        else:
            curve = self.kind.partition("@")[0].rpartition("-")[2].encode()
            point = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            key = string(curve) + string(point)
        return string(self.kind.encode()) + key + application

    @property
    def line(self) -> str:
        """The type and key, as a file of public keys holds them."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> str:
        """The name of the key, as OpenSSH prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"

    def raw(self, message: bytes) -> bytes:
        if self.kind.startswith("sk-"):
            tail = struct.pack(">BI", self.flags, 7)
            message = (
                hashlib.sha256(self.application).digest() + tail + hashlib.sha256(message).digest()
            )
        else:
            tail = b""
        if isinstance(self.private, Ed25519PrivateKey):
            signed = self.private.sign(message)
        elif isinstance(self.private, ec.EllipticCurvePrivateKey):
            size = self.private.key_size
            algorithm = {256: hashes.SHA256(), 384: hashes.SHA384()}.get(size, hashes.SHA512())
            signed = b"".join(
                map(mpint, decode_dss_signature(self.private.sign(message, ec.ECDSA(algorithm))))
            )
        else:
            rsa_hash = {b"ssh-rsa": hashes.SHA1(), b"rsa-sha2-256": hashes.SHA256()}
            used = rsa_hash.get(self.name, hashes.SHA512())
            signed = self.private.sign(message, padding.PKCS1v15(), used)
        return string(self.name) + string(signed) + tail

    def sign(self, content: bytes, **parts: Any) -> bytes:
        """Return a signature in its armor; `parts` are as in `blob_of`."""
        return armored(self.blob_of(content, **parts))

    def blob_of(
        self,
        content: bytes,
        *,
        namespace: bytes = b"git",
        digest: str = "sha512",
        magic: bytes = b"SSHSIG",
        version: int = 1,
        reserved: bytes = b"",
    ) -> bytes:
        hashed = hashlib.new(digest, content).digest()
        fields = [namespace, reserved, digest.encode()]
        message = b"SSHSIG" + b"".join(map(string, [*fields, hashed]))
        outer = [self.blob, *fields, self.raw(message)]
        return magic + struct.pack(">I", version) + b"".join(map(string, outer))


def armored(blob: bytes) -> bytes:
    return BEGIN + base64.encodebytes(blob) + END


def ed25519(seed: int = 1) -> Signer:
    private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return Signer("ssh-ed25519", private, b"ssh-ed25519")


def security_key(flags: int = 1) -> Signer:
    kind = "sk-ssh-ed25519@openssh.com"
    return Signer(kind, ed25519().private, kind.encode(), flags)


def security_ecdsa(flags: int = 1) -> Signer:
    kind = "sk-ecdsa-sha2-nistp256@openssh.com"
    return Signer(kind, ec.derive_private_key(5, ec.SECP256R1()), kind.encode(), flags, b"ssh:x")


def ecdsa(curve: ec.EllipticCurve) -> Signer:
    kind = f"ecdsa-sha2-nistp{curve.key_size}"
    return Signer(kind, ec.derive_private_key(5, curve), kind.encode())


def rsa_key(bits: int = 2048, name: bytes = b"rsa-sha2-512") -> Signer:
    return Signer("ssh-rsa", rsa.generate_private_key(65537, bits), name)


def commit_text(
    tree: str, parents: Sequence[str] = (), *, email: str = ALICE, at: int = AT, note: str = "x"
) -> bytes:
    """Return the bytes of a commit without a signature."""
    lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
    lines += [f"author A <a@example.com> {AT} +0000", f"committer A <{email}> {at} +0200"]
    return "\n".join([*lines, "", note]).encode()


def with_signature(text: bytes, signature: bytes, field: bytes = b"gpgsig") -> bytes:
    """Return the bytes of a commit with a signature in its head."""
    head, blank, message = text.partition(b"\n\n")
    value = signature.rstrip(b"\n").replace(b"\n", b"\n ")
    return head + b"\n" + field + b" " + value + blank + message


def signed_commit(
    repository: Any,
    files: Mapping[str, Any],
    signer: Any = None,
    *,
    parents: Sequence[str] | None = None,
    ref: str = "refs/heads/main",
    **text: Any,
) -> str:
    """Commit files on top of the ref; without a signer, there is no signature."""
    if parents is None:
        parents = [str(repository.references[ref].target)] if ref in repository.references else []
    content = commit_text(str(tree_of(repository, nested(files))), parents, **text)
    if signer is not None:
        content = with_signature(content, signer.sign(content))
    made = repository.odb.write(ObjectType.COMMIT, content)
    repository.references.create(ref, made, force=True)
    return str(made)


def signed_tag(
    repository: pygit2.Repository,
    commit: str,
    signer: Any = None,
    *,
    name: str = "v1",
    ref: str = "refs/tags/v1",
    kind: str = "commit",
) -> str:
    head = f"object {commit}\ntype {kind}\ntag {name}\ntagger A <{ALICE}> {AT} +0000\n\nfirst\n"
    content = head.encode()
    if signer is not None:
        content += signer.sign(content)
    made = repository.odb.write(ObjectType.TAG, content)
    repository.references.create(ref, made, force=True)
    return str(made)
