"""Parses answers of API servers: checks a success, and turns all else into our errors. Pure.

A success that is not what was asked for is an error too. Gateways and proxies answer 200 with pages
of their own, and an outage that reads as an empty list would look like an empty cluster.

An API server's words are passed on without the values that they quote: `spec.size: Invalid value:
"hunter2": must be ...`. That lands in conditions, reports and logs, which others read than those
who may read the object. The field, the kind of mistake and the rule say as much to the writer.

Sources: Kubernetes API conventions (Status), field.Error of k8s.io/apimachinery,
structured-merge-diff and json-iterator, of kube-apiserver 1.36.3, as contract tests repeat.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from reconciler.core import errors
from reconciler.core.manifest import (
    JSON,
    Manifest,
    get,
    get_bool,
    get_int,
    get_map,
    get_maps,
    get_text,
)
from reconciler.core.refs import SECRET, Kind
from reconciler.core.secret import HIDDEN, scrub
from reconciler.kube.requests import JSON_PATCH, Request


def garbled(request: Request, message: str) -> errors.Unreachable:
    """Return the error for a success that does not answer the request."""
    return errors.Unreachable(
        f"{message}: is this a Kubernetes API server?",
        ref=request.ref,
        verb=request.verb,
        outcome_unknown=not request.repeatable,
    )


def named(answer: Manifest, request: Request) -> Manifest:
    """Return the object that the request names, if it names one."""
    wanted = request.ref.name
    if wanted and get_text(answer, "metadata", "name") != wanted:
        raise garbled(request, "the answer is another object")
    return answer


def items(answer: Manifest, request: Request) -> list[Manifest]:
    """Return the objects of a list. An answer that is no list is an error, never empty."""
    kind, listed = request.ref.kind, answer.get("items", ())
    token = get(answer, "metadata", "continue")
    if (
        not _is_list_of(kind, answer)
        or not get_text(answer, "metadata", "resourceVersion")
        or not (token is None or isinstance(token, str))
        or not (listed is None or isinstance(listed, list))
        or not all(isinstance(item, dict) for item in listed or ())
    ):
        raise garbled(request, "the answer is not a list of such objects")
    # Lists of built-in kinds leave the type of their items out.
    types: dict[str, JSON] = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [item if "kind" in item else types | item for item in listed or []]


def _is_list_of(kind: Kind, answer: Manifest) -> bool:
    called, version = get_text(answer, "kind"), get_text(answer, "apiVersion")
    if called == "PartialObjectMetadataList":
        return version.startswith("meta.k8s.io/")
    # A CRD may call its lists as it likes.
    custom = "." in kind.group and not kind.group.endswith(".k8s.io")
    right = called not in ("", "Status") if custom else called == f"{kind.kind}List"
    return right and version == kind.api_version


def require_deletion(answer: Manifest, request: Request) -> None:
    """Raise Unreachable for an answer that is neither a success nor the object."""
    done = (get_text(answer, "kind"), get_text(answer, "status")) == ("Status", "Success")
    if not done and get_text(answer, "metadata", "name") != request.ref.name:
        raise garbled(request, "the answer is neither success nor the object")


def kind(answer: Manifest, request: Request) -> Kind:
    """Return the kind that is served as the resource asked for. Raises NotServed."""
    asked = request.ref.kind
    for resource in get_maps(answer, "resources"):
        if get_text(resource, "name") == asked.plural:
            return Kind(
                asked.group,
                asked.version,
                get_text(resource, "kind"),
                asked.plural,
                namespaced=get_bool(resource, "namespaced"),
            )
    message = f"the cluster does not serve {asked.resource}/{asked.version}"
    raise errors.NotServed(message, ref=request.ref, verb=request.verb)


def versions(answer: Manifest, request: Request) -> Sequence[str]:
    """Return the versions in which the group asked for is served."""
    if answer.get("kind") != "APIGroupList":
        raise garbled(request, "discovery answers with something else")
    return [
        get_text(version, "version")
        for group in get_maps(answer, "groups")
        if get_text(group, "name") == request.ref.kind.group
        for version in get_maps(group, "versions")
    ]


_MESSAGE_LIMIT: Final = 1000
_LONGEST_REQUEST: Final = 300.0  # seconds that a server may ask to be left alone
# In turn: patch, delete, and apply to an object that is gone.
_OTHER_UID: Final = re.compile(
    r"UID in precondition|UID in the precondition|uid mismatch: the provided object specified uid"
)
# Server-side apply of what is not in the schema: kube-apiserver calls that its own failure.
_NOT_TYPED: Final = ("failed to create typed patch object", "failed to convert new object")
_BY_STATUS: Final[dict[int, type[errors.ClusterError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.Missing,
    409: errors.Conflict,
    410: errors.Expired,
    429: errors.Unreachable,
}


def failure(
    request: Request, *, status: int, answer: Manifest | None, retry_after: float | None = None
) -> errors.ClusterError:
    """Return the error that an HTTP answer of 300 and above stands for.

    `answer` is the Status object in it, None where another server answered.
    """
    if answer is None:
        error, message = _foreign(status)
        reason = ""
    else:
        error = _classify(request, status, answer)
        message = _readable(request, unquoted(answer) or f"HTTP {status}")
        reason = get_text(answer, "reason")
        if retry_after is None:
            retry_after = get_int(answer, "details", "retryAfterSeconds")
    return error(
        message,
        ref=request.ref,
        verb=request.verb,
        status=status,
        reason=reason,
        retry_after=None if retry_after is None else min(max(retry_after, 0.0), _LONGEST_REQUEST),
        outcome_unknown=status >= 500 and not request.repeatable and error is not errors.Rejected,
    )


def parse_status(body: bytes) -> Manifest | None:
    """Return the Status object in an answer, or None where another server answered."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else None


