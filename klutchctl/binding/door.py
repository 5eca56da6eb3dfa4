"""Asks a provider over HTTP: what it is, and the API of our front door (front-door.md 3)."""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

import orjson

from klutchctl.binding import provider
from klutchctl.binding.errors import BadAnswer, BindEnded, Denied
from klutchctl.binding.provider import FrontDoor, Provider
from reconciler.core.documents import MAX_DEPTH, is_within
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest, get_list, get_maps, get_text
from reconciler.core.refs import GroupResource
from reconciler.core.secret import Secret
from reconciler.outbound.http import Answer, Http, OutboundError

TIMEOUT: Final = 30.0  # the door takes up to 10 s to make a space
MOST: Final = 1 << 20
_AGAIN: Final = 50.0  # seconds; a code is good for 60
_PAUSE: Final = 5.0
_LONGEST: Final = 300


async def discovered(http: Http, url: str) -> Provider:
    """Return what the provider at a URL is. Raises ConfigError, BadAnswer and BindEnded."""
    places = provider.places(url)
    exported = await _answer(http.get(places.export))
    _require(exported, places.export)
    found = await _answer(http.get(places.front_door))
    door = None
    if found.status == 200:
        door = provider.front_door_of(found.body)
        provider.require_own(door, url)
    elif found.status != 404:
        _require(found, places.front_door)
    return Provider(url, provider.authorize_url_of(exported.body), door)


async def redeem(
    http: Http, door: FrontDoor, code: Secret, verifier: Secret
) -> tuple[Manifest, Sequence[Manifest] | None]:
    """Return the BindingResponse for a code, and the consent of the page, None for none.

    Raises Denied, BadAnswer and BindEnded.
    """
    body = {"code": code.reveal(), "code_verifier": verifier.reveal()}
    document = await _posted(http, door.redeem_url, body, {})
    response = document.get("bindingResponse")
    if not isinstance(response, dict):
        raise BadAnswer("the front door redeemed the code and sent no bindingResponse")
    consent = document.get("consent")
    return response, get_maps(document, "consent") if isinstance(consent, list) else None


async def bind(
    http: Http,
    door: FrontDoor,
    token: Secret,
    *,
    cluster_id: str,
    resources: Sequence[GroupResource],
    dry_run: bool,
) -> Manifest:
    """Return the BindingResponse for a token. Raises Denied, BadAnswer and BindEnded."""
    body: dict[str, JSON] = {
        "clusterID": cluster_id,
        "resources": [one.wire for one in resources],
        "dryRun": dry_run,
    }
    return await _posted(http, door.bind_url, body, _bearer(token))


async def offered(http: Http, door: FrontDoor, token: Secret) -> list[GroupResource]:
    """Return what a token may bind. Raises Denied, BadAnswer and BindEnded."""
    answer = await _answer(http.get(door.catalogue_url, headers=_bearer(token)))
    _require(answer, "the catalogue")
    try:
        listed = {"listed": orjson.loads(answer.body)}
    except orjson.JSONDecodeError:
        listed = {}
    if not listed or not is_within(listed, MAX_DEPTH):
        raise BadAnswer("the catalogue is no JSON, or too deep")
    return [
        GroupResource(get_text(one, "group"), get_text(one, "resource"))
        for one in get_list(listed, "listed")
        if isinstance(one, dict) and one.get("mayBind", True)
    ]


async def fetched(http: Http, url: str) -> bytes:
    """Return what is at a URL. Raises ConfigError, Denied and BindEnded."""
    answer = await _answer(http.get(url))
    _require(answer, "the URL")
    return answer.body


def _bearer(token: Secret) -> Mapping[str, Secret]:
    return {"Authorization": Secret(f"Bearer {token.reveal()}")}


async def _posted(
    http: Http, url: str, body: Mapping[str, JSON], headers: Mapping[str, Secret]
) -> Manifest:
    """Post until it is not told to come again; what the door makes for it can be asked twice."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _AGAIN
    content = json.dumps(body).encode()
    said: dict[str, str | Secret] = {"Content-Type": "application/json", **headers}
    while True:
        answer = await _answer(http.post(url, body=content, headers=said))
        pause = min(_seconds(answer.headers.get("retry-after", "")), _PAUSE)
        if answer.status not in (429, 503) or loop.time() + pause > end:
            break
        await asyncio.sleep(pause)
    _require(answer, "the front door")
    return provider.parsed(answer.body, "the front door")


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1.0


async def _answer(asked: Awaitable[Answer]) -> Answer:
    try:
        return await asked
    except OutboundError as error:
        raise BindEnded(str(error)) from None


def _require(answer: Answer, place: str) -> None:
    """Refuse what is no success, with what our door says of it."""
    if answer.status == 200:
        return
    message = _message(answer)
    text = f"{place} answers {answer.status}" + (f": {message}" if message else "")
    if answer.status in (401, 403):
        raise Denied(text)
    if 300 <= answer.status < 400:
        raise ConfigError(f"{place} redirects, which is not followed: give the URL it leads to")
    if 400 <= answer.status < 500 and answer.status != 429:
        raise ConfigError(text)
    raise BindEnded(text)


def _message(answer: Answer) -> str:
    """Return the sentence of an error document of ours, bounded; nothing else is shown."""
    try:
        document = provider.parsed(answer.body, "")
    except BadAnswer:
        return ""
    return get_text(document, "message")[:_LONGEST]
