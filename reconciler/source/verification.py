"""Decides whether a commit may be used, by signatures and by descent.

Trust comes from outside the repository: from files of keys that the operator gives, and from the
commit that was accepted last. What is not verified counts as unreadable (safety.md, B1).
Sequoia verifies signatures of GPG (extra `gpg`): no other module imports it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import pygit2
from pygit2.enums import ObjectType

from reconciler.core.errors import ConfigError, HostError
from reconciler.source import signature, sshsig
from reconciler.source.signature import (
    Refused,
    Signature,
    SignedObject,
    Unverified,
    VerificationMode,
    shown,
)

if TYPE_CHECKING:
    from pysequoia import Cert


MOST_COMMITS: Final = 1_000  # that are new at once
_MOST_OLD: Final = 10_000  # that are looked at for what is not new
_MOST_BYTES: Final = 1 << 20  # of one commit or tag
BEGIN: Final = b"-----BEGIN PGP SIGNATURE-----"
_END: Final = b"-----END PGP SIGNATURE-----"
_MOST_OF_ARMOR: Final = 64 << 10  # of a signature
_MOST_OF_KEYS: Final = 16 << 20


class Incomplete(Unverified):
    """The history that is here ends before the last accepted commit; more may lie at the server."""


class Verification:
    """Verifies commits, by files that are read again whenever they change.

    Raises ConfigError where nothing could ever be verified, and HostError without the extra `gpg`.
    """

    def __init__(
        self,
        mode: VerificationMode,
        allowed_signers: Path | None,
        gpg_keys: Path | None,
        now: Callable[[], datetime],
    ) -> None:
        self.mode, self._now = mode, now
        self._ssh = _KeyFile("--allowed-signers", allowed_signers, sshsig.parse)
        self._gpg = _KeyFile("--gpg-keys", gpg_keys, keys)
        if mode is not VerificationMode.OFF and allowed_signers is None and gpg_keys is None:
            missing = "there are no keys to verify signatures with"
            hint = "Name a file by --allowed-signers, or by --gpg-keys"
            raise ConfigError(missing, where="--verify", hint=hint)
        if gpg_keys is not None:
            check_installed()

    def check(
        self,
        repository: pygit2.Repository,
        commit: str,
        *,
        tag: str | None,
        accepted: str,
        ref: str = "",
    ) -> Signature:
        """Return the signature that makes a commit acceptable. Raises Unverified.

        `tag` is the id of the annotated tag that `ref`, by its full name, leads through to the
        commit. `accepted` is the commit that was accepted last, or "". Raises Incomplete, which is
        an Unverified, where the repository holds too little of the history to know.
        """
        try:
            if self.mode is VerificationMode.TAG:
                return self._tag(repository, commit, tag=tag, ref=ref)
            return self._commits(repository, commit, accepted)
        except Refused as error:
            raise Unverified(error.why, revision=commit) from None

    def _tag(
        self, repository: pygit2.Repository, commit: str, *, tag: str | None, ref: str
    ) -> Signature:
        if tag is None:
            raise Refused(f"{shown(ref)} is not an annotated tag")
        name, found = signature.tag(_raw(repository, tag, ObjectType.TAG))
        if found.targets != (commit,):
            raise Refused("the tag leads to another commit")
        # Else an old tag with a good signature could be served under a new name.
        if "refs/tags/" + name != ref:
            raise Refused(f"the tag was signed as {shown(name)}")
        return self._signed(found, "the signature of its tag", (found.time, self._now()))

    def _commits(self, repository: pygit2.Repository, commit: str, accepted: str) -> Signature:
        history = self.mode is VerificationMode.HISTORY
        head = _commit(repository, commit)
        if not history or not accepted or commit == accepted:
            # One that was accepted stays so when its key reaches its end, if that is still listed.
            times = (head.time,) if commit == accepted else (head.time, self._now())
            return self._signed(head, "its signature", times, first=history and not accepted)
        if not signature.is_id(accepted):
            raise Refused(f"{shown(accepted)} was accepted last, and is no id of a commit")
        now = self._now()
        found = self._signed(head, "its signature", (head.time, now))
        for one, content in _new_commits(repository, commit, accepted).items():
            try:
                self._signed(content, "its signature", (content.time, now))
            except Refused as error:
                raise Refused(f"{one[:12]}, which leads to it, is not: {error.why}") from None
        return found

    def _signed(
        self, signed: SignedObject, part: str, times: Sequence[datetime], *, first: bool = False
    ) -> Signature:
        armor = signed.signature
        if not armor:
            raise Refused("it has no signature" if part == "its signature" else f"{part} is absent")
        try:
            if armor.startswith(sshsig.BEGIN):
                listed = self._ssh.keys()
                sshsig.verify(armor, signed.payload, listed, principal=signed.email, times=times)
                return Signature(self.mode, "ssh", signed.email, first)
            if armor.startswith(BEGIN):
                signer = verify(armor, signed.payload, self._gpg.keys(), now=times[-1])
                return Signature(self.mode, "gpg", signer, first)
        except Refused as error:
            raise Refused(f"{part} {error.why}") from None
        raise Refused(f"{part} is neither of SSH nor of GPG")


_Keys = TypeVar("_Keys")


class _KeyFile(Generic[_Keys]):
    """A file of keys, parsed again whenever its content is another one."""

    def __init__(self, option: str, path: Path | None, parse: Callable[[bytes], _Keys]) -> None:
        self._option, self._path, self._parse = option, path, parse
        self._known: tuple[bytes, _Keys] | None = None

    def keys(self) -> _Keys:
        """Return the keys that it lists now. Raises Refused."""
        if self._path is None:
            raise Refused(f"cannot be checked: there is no {self._option}")
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise Refused(f"cannot be checked: {self._path}: {error.strerror}") from None
        if self._known is None or self._known[0] != content:
            try:
                self._known = (content, self._parse(content))
            except Refused as error:
                raise Refused(f"cannot be checked: {self._path} {error.why}") from None
        return self._known[1]


def _new_commits(
    repository: pygit2.Repository, commit: str, accepted: str
) -> Mapping[str, SignedObject]:
    """Return the commits that lead to one and not to the accepted one, which has to be among them.

    Raises Refused, and Incomplete.
    """
    old = _ancestors(repository, accepted)
    found: dict[str, SignedObject] = {}
    left, descends = deque([commit]), False
    while left:
        one = left.popleft()
        descends = descends or one == accepted
        if one in old or one in found:
            continue
        if len(found) == MOST_COMMITS:
            raise Refused(f"more than {MOST_COMMITS} commits are new since {accepted[:12]}")
        try:
            found[one] = _commit(repository, one)
        except KeyError:
            why = f"its history is not here as far as {accepted[:12]}, the last accepted commit"
            raise Incomplete(why, revision=commit) from None
        left.extend(found[one].targets)
    if not descends:
        raise Refused(
            f"it does not descend from {accepted[:12]}, the last accepted commit: history was"
            " rewritten or rolled back"
        )
    return found


def _ancestors(repository: pygit2.Repository, commit: str) -> frozenset[str]:
    """Return a commit, and those that lead to it as far as they are here, the nearest ones first.

    Where some are missing, more commits count as new, and have to be signed.
    """
    found, left = {commit}, deque([commit])
    while left and len(found) < _MOST_OLD:
        try:
            parents = _commit(repository, left.popleft()).targets
        except (KeyError, Refused):
            continue
        left.extend(one for one in parents if one not in found)
        found.update(parents)
    return frozenset(found)


def _commit(repository: pygit2.Repository, commit: str) -> SignedObject:
    return signature.commit(_raw(repository, commit, ObjectType.COMMIT))


def _raw(repository: pygit2.Repository, name: str, wanted: ObjectType) -> bytes:
    """Return the bytes of a commit or tag. Raises Refused, and KeyError where it is not here."""
    if name not in repository.odb:  # the repository itself would parse it
        raise KeyError(name)
    try:
        found, size = repository.odb.read_header(name)
        if found != wanted or size > _MOST_BYTES:
            raise Refused(f"{name[:12]} is no {wanted.name.lower()}, or too large a one")
        return repository.odb.read(name)[1]
    except pygit2.GitError:
        raise Refused(f"{name[:12]} cannot be read") from None


def check_installed() -> None:
    """Raise HostError where the extra is missing."""
    try:
        import pysequoia  # noqa: F401 - whether it can be
    except ImportError:
        hint = "Install klutchctl[gpg]: pip install 'klutchctl[gpg]'"
        raise HostError("signatures of GPG cannot be verified here", hint=hint) from None


def keys(content: bytes) -> "list[Cert]":
    """Return the public keys of `gpg --armor --export`. Raises Refused."""
    from pysequoia import Cert

    if len(content) > _MOST_OF_KEYS:
        raise Refused(f"has more than {_MOST_OF_KEYS >> 20} MiB")
    with _in_words("is no list of public keys of GPG"):
        found = Cert.split_bytes(content)
    if not found:
        raise Refused("lists no key")
    return found


def verify(armor: bytes, content: bytes, listed: "list[Cert]", *, now: datetime) -> str:
    """Return the fingerprint of the listed key that signed some content.

    Raises Refused, whose sentence goes on from "its signature".
    """
    import pysequoia

    if len(armor) > _MOST_OF_ARMOR:
        raise Refused(f"has more than {_MOST_OF_ARMOR >> 10} KiB")
    if armor.count(BEGIN) != 1 or not armor.rstrip().endswith(_END):
        raise Refused("is not one signature of GPG")
    with _in_words("is not one of a listed GPG key over this content"):
        signature = pysequoia.Sig.from_bytes(armor)
        result = pysequoia.verify(bytes=content, store=lambda _ids: listed, signature=signature)
        signed = {str(one.certificate) for one in result.valid_sigs}
        certificate = next(one for one in listed if one.fingerprint in signed)
    _check_alive(certificate, now)
    return str(certificate.fingerprint).upper()


@contextmanager
def _in_words(why: str) -> Iterator[None]:
    """Refuse at every failure: errors of Sequoia hold backtraces, and a panic is no Exception."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise Refused(why) from None


def _check_alive(certificate: "Cert", now: datetime) -> None:
    expiration = certificate.expiration
    if certificate.is_revoked:
        raise Refused("is by a GPG key that was revoked")
    if expiration is not None and expiration.astimezone(UTC) < now:
        raise Refused(f"is by a GPG key that was valid until {expiration.isoformat()}")
