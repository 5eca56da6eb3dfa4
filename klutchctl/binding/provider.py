"""Calls a provider over HTTP: its documents, and the API of its front door.

Wire facts of the original's BindingProvider in protocol-bind.md A.12 and D.3, and front-door.md 3.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import orjson

from klutchctl.binding.progress import BadAnswer, BindEnded, Denied
from reconciler.core import manifest
from reconciler.core.documents import MAX_DEPTH, is_within, object_of
from reconciler.core.errors import ConfigError
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.web.outbound import Answer, Http, OutboundError

_EXPORT: Final = "/export"
_WELL_KNOWN: Final = "/.well-known/klutch-bind"
_METHOD: Final = "OAuth2CodeGrant"
# What a binary says that was built without a version.
_UNVERSIONED: Final = frozenset({"v0.0.0", "v0.0.0-master+$Format:%H$"})
_VERSION: Final = re.compile(
    r"v?(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})"
    r"(?P<pre>-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)
_MOST_MEMORY: Final = 64 << 20
_OLDEST: Final = (0, 3, 0)
TIMEOUT: Final = 30.0  # the door takes up to 10 s to make a space
MOST: Final = 1 << 20
_AGAIN: Final = 50.0  # seconds; a code is good for 60
_PAUSE: Final = 5.0
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Device:
    """The identity provider of the device grant. `token` is the field that the door takes."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    token: str


@dataclass(frozen=True, slots=True)
class FrontDoor:
    """Our door's well-known document. Absent parts are "" and None; URLs and audience are there."""

    redeem_url: str
    bind_url: str
    catalogue_url: str
    audience: str
    konnector_image: str
    device: Device | None
    machine_issuer: str
    machine_scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: where people sign in, and its front door, None for an original backend."""

    url: str  # as a person named it
    authorize_url: str
    door: FrontDoor | None


def places(url: str) -> tuple[str, str]:
    """Return where to ask. `url` is the base or `.../export`. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        usable = usable and parts.port != 0 and parts.username is None
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        hint = "Give the URL of the provider, such as https://bind.example.org"
        raise ConfigError("this is no URL of a provider", where="URL", hint=hint)
    if parts.fragment:
        raise ConfigError("that of a provider has no fragment", where="URL")
    path = parts.path.rstrip("/").removesuffix(_EXPORT)
    export = urlunsplit((parts.scheme, parts.netloc, path + _EXPORT, parts.query, ""))
    return export, urlunsplit((parts.scheme, parts.netloc, path + _WELL_KNOWN, "", ""))


def authorize_url_of(body: bytes) -> str:
    """Return where people sign in, by the answer to GET `/export`. Raises BadAnswer."""
    document = parsed(body, "/export")
    if manifest.get_text(document, "apiVersion") != "v1alpha1":
        raise BadAnswer("/export: apiVersion is not v1alpha1: this is no provider of Klutch")
    if manifest.get_text(document, "kind") != "BindingProvider":
        raise BadAnswer("/export: kind is not BindingProvider: this is no provider of Klutch")
    if problem := version_problem(manifest.get_text(document, "version")):
        raise BadAnswer(f"/export: {problem}")
    for method in manifest.get_maps(document, "authenticationMethods"):
        if manifest.get_text(method, "method") == _METHOD:
            url = manifest.get_text(method, "oauth2CodeGrant", "authenticatedURL")
            if _origin(url)[0] in ("http", "https"):
                return url
    raise BadAnswer(f"/export: it offers no authentication method {_METHOD} with a URL")


def version_problem(version: str) -> str:
    """Return why a provider of this version is not bound to, or "" (D.3)."""
    if version in _UNVERSIONED:
        return ""
    if not version:
        return "it reports no version"
    match = _VERSION.fullmatch(version)
    if match is None:
        return "its version is no semantic version"
    numbers = tuple(int(match[place]) for place in (1, 2, 3))
    if numbers < _OLDEST or (numbers == _OLDEST and match["pre"]):
        return f"its version {version} is too old; 0.3.0 is the oldest that works"
    return ""


def front_door_of(body: bytes) -> FrontDoor:
    """Return our door, by its well-known document. Raises BadAnswer."""
    document = parsed(body, _WELL_KNOWN)
    if manifest.get_text(document, "kind") != "FrontDoor":
        raise BadAnswer(f"{_WELL_KNOWN}: kind is not FrontDoor")
    for name in ("audience", "redeemURL", "bindURL", "catalogueURL"):
        if not manifest.get_text(document, name):  # an empty one would be anybody's
            raise BadAnswer(f"{_WELL_KNOWN}: it names no {name}")
    device, machines = manifest.get_map(document, "device"), manifest.get_map(document, "machines")
    return FrontDoor(
        redeem_url=manifest.get_text(document, "redeemURL"),
        bind_url=manifest.get_text(document, "bindURL"),
        catalogue_url=manifest.get_text(document, "catalogueURL"),
        audience=manifest.get_text(document, "audience"),
        konnector_image=manifest.get_text(document, "konnectorImage"),
        device=_device(device),
        machine_issuer=manifest.get_text(machines, "issuer"),
        machine_scopes=tuple(manifest.get_texts(machines, "scopes")),
    )


def require_own(door: FrontDoor, url: str) -> None:
    """Refuse a front door that names the URLs or the audience of another server.

    It would receive tokens that are valid there. Raises ConfigError.
    """
    own = _origin(url)
    for named in (door.audience, door.redeem_url, door.bind_url, door.catalogue_url):
        if _origin(named) != own:
            hint = "Give the URL by which the provider calls itself"
            raise ConfigError("it calls itself by another address", where="front door", hint=hint)


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
        return parts.scheme, parts.hostname or "", port
    except ValueError:
        return "", "", None


