"""What each answer of a server means, for the caller and for a person."""

import base64

import orjson
import pytest

from reconciler.core.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Missing,
    NotServed,
    Rejected,
    Replaced,
    Retry,
    Unauthorized,
    Unreachable,
)
from reconciler.core.refs import CONFIG_MAP, SECRET, Ref
from reconciler.kube import requests
from reconciler.kube.http.failures import failure, parse_status

REF = Ref("shop", CONFIG_MAP, "ns", "x")
READ = requests.get(REF, metadata_only=False)
WRITE = requests.create(
    "shop", {"metadata": {"name": "x", "namespace": "ns"}}, CONFIG_MAP, manager="m", dry_run=False
)
JSON_PATCHED = requests.patch(
    REF,
    [{"op": "test", "path": "/a", "value": 1}],
    content_type=requests.JSON_PATCH,
    manager="m",
    subresource="",
    dry_run=False,
)
UNTESTED = requests.patch(
    REF,
    [{"op": "nonsense", "path": "/a"}],
    content_type=requests.JSON_PATCH,
    manager="m",
    subresource="",
    dry_run=False,
)


def status(reason, message="said so", **details):
    return orjson.dumps(
        {"kind": "Status", "reason": reason, "message": message, "details": details}
    )


def judged(request, *, status, body, retry_after=None):
    return failure(request, status=status, answer=parse_status(body), retry_after=retry_after)


UID_CAUSE = [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]
ANSWERS = {
    "401 is about who we are": (READ, 401, status("Unauthorized"), Unauthorized),
    "403 may be granted later": (READ, 403, status("Forbidden"), Forbidden),
    "404 that names an object": (READ, 404, status("NotFound", name="x"), Missing),
    "404 that names none is about the kind": (READ, 404, status("NotFound"), NotServed),
    "404 in plain text is about the path": (READ, 404, b"404 page not found\n", NotServed),
    "409 on create": (WRITE, 409, status("AlreadyExists", name="x"), AlreadyExists),
    "409 on a stale version": (WRITE, 409, status("Conflict", name="x"), Conflict),
    "409 on another uid": (
        WRITE,
        409,
        status("Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b"),
        Replaced,
    ),
    "422 on metadata.uid is another object": (
        WRITE,
        422,
        status("Invalid", causes=UID_CAUSE),
        Replaced,
    ),
    "422 on any other field": (
        WRITE,
        422,
        status("Invalid", causes=[{"field": "spec.a"}]),
        Rejected,
    ),
    "422 without a cause is a failed test of a JSON patch": (
        JSON_PATCHED,
        422,
        status("Invalid"),
        Conflict,
    ),
    "422 to a JSON patch that tests nothing": (UNTESTED, 422, status("Invalid"), Rejected),
    "500 to an apply that the schema does not know": (
        WRITE,
        500,
        status("", "failed to create typed patch object (ns/x; v1, Kind=ConfigMap): .foo"),
        Rejected,
    ),
    "410": (READ, 410, status("Expired"), Expired),
    "413": (WRITE, 413, status("RequestEntityTooLarge"), Rejected),
    "400": (WRITE, 400, status("BadRequest"), Rejected),
    "429": (WRITE, 429, status("TooManyRequests"), Unreachable),
    "500": (READ, 500, status("InternalError"), Unreachable),
    "503 of a gateway": (READ, 503, b"<html>", Unreachable),
    "a redirect is not followed": (READ, 302, b"", Unreachable),
    "418 of a stranger": (READ, 418, b"teapot", Rejected),
}


@pytest.mark.parametrize(("request_", "code", "body", "kind"), ANSWERS.values(), ids=ANSWERS.keys())
def test_kind_of_failure(request_, code, body, kind):
    error = judged(request_, status=code, body=body)
    assert type(error) is kind
    assert error.status == code
    assert str(error).startswith(f"shop: {request_.verb} ConfigMap ns/x: ")


RETRIES = {Unreachable: Retry.LATER, Forbidden: Retry.LATER, NotServed: Retry.LATER}
RETRIES |= {Unauthorized: Retry.LATER, Rejected: Retry.NEVER, Expired: Retry.NOW}
RETRIES |= {Conflict: Retry.NOW, AlreadyExists: Retry.NOW, Missing: Retry.NOW, Replaced: Retry.NOW}


@pytest.mark.parametrize(("kind", "retry"), RETRIES.items(), ids=lambda value: str(value))
def test_when_to_retry(kind, retry):
    assert kind.retry is retry


def test_a_write_that_met_a_server_error_may_have_happened():
    assert judged(WRITE, status=500, body=status("InternalError")).outcome_unknown
    assert "may have happened" in str(judged(WRITE, status=502, body=b""))
    assert not judged(READ, status=500, body=status("InternalError")).outcome_unknown
    untyped = status("", "failed to create typed patch object (ns/x; v1, Kind=ConfigMap): .foo")
    assert not judged(WRITE, status=500, body=untyped).outcome_unknown
    assert not judged(WRITE, status=429, body=status("TooManyRequests")).outcome_unknown


def test_the_servers_wish_to_wait_is_kept():
    assert judged(READ, status=429, body=b"", retry_after=7).retry_after == 7
    body = status("TooManyRequests", retryAfterSeconds=3)
    assert judged(READ, status=429, body=body).retry_after == 3


CANARY = "canary-passw0rd"
SECRETS = {
    "data": {"data": {"password": base64.b64encode(CANARY.encode()).decode()}},
    "stringData": {"stringData": {"password": CANARY}},
}


@pytest.mark.parametrize("content", SECRETS.values(), ids=SECRETS.keys())
def test_an_error_never_quotes_a_secret(content):
    manifest = {"metadata": {"name": "x", "namespace": "ns"}} | content
    request = requests.create("shop", manifest, SECRET, manager="m", dry_run=False)
    encoded = base64.b64encode(CANARY.encode()).decode()
    message = f'data[password]: Invalid value: "{encoded}" also {CANARY} and {encoded}'
    text = str(judged(request, status=422, body=status("Invalid", message)))
    assert CANARY not in text
    assert encoded not in text
    assert "data[password]" in text, "the field is still named"


def test_a_long_message_is_cut_and_stays_on_one_line():
    text = str(judged(READ, status=500, body=status("InternalError", "a\nb\r" + "c" * 5000)))
    assert len(text) < 1200
    assert "\n" not in text
    assert "\r" not in text
