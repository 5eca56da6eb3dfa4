"""What an answer other than success means, as one of our errors. Pure.

An API server's words are passed on without the values that they quote: `spec.size: Invalid value:
"hunter2": must be ...`. That lands in conditions, reports and logs, which others read than those
who may read the object. The field, the kind of mistake and the rule say as much to the writer.

Sources: Kubernetes API conventions (Status), field.Error of k8s.io/apimachinery,
structured-merge-diff and json-iterator, as answers of kube-apiserver 1.36.3 that the contract
tests repeat.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Final

import orjson

from reconciler.core.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Missing,
    NotServed,
    Rejected,
    Replaced,
    Unauthorized,
    Unreachable,
)
from reconciler.core.manifest import JSON, Manifest, get_int, get_map, get_maps, get_text
from reconciler.core.refs import SECRET
from reconciler.core.secret import HIDDEN, scrub
from reconciler.kube.requests import JSON_PATCH, Request

_MESSAGE_LIMIT: Final = 1000
# In turn: patch, delete, and apply to an object that is gone.
_OTHER_UID: Final = re.compile(
    r"UID in precondition|UID in the precondition|uid mismatch: the provided object specified uid"
)
# Server-side apply of what is not in the schema: kube-apiserver calls that its own failure.
_NOT_TYPED: Final = ("failed to create typed patch object", "failed to convert new object")
_BY_STATUS: Final[dict[int, type[ClusterError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: Expired,
    429: Unreachable,
}


def failure(
    request: Request, *, status: int, answer: Manifest | None, retry_after: float | None = None
) -> ClusterError:
    """Return the error that an HTTP answer of 300 and above stands for.

    `answer` is the Status object in it, None where a stranger answered.
    """
    if answer is None:
        kind, message = _foreign(status)
        reason = ""
    else:
        kind = _classify(request, status, answer)
        message = _readable(request, unquoted(answer) or f"HTTP {status}")
        reason = get_text(answer, "reason")
        if retry_after is None:
            seconds = get_int(answer, "details", "retryAfterSeconds")
            retry_after = None if seconds is None else float(seconds)
    return kind(
        message,
        ref=request.ref,
        verb=request.verb,
        status=status,
        reason=reason,
        retry_after=retry_after,
        outcome_unknown=status >= 500 and not request.repeatable and kind is not Rejected,
    )


def parse_status(body: bytes) -> Manifest | None:
    """Return the Status object in an answer, or None where a stranger answered."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else None


def _foreign(status: int) -> tuple[type[ClusterError], str]:
    """Judge an answer that is not a Kubernetes Status: of a proxy, a gateway, another server."""
    if status == 401:
        return Unauthorized, "HTTP 401"
    if status == 403:
        return Forbidden, "HTTP 403"
    if status == 404:
        return NotServed, "nothing is served at this path"
    if status == 429 or status >= 500:
        return Unreachable, f"HTTP {status}, not from a Kubernetes API server"
    if status < 400:
        return Unreachable, f"HTTP {status}: a redirect, not a Kubernetes API server"
    return Rejected, f"HTTP {status}, not from a Kubernetes API server"


def _classify(request: Request, status: int, answer: Manifest) -> type[ClusterError]:
    reason = get_text(answer, "reason")
    if status == 409:
        return _conflict(reason, get_text(answer, "message"))
    if status == 422:
        return _invalid(request, answer)
    if status == 404 and not get_text(answer, "details", "name"):
        return NotServed
    if status == 500 and get_text(answer, "message").startswith(_NOT_TYPED):
        return Rejected
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Rejected if 400 <= status < 500 and status != 408 else Unreachable


def _conflict(reason: str, message: str) -> type[ClusterError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    # Only the message distinguishes another uid from a stale version.
    return Replaced if _OTHER_UID.search(message) else Conflict


def _invalid(request: Request, answer: Manifest) -> type[ClusterError]:
    causes = get_maps(get_map(answer, "details"), "causes")
    if any(get_text(cause, "field") == "metadata.uid" for cause in causes):
        return Replaced
    has_test = b'"test"' in (request.body or b"")
    if request.content_type == JSON_PATCH and not causes and has_test:
        return Conflict  # the server does not say whether it was the test
    return Rejected


def _readable(request: Request, message: str) -> str:
    """Return the server's sentence on one line, cut, and without what a Secret held."""
    text = " ".join(message.split())
    if request.ref.kind == SECRET and request.body is not None:
        text = scrub(text, tuple(_payload(request.body)))
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."


def _payload(body: bytes) -> Iterator[str]:
    """Yield every value that a Secret's body carries, as sent, encoded and decoded."""
    for value in _strings(orjson.loads(body)):
        yield value
        yield base64.b64encode(value.encode()).decode()
        try:
            yield base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue


def _strings(value: JSON, *, inside: bool = False) -> Iterator[str]:
    """Yield the strings under data, stringData and JSON patch values."""
    if isinstance(value, str):
        if inside:
            yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, inside=inside or key in ("data", "stringData", "value"))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, inside=inside)


_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_PLAIN: Final = re.compile(rf"({_QUOTED}|-?[0-9][-+.0-9a-zA-Z]*|true|false|null)(?=: |$)")
_WITH_VALUE: Final = "Invalid value|Unsupported value|Duplicate value|Not found|Too many|Too few"
_INVALID: Final = " is invalid: "
# A value as Go writes it: `map[string]interface {}{...`, `[]v1.X{...`, `&x.Y{...`.
_GO_VALUE: Final = re.compile(r"[&*(\[{<]|[\w.*\[\]]+(?: \{\})?[\[{(]")
_IN_TEXT: Final = re.compile(rf"({_WITH_VALUE}): {_QUOTED}")
# What was decoded instead: a Go value, or the bytes around the place.
_GOT: Final = re.compile(r"got &.*?(?=\n|$)")
_CONTEXT: Final = re.compile(r",? ?error found in #.*", re.DOTALL)


def unquoted(status: Manifest) -> str:
    """Return the sentence of a Status object without the values that it quotes."""
    text = get_text(status, "message")
    causes = get_maps(get_map(status, "details"), "causes")
    if get_text(status, "reason") == "Invalid" and causes:
        head, separator, _ = text.partition(_INVALID)
        sentences = "; ".join(dict.fromkeys(_cause(cause) for cause in causes))
        return f"{head}{_INVALID}{sentences}" if separator else sentences
    text = _IN_TEXT.sub(rf"\1: {HIDDEN}", text)
    return _CONTEXT.sub("", _GOT.sub("got something else", text))


def _cause(cause: Manifest) -> str:
    field, text = get_text(cause, "field"), get_text(cause, "message")
    kind, _, rest = text.partition(": ")
    if re.fullmatch(_WITH_VALUE, kind):
        value, rule = _value_and_rule(rest)
        # What is unsupported is none of the words that are listed behind it.
        rule = rule if kind == "Unsupported value" else scrub(rule, (value,))
        text = f"{kind}: {rule}" if rule else kind
    return f"{field}: {text}" if field and field != "<nil>" else text


def _value_and_rule(text: str) -> tuple[str, str]:
    """Split `text` into the value that it begins with and the rule behind; "" where none is sure.

    The rules that a CRD brings have no value: `Invalid value: size is immutable`.
    """
    plain = _PLAIN.match(text)
    if plain is not None:
        return plain[0].strip('"'), text[plain.end() :].removeprefix(": ")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return "", "" if text.startswith('"') or _GO_VALUE.match(text) else text
    if text[end:] and not text.startswith(": ", end):
        return "", ""
    return text[:end], text[end:].removeprefix(": ")