def _device(device: Mapping[str, manifest.JSON]) -> Device | None:
    issuer, client = manifest.get_text(device, "issuer"), manifest.get_text(device, "clientID")
    if not issuer or not client:
        return None
    scopes = tuple(manifest.get_texts(device, "scopes")) or ("openid",)
    return Device(issuer, client, scopes, manifest.get_text(device, "token") or "id_token")


def with_query(url: str, fields: Mapping[str, str]) -> str:
    """Return the URL with further fields in its query; present ones stay. Raises ValueError."""
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode(sorted(fields.items())))))
    return urlunsplit(parts._replace(query=query))


def parsed(body: bytes, place: str) -> Mapping[str, manifest.JSON]:
    """Return the JSON object in an answer. Raises BadAnswer."""
    document = object_of(body, most_memory=_MOST_MEMORY)
    if document is None:
        raise BadAnswer(f"{place}: the answer is no JSON object: this is no provider of Klutch")
    return document


async def discovered(http: Http, url: str) -> Provider:
    """Return the description of the provider at a URL. Raises ConfigError, BadAnswer, BindEnded."""
    export, well_known = places(url)
    exported = await _answer(http.get(export))
    _require(exported, export)
    found = await _answer(http.get(well_known))
    door = None
    if found.status == 200:
        door = front_door_of(found.body)
        require_own(door, url)
    elif found.status != 404:
        _require(found, well_known)
    return Provider(url, authorize_url_of(exported.body), door)


async def redeem(
    http: Http, door: FrontDoor, code: Secret, verifier: Secret
) -> tuple[manifest.Manifest, Sequence[manifest.Manifest] | None]:
    """Return the BindingResponse for a code, and the consent of the page, None for none.

    Raises Denied, BadAnswer and BindEnded.
    """
    body = {"code": code.reveal(), "code_verifier": verifier.reveal()}
    document = await _posted(http, door.redeem_url, body, {})
    response = document.get("bindingResponse")
    if not isinstance(response, dict):
        raise BadAnswer("the front door redeemed the code and sent no bindingResponse")
    consent = document.get("consent")
    return response, manifest.get_maps(document, "consent") if isinstance(consent, list) else None


async def bind(
    http: Http,
    door: FrontDoor,
    token: Secret,
    *,
    cluster: Mapping[str, manifest.JSON],
    resources: Sequence[GroupResource],
    dry_run: bool,
) -> manifest.Manifest:
    """Return the BindingResponse for a token. Raises Denied, BadAnswer and BindEnded."""
    wanted: manifest.Manifest = {"resources": [one.wire for one in resources], "dryRun": dry_run}
    return await _posted(http, door.bind_url, {**cluster, **wanted}, _bearer(token))


async def offered(http: Http, door: FrontDoor, token: Secret) -> list[GroupResource]:
    """Return the resources that a token may bind. Raises Denied, BadAnswer and BindEnded."""
    answer = await _answer(http.get(door.catalogue_url, headers=_bearer(token)))
    _require(answer, "the catalogue")
    try:
        listed = {"listed": orjson.loads(answer.body)}
    except orjson.JSONDecodeError:
        listed = {}
    if not listed or not is_within(listed, MAX_DEPTH):
        raise BadAnswer("the catalogue is no JSON, or too deep")
    return [
        GroupResource(manifest.get_text(one, "group"), manifest.get_text(one, "resource"))
        for one in manifest.get_list(listed, "listed")
        if isinstance(one, dict) and one.get("mayBind", True)
    ]


async def fetched(http: Http, url: str) -> bytes:
    """Return the answer of a URL. Raises ConfigError, Denied and BindEnded."""
    answer = await _answer(http.get(url))
    _require(answer, "the URL")
    return answer.body


def _bearer(token: Secret) -> Mapping[str, Secret]:
    return {"Authorization": Secret(f"Bearer {token.reveal()}")}


async def _posted(
    http: Http, url: str, body: Mapping[str, manifest.JSON], headers: Mapping[str, Secret]
) -> manifest.Manifest:
    """Post until the answer is final; the door repeats its results."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _AGAIN
    content = json.dumps(body).encode()
    sent: dict[str, str | Secret] = {"Content-Type": "application/json", **headers}
    while True:
        answer = await _answer(http.post(url, body=content, headers=sent))
        stated = answer.headers.get("retry-after", "")
        is_number = stated.isascii() and stated.isdigit() and len(stated) < 6
        pause = min(float(stated) if is_number else 1.0, _PAUSE)
        if answer.status not in (429, 503) or loop.time() + pause > end:
            break
        await asyncio.sleep(pause)
    _require(answer, "the front door")
    return parsed(answer.body, "the front door")


async def _answer(asked: Awaitable[Answer]) -> Answer:
    try:
        return await asked
    except OutboundError as error:
        raise BindEnded(str(error)) from None


def _require(answer: Answer, place: str) -> None:
    """Refuse an answer that is no success, with the reason of our door."""
    if answer.status == 200:
        return
    message = _message(answer)
    text = f"answers {answer.status}" + (f": {message}" if message else "")
    if answer.status in (401, 403):
        raise Denied(f"{place} {text}")
    if 300 <= answer.status < 400:
        hint = "Give the final URL"
        raise ConfigError("redirects, and redirects are not followed", where=place, hint=hint)
    if 400 <= answer.status < 500 and answer.status != 429:
        raise ConfigError(text, where=place)
    raise BindEnded(f"{place} {text}")


def _message(answer: Answer) -> str:
    """Return the sentence of an error document of ours, bounded; nothing else is shown."""
    try:
        document = parsed(answer.body, "")
    except BadAnswer:
        return ""
    return manifest.get_text(document, "message")[:_LONGEST]
