"""Which call of the callback server ends a sign-in (F17, RFC 9207)."""

import base64
import json

import pytest

from klutchctl.binding.signed_in import Answer, Expected, Foreign
from reconciler.core.secret import Secret
from tests.support import binding_objects as objects

DOOR = "https://bind.example.org"
OURS = Expected("sid-1", DOOR)
ORIGINAL = Expected("h3Xk9a", None)
GOOD = {"state": "sid-1", "iss": DOOR, "code": "canary"}


def response(document, alphabet=base64.b64encode):
    return {"response": alphabet(json.dumps(document).encode()).decode()}


def test_a_code_of_the_door_that_was_asked_is_taken():
    answer = OURS.accept(GOOD)
    assert answer == Answer(Secret("canary"))
    assert "canary" not in repr(answer)


def test_a_refusal_ends_the_sign_in():
    answer = OURS.accept({"state": "sid-1", "iss": DOOR, "error": "access_denied"})
    assert answer == Answer(error="access_denied")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {**GOOD, "state": "sid-2"},
        {**GOOD, "state": ""},
        {**GOOD, "state": "é"},
        {**GOOD, "iss": "https://other.example"},
        {"state": "sid-1", "code": "canary"},
        {**GOOD, "code": ""},
        {"state": "sid-2", "iss": DOOR, "error": "access_denied"},
        response(objects.document(sid="sid-1")),
    ],
)
def test_what_is_not_the_doors_answer_to_this_session_is_foreign(query):
    with pytest.raises(Foreign):
        OURS.accept(query)


@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
def test_the_whole_response_of_an_original_is_taken(alphabet):
    document = objects.document()
    assert ORIGINAL.accept(response(document, alphabet)) == Answer(document=document)


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"response": "?"},
        response({}),
        response(objects.document(sid="other")),
        response(objects.document(sid="\ud800")),
        response({**objects.document(), "kind": "Status"}),
        response({**objects.document(), "authentication": {}}),
        {"state": "h3Xk9a", "code": "canary"},
    ],
)
def test_what_is_not_the_originals_answer_to_this_session_is_foreign(query):
    with pytest.raises(Foreign):
        ORIGINAL.accept(query)
