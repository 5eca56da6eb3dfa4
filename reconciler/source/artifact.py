"""Fetches a fleet's archive from a server: of Flux's source-controller, or an OCI artifact.

Both have a digest in their name. It is compared before the content is read, so neither the server
nor the network has to be trusted.

An archive is read in memory, whole or not at all. It is bounded in entries, depth and unpacked
bytes, since a small archive may unpack to anything. Links and devices are refused wherever they
are: what a checkout would have in their place is not here.
"""

import base64
import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlencode, urljoin

import orjson

from reconciler.core.errors import ConfigError, InvalidRepository, Unfetched
from reconciler.core.secret import Secret
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet import base_model
from reconciler.fleet.files import Snapshot
from reconciler.source import gather
from reconciler.source.gather import MAX_DEPTH, MAX_FILES, EntryType, Unreadable
from reconciler.web.outbound import Answer, Http, OutboundError, shown, url_fault

_MOST: Final = 64 << 20  # bytes of a compressed archive
_MOST_TEXT: Final = 1 << 20  # bytes of a manifest, or of a token's answer
_TIMEOUT: Final = 120.0  # seconds for one answer
_REDIRECTS: Final = 3
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = "[a-z0-9]+([._-]+[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(f"{_NAME}(/{_NAME})*")
_CHALLENGE: Final = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_ANY: Final = "*/*"
_LAYER: Final = "tar+gzip"
_MOST_UNPACKED: Final = 128 << 20
_BROKEN: Final = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A place on a server, and the digest of its content: `sha256:` and 64 hexadecimal digits."""

    place: str
    digest: str


def pinned(text: str, *, where: str) -> Pinned:
    """Read PLACE@sha256:DIGEST. Raises ConfigError."""
    place, _, digest = text.rpartition("@")
    if not (place and _DIGEST.fullmatch(digest)):
        hint = "Write the place, then @sha256: and 64 hexadecimal digits"
        raise ConfigError("it names no digest of SHA-256", where=where, hint=hint)
    return Pinned(place, digest)


class Gone(Unfetched):
    """There is nothing at a URL."""


async def of_flux(found: Pinned, *, folder: str) -> Snapshot:
    """Return the fleet in the archive at a URL, which may be of plain http within a cluster.

    Raises ConfigError, InvalidRepository and Unfetched.
    """
    content, where = await fetched(found), shown(found.place)
    return read(content, revision=found.digest, folder=folder, where=where)


async def fetched(found: Pinned) -> bytes:
    """Return the archive at a URL, which may be of plain http within a cluster.

    Raises ConfigError, and Unfetched, Gone of them.
    """
    if fault := url_fault(found.place, plain_http=True):
        raise ConfigError(fault, where="--artifact")
    async with Http(timeout=_TIMEOUT, plain_http=True) as http:
        answer = await _Server(http, None).get(found.place, _ANY, _MOST)
    return _checked(answer, found, found.place)


async def of_oci(found: Pinned, *, folder: str, docker: Path) -> Snapshot:
    """Return the fleet in an OCI artifact of one layer; `docker` is Docker's file of credentials.

    Raises ConfigError, InvalidRepository and Unfetched.
    """
    host, _, name = found.place.removeprefix("oci://").partition("/")
    repository = name.partition(":")[0]  # a tag beside a digest says nothing
    base = f"https://{host}/v2/{repository}"
    if not _REPOSITORY.fullmatch(repository) or url_fault(base):
        raise ConfigError("it is not HOST/REPOSITORY@sha256:DIGEST", where="--oci")
    async with Http(timeout=_TIMEOUT) as http:
        registry = _Server(http, _login(docker, host))
        url = f"{base}/manifests/{found.digest}"
        manifest = _checked(await registry.get(url, _MANIFEST, _MOST_TEXT), found, url)
        layer = Pinned(found.place, _layer(manifest, where=found.place))
        url = f"{base}/blobs/{layer.digest}"
        content = _checked(await registry.get(url, _ANY, _MOST), layer, url)
    return read(content, revision=found.digest, folder=folder, where=shown(base))


def _checked(answer: Answer, found: Pinned, url: str) -> bytes:
    """Return the fetched bytes, if the digest fits. Raises Unfetched."""
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    if digest != found.digest:
        raise Unfetched(f"it is {digest}, and not {found.digest}", where=shown(url))
    return answer.body


def _layer(manifest: bytes, *, where: str) -> str:
    """Return the digest of the one layer of an artifact. Raises ConfigError."""
    try:
        (layer,) = orjson.loads(manifest)["layers"]
        kind, digest = layer["mediaType"], layer["digest"]
        if isinstance(kind, str) and kind.endswith(_LAYER) and _DIGEST.fullmatch(digest):
            return str(digest)
    except (ValueError, KeyError, TypeError):
        pass
    raise ConfigError(f"it is no artifact of one layer of {_LAYER}", where=where)


class _Server:
    """Asks one server, and for a token where it wants one."""

    def __init__(self, http: Http, login: Secret | None) -> None:
        self._http = http
        self._login: dict[str, str | Secret] = {} if login is None else {"Authorization": login}
        self._authorization: dict[str, str | Secret] = {}

    async def get(self, url: str, accept: str, most: int) -> Answer:
        """Return the answer of a URL, also behind redirects. Raises Unfetched."""
        try:
            return _good(await self._ask(url, accept, most), url)
        except OutboundError as error:
            raise Unfetched(error.problem, where=shown(url)) from None

    async def _ask(self, url: str, accept: str, most: int) -> Answer:
        """Ask. No redirect, as to the storage behind a registry, gets or names a credential."""
        headers: dict[str, str | Secret] = {"Accept": accept}
        request = self._http.request
        answer = await request("GET", url, headers=headers | self._authorization, most=most)
        if answer.status == 401:
            await self._authorize(answer.headers.get("www-authenticate", ""), url)
            answer = await request("GET", url, headers=headers | self._authorization, most=most)
        for _ in range(_REDIRECTS):
            if not answer.location:
                break
            url = urljoin(url, answer.location)
            answer = await request("GET", url, headers=headers, most=most)
        return answer

    async def _authorize(self, challenge: str, url: str) -> None:
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self._login:
            self._authorization = self._login
            return
        parameters = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or not parameters.get("realm"):
            raise Unfetched("it asks for a credential, and there is none", where=shown(url))
        query = {key: parameters[key] for key in ("service", "scope") if key in parameters}
        realm = f"{parameters['realm']}?{urlencode(query)}"
        answer = _good(await self._http.get(realm, headers=self._login), realm)
        try:
            document = orjson.loads(answer.body)
            token = document.get("token") or document["access_token"]
        except (ValueError, KeyError, AttributeError):
            raise Unfetched("it answers without a token", where=shown(realm)) from None
        self._authorization = {"Authorization": Secret(f"Bearer {token}")}


def _login(docker: Path, host: str) -> Secret | None:
    """Return the credential of Docker's file for a host, as the value of a header.

    Raises ConfigError for a file that is none.
    """
    try:
        entry = orjson.loads(docker.read_bytes()).get("auths", {}).get(host) or {}
        text = (
            entry.get("auth")
            or base64.b64encode(f"{entry['username']}:{entry['password']}".encode()).decode()
        )
    except (FileNotFoundError, NotADirectoryError, KeyError):
        return None
    except (OSError, ValueError, AttributeError):
        raise ConfigError("is no file of Docker with credentials", where=str(docker)) from None
    return Secret(f"Basic {text}")


def _good(answer: Answer, url: str) -> Answer:
    if answer.status == 404:
        raise Gone("HTTP 404", where=shown(url))
    if answer.status != 200:
        raise Unfetched(f"HTTP {answer.status}", where=shown(url))
    return answer


@dataclass(frozen=True, slots=True)
class _File:
    """A file; its `content` is None where that is too large. `id` is that of Git, 20 bytes."""

    content: bytes | None
    id: bytes
    executable: bool


Folder: TypeAlias = "dict[str, Folder | _File]"


class _Refused(Exception):
    """A refusal of the archive: the sentence goes on from its name."""


def read(content: bytes, *, revision: str, folder: str, where: str) -> Snapshot:
    """Return the fleet in an archive. Raises as `opened` and `snapshot`."""
    return snapshot(opened(content, where=where), revision=revision, folder=folder, where=where)


def opened(content: bytes, *, where: str) -> Folder:
    """Unpack a tar archive, compressed by gzip. `where` names it in errors. Raises ConfigError."""
    try:
        return _unpacked(content)
    except _Refused as error:
        raise ConfigError(str(error), where=where) from None
    except _BROKEN:
        raise ConfigError("is no tar archive, compressed by gzip", where=where) from None


def snapshot(top: Folder, *, revision: str, folder: str, where: str) -> Snapshot:
    """Return the fleet in a folder, as in `Snapshot`. Raises ConfigError and InvalidRepository."""
    try:
        store = _Archive(_at(top, folder.rstrip("/")))
        entry = gather.find_entry(store)
        found = gather.gather(store, entry)
    except Unreadable:
        message = f"there is no folder {folder.rstrip('/')!r} in it"
        raise ConfigError(message, where=where) from None
    except InvalidRepository as error:
        raise InvalidRepository(error.problems, revision=revision) from None
    return Snapshot(found.files, revision, entry, found.unread, folder)


def tree_id(top: Folder, folder: str) -> str:
    """Return the id that Git gives a folder, "" where there is none.

    It is that of the commit only where all of the folder is in the archive.
    """
    try:
        return _tree(_at(top, folder.rstrip("/"))).hex()
    except Unreadable:
        return ""


def _tree(found: "Folder | _File") -> bytes:
    """Return the id of a tree, b"" for one without files: Git has none."""
    entries: dict[bytes, bytes] = {}
    for name, one in found.items() if isinstance(found, dict) else ():
        key = os.fsencode(name)
        if isinstance(one, _File):
            entries[key] = (b"100755 " if one.executable else b"100644 ") + key + b"\0" + one.id
        elif below := _tree(one):
            entries[key + b"/"] = b"40000 " + key + b"\0" + below  # Git sorts it so
    return _object_id("tree", b"".join(entries[key] for key in sorted(entries))) if entries else b""


def _object_id(kind: str, content: bytes) -> bytes:
    whole = f"{kind} {len(content)}\0".encode() + content
    return hashlib.sha1(whole, usedforsecurity=False).digest()


class _Bounded(io.RawIOBase):
    """The output of gzip, up to a limit of bytes. Raises _Refused beyond it."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._stream = gzip.GzipFile(fileobj=io.BytesIO(content))
        self._left = _MOST_UNPACKED

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes."""
        part = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(part)
        if self._left < 0:
            raise _Refused(f"unpacks to more than {_MOST_UNPACKED >> 20} MiB")
        return part


def _unpacked(content: bytes) -> Folder:
    """Return folders and files. Raises _Refused, and the errors in _BROKEN."""
    top: Folder = {}
    with tarfile.open(fileobj=_Bounded(content), mode="r|") as archive:
        for number, member in enumerate(archive):
            if number == MAX_FILES:
                raise _Refused(f"contains more than {MAX_FILES} entries")
            path = member.name.removeprefix("./").rstrip("/")
            if member.isdir() and path in ("", "."):
                continue
            shown = repr(path[:200])
            if problem := base_model.path_problem(path):
                raise _Refused(f"contains {shown}, which {problem}")
            if path.count("/") > MAX_DEPTH:
                raise _Refused(f"contains {shown}, below more than {MAX_DEPTH} folders")
            if not (member.isdir() or member.isreg()) or member.issparse():
                kind = "a link" if member.issym() or member.islnk() else "no file and no folder"
                raise _Refused(f"contains {shown}, which is {kind}: put the file itself there")
            _put(top, path, _content(archive, member))
    return top


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> "Folder | _File":
    if member.isdir():
        return {}
    file = archive.extractfile(member)
    assert file is not None
    content = file.read()
    if len(content) != member.size:
        raise tarfile.ReadError("cut short")
    kept = content if len(content) <= MAX_BYTES else None
    return _File(kept, _object_id("blob", content), bool(member.mode & 0o100))


def _put(top: Folder, path: str, content: "Folder | _File") -> None:
    """Put a file or folder in its place. Raises _Refused where another one is."""
    *above, name = path.split("/")
    folder: Folder | _File | None = top
    for one in above:
        folder = folder.setdefault(one, {}) if isinstance(folder, dict) else None
    if not isinstance(folder, dict) or (name in folder and not (folder[name] == {} == content)):
        raise _Refused(f"contains {path[:200]!r} twice, or below a file")
    folder[name] = content


def _at(top: Folder, path: str) -> "Folder | _File":
    """Return the entry at a path, "" for the top. Raises Unreadable."""
    found: Folder | _File = top
    for name in path.split("/") if path else ():
        if not isinstance(found, dict) or name not in found:
            raise Unreadable("missing-file", "does not exist")
        found = found[name]
    return found


class _Archive:
    """A `gather.Store` in folders that were unpacked."""

    def __init__(self, top: "Folder | _File") -> None:
        if not isinstance(top, dict):
            raise Unreadable("missing-file", "does not exist")
        self._top = top

    def entries(self, folder: str) -> Iterator[tuple[str, EntryType]]:
        found = _at(self._top, folder)
        if not isinstance(found, dict):
            raise gather.not_a_file(EntryType.OTHER)
        for name, one in sorted(found.items()):
            yield name, _type(one)

    def read(self, path: str) -> bytes:
        found = _at(self._top, path)
        if not isinstance(found, _File):
            raise gather.not_a_file(EntryType.FOLDER)
        if found.content is None:
            raise gather.too_large()
        return found.content

    def entry_type(self, path: str) -> EntryType:
        return _type(_at(self._top, path))

    def target(self, path: str) -> str:
        """Refuse: no archive with a link is read."""
        raise Unreadable("missing-file", f"is no link: {path}")


def _type(found: "Folder | _File") -> EntryType:
    return EntryType.FOLDER if isinstance(found, dict) else EntryType.FILE
