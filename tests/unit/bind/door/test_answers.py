"""Refusals, in the form that their clients read."""

import json

import pytest

from bind.door.handlers import answers
from bind.door.refusals import Refused
from reconciler.web.requests import Request

HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.mark.parametrize(
    ("path", "headers", "content_type"),
    [
        ("/bind", {}, "text/plain; charset=utf-8"),
        ("/bind", HTML, "text/html; charset=utf-8"),
        ("/api/v1/bind", {}, "application/json"),
        ("/api/v1/bind", HTML, "application/json"),
    ],
)
def test_a_refusal_has_the_form_of_its_client(path, headers, content_type):
    request = Request("GET", path, headers=headers, id="abc")
    answer = answers.refused(request, Refused("forbidden", "Not yours"))
    assert (answer.status, answer.content_type) == (403, content_type)
    assert b"Not yours" in answer.body
    assert "no-store" in dict(answer.headers)["Cache-Control"]
    if content_type == "application/json":
        assert json.loads(answer.body)["code"] == "forbidden"


@pytest.mark.parametrize("secure", [True, False])
def test_a_page_of_a_refusal_keeps_browsers_on_https_where_the_door_is(secure):
    request = Request("GET", "/bind", headers=HTML, id="abc")
    answer = answers.refusal(request, 503, "Away", secure=secure)
    assert ("Strict-Transport-Security" in dict(answer.headers)) is secure
    assert b"abc" in answer.body


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "1"), (1.0, "1"), (1.1, "2"), (None, None)])
def test_a_client_learns_when_to_come_again(seconds, said):
    error = Refused("too_many_requests", "Too many", retry_after=seconds)
    answer = answers.refused(Request("GET", "/bind"), error)
    assert dict(answer.headers).get("Retry-After") == said