def _foreign(status: int) -> tuple[type[errors.ClusterError], str]:
    """Judge an answer that is not a Kubernetes Status: of a proxy, a gateway, another server."""
    if status == 401:
        return errors.Unauthorized, "HTTP 401"
    if status == 403:
        return errors.Forbidden, "HTTP 403"
    if status == 404:
        return errors.NotServed, "nothing is served at this path"
    if status == 429 or status >= 500:
        return errors.Unreachable, f"HTTP {status}, not from a Kubernetes API server"
    if status < 400:
        return errors.Unreachable, f"HTTP {status}: a redirect, not a Kubernetes API server"
    return errors.Rejected, f"HTTP {status}, not from a Kubernetes API server"


def _classify(request: Request, status: int, answer: Manifest) -> type[errors.ClusterError]:
    reason = get_text(answer, "reason")
    if status == 409:
        return _conflict(reason, get_text(answer, "message"))
    if status == 422:
        return _invalid(request, answer)
    if status == 404 and not get_text(answer, "details", "name"):
        return errors.NotServed
    if status == 500 and get_text(answer, "message").startswith(_NOT_TYPED):
        return errors.Rejected
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return errors.Rejected if 400 <= status < 500 and status != 408 else errors.Unreachable


def _conflict(reason: str, message: str) -> type[errors.ClusterError]:
    if reason == "AlreadyExists":
        return errors.AlreadyExists
    # Only the message distinguishes another uid from a stale version.
    return errors.Replaced if _OTHER_UID.search(message) else errors.Conflict


def _invalid(request: Request, answer: Manifest) -> type[errors.ClusterError]:
    causes = get_maps(get_map(answer, "details"), "causes")
    if any(get_text(cause, "field") == "metadata.uid" for cause in causes):
        return errors.Replaced
    has_test = b'"test"' in (request.body or b"")
    if request.content_type == JSON_PATCH and not causes and has_test:
        return errors.Conflict  # the server does not say whether it was the test
    return errors.Rejected


def _readable(request: Request, message: str) -> str:
    """Return the server's sentence on one line, cut, and without values of a Secret."""
    text = " ".join(message.split())
    if request.ref.kind == SECRET and request.body is not None:
        text = scrub(text, tuple(_payload(request.body)))
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."


def _payload(body: bytes) -> Iterator[str]:
    """Yield every value that a Secret's body carries, as sent and decoded."""
    for value in _strings(orjson.loads(body)):
        yield value
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
    mistake, _, rest = text.partition(": ")
    if re.fullmatch(_WITH_VALUE, mistake):
        value, rule = _value_and_rule(rest)
        # What is unsupported is none of the words that are listed behind it.
        rule = rule if mistake == "Unsupported value" else scrub(rule, (value,))
        text = f"{mistake}: {rule}" if rule else mistake
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
