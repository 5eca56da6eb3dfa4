"""What answers other than success become, and which of their words are passed on."""

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
from reconciler.core.refs import CONFIG_MAP, SECRET, Kind, Ref
from reconciler.kube import requests
from reconciler.kube.answers import failure, parse_status
from reconciler.kube.requests import Request

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
    for asked, kept in (float("9" * 400), 300), (-5, 0):  # wherever it is read
        assert judged(READ, status=429, body=b"", retry_after=asked).retry_after == kept


CANARY = "canary-passw0rd"
TEXTS = {"password": CANARY, "key": "-----BEGIN KEY-----\ncanary\n"}
SECRETS = {
    "data": {key: base64.b64encode(text.encode()).decode() for key, text in TEXTS.items()},
    "stringData": TEXTS,
}


@pytest.mark.parametrize("field", SECRETS)
def test_an_error_never_quotes_a_secret(field):
    manifest = {"metadata": {"name": "x", "namespace": "ns"}, field: SECRETS[field]}
    request = requests.create("shop", manifest, SECRET, manager="m", dry_run=False)
    encoded = base64.b64encode(CANARY.encode()).decode()
    message = f'data[password]: Invalid value: "{encoded}", {CANARY}, {encoded}, {TEXTS["key"]}'
    text = str(judged(request, status=422, body=status("Invalid", message)))
    assert "canary" not in text
    assert encoded not in text
    assert "data[password]" in text, "the field is still named"


def test_a_long_message_is_cut_and_stays_on_one_line():
    text = str(judged(READ, status=500, body=status("InternalError", "a\nb\r" + "c" * 5000)))
    assert len(text) < 1200
    assert "\n" not in text
    assert "\r" not in text


HEAD = 'Database.shop.example "db" is invalid'
SERVICE = Ref("app-1", Kind("shop.example", "v1", "Database", "databases"), "team-a", "db")

CAUSES = {
    "text": f'Invalid value: "{CANARY}": spec.a in body should match "^[0-9]+$"',
    "text with quotes": rf'Invalid value: "\"{CANARY}\": must": must be a number',
    "none of those": f'Unsupported value: "{CANARY}": supported values: "small", "large"',
    "twice": f'Duplicate value: "{CANARY}"',
    "a number": "Invalid value: 31337: must be at most 5",
    "an object": f'Invalid value: {{"p":"{CANARY}","q":[": x"]}}: the value is immutable',
    "a value of Go": f'Invalid value: map[string]interface {{}}{{"p":"{CANARY}"}}: it is immutable',
    "a list of Go": f'Invalid value: []v1.Item{{{{Name:"{CANARY}"}}}}: no',
    "a pointer of Go": f'Invalid value: &v1.Item{{Name:"{CANARY}"}}: no',
    "text without its end": f'Invalid value: "{CANARY}',
    "a rule of a CRD, which quotes no value": "Invalid value: a plan (small, large) is set once",
    "the value in the rule as well": f'Invalid value: "{CANARY}": {CANARY} is no size',
    "what is required": "Required value: a size",
    "what is forbidden": "Forbidden: it is set once",
}


def refused(message, causes, status=422, reason="Invalid"):
    answer = {"kind": "Status", "message": message, "reason": reason}
    if causes:
        answer["details"] = {"causes": causes}
    return failure(Request("create", SERVICE, "POST", "/x", b"{}"), status=status, answer=answer)


def test_a_cause(golden):
    lines = []
    for name, said in CAUSES.items():
        error = refused(f"{HEAD}: spec.a: {said}", [{"field": "spec.a", "message": said}])
        lines += [name, f"  {error.message.removeprefix(f'{HEAD}: ')}"]
    reported = "".join(f"{line}\n" for line in lines)
    assert CANARY not in reported
    golden(reported, "causes.txt")


def test_several_causes():
    causes = [
        {"field": "spec.a", "message": f'Invalid value: "{CANARY}": one'},
        {"field": "spec.b", "message": "Required value"},
        {"field": "<nil>", "message": f'Invalid value: "{CANARY}": two'},
    ]
    assert refused(f"{HEAD}: [{CANARY}]", causes).message == (
        f"{HEAD}: spec.a: Invalid value: one; spec.b: Required value; Invalid value: two"
    )


WITHOUT = {
    "a sentence alone": (
        f'{HEAD}: spec.a: Invalid value: "{CANARY}": must be short',
        f"{HEAD}: spec.a: Invalid value: <redacted>: must be short",
    ),
    "another type": (
        f'.spec.a: expected numeric, got &value.valueUnstructured{{Value:"{CANARY}"}}',
        ".spec.a: expected numeric, got something else",
    ),
    "what stands around a mistake": (
        f'v1.X.Spec: expects {{, error found in #10 byte of ...|"p":"{CANARY}"|...',
        "v1.X.Spec: expects {",
    ),
}


@pytest.mark.parametrize(("said", "want"), WITHOUT.values(), ids=WITHOUT.keys())
@pytest.mark.parametrize(("status", "reason"), [(422, "Invalid"), (400, "BadRequest"), (500, "")])
def test_without_causes(said, want, status, reason):
    assert refused(said, [], status, reason).message == want
