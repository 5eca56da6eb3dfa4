"""Verifies SSH signatures (OpenSSH's PROTOCOL.sshsig) by a list of allowed keys. Pure.

Not accepted: DSA, RSA below 2048 bits, RSA with SHA-1, keys in certificates, and signatures of a
security key that nobody touched. The list is in the format of ALLOWED SIGNERS in ssh-keygen(1). It
decides who is trusted, so a line that is not understood makes the whole list useless.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from reconciler.source.signature import Refused, shown

NAMESPACE: Final = "git"
BEGIN: Final = b"-----BEGIN SSH SIGNATURE-----"
_END: Final = b"-----END SSH SIGNATURE-----"
_MAGIC: Final = b"SSHSIG"
_DIGESTS: Final = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_MOST_ARMOR: Final = 16 << 10  # bytes; one with RSA of 16,384 bits has 6 kB

_FEWEST_BITS: Final = 2_048
_USER_PRESENT: Final = 0x01  # a flag of what a security key signs: somebody touched it
_ED25519, _RSA = b"ssh-ed25519", b"ssh-rsa"
_CURVES: Final[Mapping[bytes, hashes.HashAlgorithm]] = {
    b"nistp256": hashes.SHA256(),
    b"nistp384": hashes.SHA384(),
    b"nistp521": hashes.SHA512(),
}
_TYPES: Final = (
    *(b"ecdsa-sha2-" + curve for curve in _CURVES),
    b"sk-ecdsa-sha2-nistp256@openssh.com",
    b"sk-ssh-ed25519@openssh.com",
    _ED25519,
    _RSA,
)
_RSA_HASHES: Final[Mapping[bytes, hashes.HashAlgorithm]] = {
    b"rsa-sha2-256": hashes.SHA256(),
    b"rsa-sha2-512": hashes.SHA512(),
}
_RSA_NAMES: Final = " or ".join(name.decode() for name in _RSA_HASHES)

_BLANK: Final = " \t"
_WORD: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^ \t"])*', re.DOTALL)
_OPTION: Final = re.compile(r'([A-Za-z-]+)(?:="((?:[^"\\]|\\.)*)")?(?:,|$)', re.ASCII)
_TIME: Final = re.compile(r"([0-9]{8})(?:([0-9]{4})([0-9]{2})?)?(Z?)", re.ASCII)
_KNOWN: Final = frozenset({"namespaces", "valid-after", "valid-before"})
_MOST_LIST: Final = 1 << 20  # bytes
_PATTERN_PARTS: Final = {"*": ".*", "?": "."}


class _Reader:
    """Reads values of SSH (RFC 4251, 5), with lengths that are not trusted."""

    def __init__(self, content: bytes) -> None:
        self._content, self._position = content, 0

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._content):
            raise Refused("is cut short, or names a length beyond its end")
        start, self._position = self._position, end
        return self._content[start:end]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def last(self) -> bytes:
        """Return the last of the strings that are left, of which there is one at least."""
        found = self.string()
        return found if self._position == len(self._content) else self.last()

    def mpint(self) -> int:
        """Return an integer. Raises Refused for a negative one, or one with idle zeros before."""
        content = self.string()
        if not content or content[0] >= 0x80:
            raise Refused("contains a number that is not positive")
        if content[0] == 0 and (len(content) == 1 or content[1] < 0x80):
            raise Refused("contains a number that is not in its shortest form")
        return int.from_bytes(content, "big")

    def end(self) -> None:
        if self._position != len(self._content):
            raise Refused("contains more than belongs there")


_Key: TypeAlias = Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, the name of its type, and the application of a security key."""

    type: bytes
    key: _Key
    application: bytes | None

    def check(self, signature: bytes, message: bytes) -> None:
        """Check a signature blob of SSH over a message. Raises Refused."""
        reader = _Reader(signature)
        algorithm = reader.string()
        if self.type == _RSA and algorithm not in _RSA_HASHES:
            raise Refused(f"is made with {shown(algorithm)}, not with {_RSA_NAMES}")
        if self.type not in (_RSA, algorithm):
            own = self.type.decode()
            raise Refused(f"is made with {shown(algorithm)}, and its key is of type {own}")
        raw = reader.string()
        if self.application is not None:  # the device signs digests, its flags and a counter
            flags, counter = reader.take(1)[0], reader.take(4)
            if not flags & _USER_PRESENT:
                raise Refused("is of a security key without a touch")
            message = _sha256(self.application) + bytes([flags]) + counter + _sha256(message)
        reader.end()
        try:
            self._verify(algorithm, raw, message)
        except (InvalidSignature, ValueError):
            why = "does not fit its content, which was changed or signed by another"
            raise Refused(why) from None

    def _verify(self, algorithm: bytes, raw: bytes, message: bytes) -> None:
        match self.key:
            case Ed25519PublicKey():
                self.key.verify(raw, message)
            case ec.EllipticCurvePublicKey():
                numbers = _Reader(raw)
                encoded = encode_dss_signature(numbers.mpint(), numbers.mpint())
                numbers.end()
                curve = self.type.rpartition(b"-")[2].partition(b"@")[0]
                self.key.verify(encoded, message, ec.ECDSA(_CURVES[curve]))
            case rsa.RSAPublicKey():
                # Signers may leave zeros out that begin the number.
                padded = raw.rjust((self.key.key_size + 7) // 8, b"\0")
                self.key.verify(padded, message, padding.PKCS1v15(), _RSA_HASHES[algorithm])


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _public_key(blob: bytes) -> PublicKey:
    reader = _Reader(blob)
    name = reader.string()
    if b"-cert-" in name:
        raise Refused("is a certificate, which is not accepted; list the key itself")
    if name not in _TYPES:
        known = ", ".join(one.decode() for one in _TYPES)
        raise Refused(f"is a key of type {shown(name)}, which is not accepted: use {known}")
    try:
        key = load_ssh_public_key(name + b" " + base64.b64encode(blob))
    except (ValueError, NotImplementedError, UnsupportedAlgorithm):
        raise Refused("is no key of its type") from None
    assert isinstance(key, _Key)
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _FEWEST_BITS:
        why = f"is an RSA key of {key.key_size} bits, and {_FEWEST_BITS} are the fewest accepted"
        raise Refused(why)
    return PublicKey(name, key, reader.last() if name.startswith(b"sk-") else None)  # FIDO


def _fingerprint(blob: bytes) -> str:
    """Return the name of the key in a blob, as `ssh-keygen -l` prints it."""
    return f"SHA256:{base64.b64encode(_sha256(blob)).decode().rstrip('=')}"


class _Envelope(NamedTuple):
    """The content of the armor: the signing key, by its own word, and its purpose."""

    key: bytes
    namespace: bytes
    hash: bytes
    signature: bytes

    def message(self, content: bytes) -> bytes:
        fields = (self.namespace, b"", self.hash, _DIGESTS[self.hash](content).digest())
        return _MAGIC + b"".join(len(one).to_bytes(4, "big") + one for one in fields)


def _opened(armor: bytes) -> _Envelope:
    reader = _Reader(_bytes_in(armor))
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise Refused("is no SSH signature inside its armor")
    version = reader.number()
    if version != 1:
        raise Refused(f"is of version {version}, and only 1 is known")
    key, namespace, reserved = reader.string(), reader.string(), reader.string()
    algorithm, signature = reader.string(), reader.string()
    reader.end()
    if reserved:
        raise Refused("uses a field that is reserved")
    if algorithm not in _DIGESTS:
        raise Refused(f"is over a digest by {shown(algorithm)}, not sha256 or sha512")
    return _Envelope(key, namespace, algorithm, signature)


def _bytes_in(armor: bytes) -> bytes:
    if len(armor) > _MOST_ARMOR:
        raise Refused(f"has more than {_MOST_ARMOR >> 10} KiB")
    lines = armor.rstrip(b"\n").split(b"\n")
    if len(lines) < 2 or (lines[0], lines[-1]) != (BEGIN, _END):
        raise Refused("does not begin and end as an SSH signature does")
    try:
        return base64.b64decode(b"".join(lines[1:-1]), validate=True)
    except binascii.Error:
        raise Refused("contains something else than base64") from None


@dataclass(frozen=True, slots=True)
class AllowedSigner:
    """A line. `principals` and `namespaces` are lists of patterns; None allows all namespaces."""

    line: int
    principals: str
    blob: bytes
    key: PublicKey
    namespaces: str | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def refusal(self, principal: str, namespace: str, times: Sequence[datetime]) -> str:
        """Return why this key may not sign for a principal at these times; "" where it may."""
        if not matches(principal, self.principals):
            return f"is by a key that is not one of {shown(principal)}"
        if self.namespaces is not None and not matches(namespace, self.namespaces):
            return f"is by a key that may not sign in namespace {shown(namespace)}"
        owner = f"is by a key of {shown(principal)}"
        if self.valid_after is not None and min(times) < self.valid_after:
            return f"{owner} that is valid only after {self.valid_after.isoformat()}"
        if self.valid_before is not None and max(times) > self.valid_before:
            return f"{owner} that was valid before {self.valid_before.isoformat()}"
        return ""


def parse(text: bytes) -> tuple[AllowedSigner, ...]:
    """Return the lines of a list. Raises Refused, with the number of the line."""
    if len(text) > _MOST_LIST:
        raise Refused(f"has more than {_MOST_LIST >> 20} MiB")
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise Refused("is not text in UTF-8") from None
    found = []
    for number, line in enumerate(lines, 1):
        content = line.rstrip("\r").strip(_BLANK)
        if not content or content.startswith("#"):
            continue
        try:
            found.append(_signer(number, content))
        except Refused as error:
            raise Refused(f"line {number} {error.why}") from None
    if not found:
        raise Refused("lists no key")
    return tuple(found)


def matches(text: str, patterns: str) -> bool:
    """Decide whether a text matches a list of patterns, as PATTERNS in ssh_config(5).

    One that matches after "!" refuses, whatever else matches.
    """
    found = False
    for pattern in patterns.split(","):
        wanted = pattern.removeprefix("!")
        expression = "".join(_PATTERN_PARTS.get(one, re.escape(one)) for one in wanted)
        if re.fullmatch(expression, text, re.DOTALL):
            if wanted != pattern:
                return False
            found = True
    return found


def _signer(number: int, content: str) -> AllowedSigner:
    principals, rest = _word(content)
    written, blob = "", _key_blob(rest)
    if blob is None:
        written, rest = _word(rest)
        blob = _key_blob(rest)
    if blob is None:
        raise Refused("is not `principals [options] type base64-key [comment]`")
    options = _options(written)
    after, before = _time(options, "valid-after"), _time(options, "valid-before")
    if after is not None and before is not None and before <= after:
        raise Refused("ends the time of its key before that begins")
    return AllowedSigner(
        number, principals, blob, _public_key(blob), options.get("namespaces"), after, before
    )


def _word(text: str) -> tuple[str, str]:
    """Return the first word, and the rest: blanks within quotes do not end a word."""
    found = _WORD.match(text)
    word = found[0] if found else ""
    rest = text[len(word) :]
    if rest.startswith('"'):
        raise Refused("has a quote without an end")
    whole = word[1:-1] if word.startswith('"') and word.endswith('"') else word
    return whole, rest.lstrip(_BLANK)


def _key_blob(text: str) -> bytes | None:
    """Return the key that a text begins with, or None where it begins with something else."""
    name, _, rest = text.replace("\t", " ").partition(" ")
    encoded = rest.lstrip(" ").partition(" ")[0]
    try:
        blob = base64.b64decode(encoded, validate=True)
        return blob if name and _Reader(blob).string() == name.encode() else None
    except (binascii.Error, ValueError, Refused):
        return None


def _options(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None or text.endswith(","):
            raise Refused('has options that are not `name` or `name="value"` with commas between')
        name, value = option[1].lower(), option[2]
        if name == "cert-authority":
            why = "certificates are not accepted, list keys themselves"
            raise Refused(f"is a cert-authority: {why}")
        if name not in _KNOWN or value is None or name in found:
            raise Refused(f"has option {shown(name)} without a value, twice, or it is unknown")
        found[name] = re.sub(r"\\(.)", r"\1", value)
        position = option.end()
    return found


def _time(options: Mapping[str, str], name: str) -> datetime | None:
    """Return the time of an option: in UTC with a "Z", else in the time zone of this machine."""
    if name not in options:
        return None
    parts = _TIME.fullmatch(options[name])
    try:
        digits = f"{parts[1]}{parts[2] or '0000'}{parts[3] or '00'}" if parts else ""
        at = datetime.strptime(digits, "%Y%m%d%H%M%S")  # noqa: DTZ007 - the zone follows
        return at.replace(tzinfo=UTC) if options[name].endswith("Z") else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"has {name} that is not YYYYMMDD[HHMM[SS]][Z]") from None


def verify(
    armor: bytes,
    content: bytes,
    signers: Sequence[AllowedSigner],
    *,
    principal: str,
    times: Sequence[datetime],
    namespace: str = NAMESPACE,
) -> None:
    """Check a signature. Raises Refused, with a sentence that continues "its signature".

    `principal` is for whom the key has to be listed, `times` when it has to be valid. No key is
    used that is not listed.
    """
    envelope = _opened(armor)
    if envelope.namespace != namespace.encode():
        raise Refused(f"is for namespace {shown(envelope.namespace)}, not for {namespace!r}")
    listed = [one for one in signers if one.blob == envelope.key]
    if not listed:
        raise Refused(f"is by a key that is not listed: {_fingerprint(envelope.key)}")
    refusals = [one.refusal(principal, namespace, times) for one in listed]
    if all(refusals):
        raise Refused(f"{refusals[-1]}: {_fingerprint(envelope.key)}")
    listed[0].key.check(envelope.signature, envelope.message(content))
