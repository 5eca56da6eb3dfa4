"""A fleet in an archive on a server: what Flux's source-controller serves, or an OCI artifact.

Both are named by their digest, which is compared before anything of them is looked at, so no server
and nobody on the way has to be believed.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urljoin

import orjson

from reconciler.core.errors import ConfigError, Unfetched
from reconciler.core.secret import Secret
from reconciler.fleet.files import Snapshot
from reconciler.outbound.http import Answer, Http, OutboundError, shown, url_fault
from reconciler.source import archive

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


@dataclass(frozen=True, slots=True)
class Pinned:
    """A place on a server, and the digest of what is there: `sha256:` and 64 hexadecimal digits."""

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
    return archive.read(content, revision=found.digest, folder=folder, where=where)


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
    return archive.read(content, revision=found.digest, folder=folder, where=shown(base))


def _checked(answer: Answer, found: Pinned, url: str) -> bytes:
    """Return what was fetched, if it is what the digest says. Raises Unfetched."""
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
        """Return what is at a URL, also behind redirects. Raises Unfetched."""
        try:
            answer = await self._ask(url, accept, most)
            if answer.status == 401:
                await self._authorize(answer.headers.get("www-authenticate", ""), url)
                answer = await self._ask(url, accept, most)
        except OutboundError as error:
            raise Unfetched(error.problem, where=shown(url)) from None
        return _good(answer, url)

    async def _ask(self, url: str, accept: str, most: int) -> Answer:
        """Ask. No redirect, as to the storage behind a registry, gets a credential."""
        headers: dict[str, str | Secret] = {"Accept": accept}
        asked = {**headers, **self._authorization}
        answer = await self._http.request("GET", url, headers=asked, most=most)
        for _ in range(_REDIRECTS):
            if not answer.location:
                break
            url = urljoin(url, answer.location)
            answer = await self._http.request("GET", url, headers=headers, most=most)
        return answer

    async def _authorize(self, challenge: str, url: str) -> None:
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self._login:
            self._authorization = self._login
            return
        said = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or not said.get("realm"):
            raise Unfetched("it asks for a credential, and there is none", where=shown(url))
        query = {key: said[key] for key in ("service", "scope") if key in said}
        realm = f"{said['realm']}?{urlencode(query)}"
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
        auths = orjson.loads(docker.read_bytes()).get("auths", {})
        entry = auths.get(host) or {}
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
