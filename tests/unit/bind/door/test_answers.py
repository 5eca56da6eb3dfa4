"""Refusals, in the form that their clients read, and where answers may go."""

import json

import pytest

from bind.door.handlers import answers
from bind.door.identity import Refused
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


ALLOWED = ("https://console.example.org/bind", "http://10.0.0.1/a")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"port": "40123"}, "http://localhost:40123/callback"),
        ({"port": "1"}, "http://localhost:1/callback"),
        ({"port": "65535"}, "http://localhost:65535/callback"),
        ({"url": "http://localhost:1/"}, "http://localhost:1/"),
        ({"url": "http://localhost:1"}, "http://localhost:1"),
        ({"url": "http://127.0.0.1:8080/a/b?c=d&e=%20"}, "http://127.0.0.1:8080/a/b?c=d&e=%20"),
        ({"url": "http://[::1]:8080/cb"}, "http://[::1]:8080/cb"),
        ({"url": "http://localhost:1/u", "port": "2"}, "http://localhost:1/u"),
        ({"url": ALLOWED[0]}, ALLOWED[0]),
        ({"url": ALLOWED[1], "port": "x"}, ALLOWED[1]),
    ],
)
def test_answers_go_to_loopback_and_where_the_operator_allows(given, expected):
    assert answers.target(**{"url": "", "port": "", **given}, allowed=ALLOWED) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/cb",
        "//evil.example",
        "\\\\evil.example",
        "http://0x7f000001:80/",
        "HTTP://LOCALHOST:80/\t",
        " http://localhost:80/",
        "http://localhost@evil.example:80/",
        "http://localhost:80@evil.example/",
        "http://localhost.evil.example:80/",
        "http://localhost:80.evil.example/",
        "javascript:alert(1)",
        "http://localhost:80/\r\nSet-Cookie: a=b",
        "http://localhost:80/\\evil.example",
        "http:\\\\localhost:80\\",
        "http://localhost:80/%00",
        "http://localhost:80/\x00",
        "http://localhost:80/%0d%0aA:b",
        "http://localhost:80/#fragment",
        "http://localhost/cb",
        "http://localhost:0/",
        "http://localhost:65536/",
        "http://localhost:99999999/",
        "http://LOCALHOST:80/ ",
        "https://localhost:80/",
        "http://127.0.0.2:80/",
        "http://[::2]:80/",
        "http://0.0.0.0:80/",
        "http://localhost:80/" + "a" * 1_000,
        "https://console.example.org/bind/",
        "https://console.example.org/bind?a=b",
        "http://10.0.0.1/ä",
        "http://localhost:\uff18\uff10/",
    ],
)
def test_answers_go_nowhere_else(url):
    with pytest.raises(Refused) as refused:
        answers.target(url=url, port="80", allowed=ALLOWED)
    assert (refused.value.code, refused.value.reason) == ("invalid_request", "target")


@pytest.mark.parametrize("port", ["", "0", "-1", "65536", "1e3", "80/", "٣", " 80", "80 ", "80#"])
def test_a_port_is_a_number(port):
    with pytest.raises(Refused, match="not a port"):
        answers.target(url="", port=port, allowed=())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1/cb", "http://localhost:1/cb?response=a%2Bb%2Fc%3D"),
        ("http://localhost:1/cb?z=1&a=2", "http://localhost:1/cb?a=2&response=a%2Bb%2Fc%3D&z=1"),
        ("http://localhost:1/cb?empty=", "http://localhost:1/cb?empty=&response=a%2Bb%2Fc%3D"),
    ],
)
def test_what_is_added_to_a_target_is_sorted_among_its_own(url, expected):
    assert answers.with_query(url, response="a+b/c=") == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Bind.Example.org/callback", "https://bind.example.org"),
        ("http://127.0.0.1:8080/a?b", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("https://bind.example.org:443/callback", "https://bind.example.org"),
        ("http://bind.example.org:80/", "http://bind.example.org"),
        ("http://bind.example.org:443/", "http://bind.example.org:443"),
    ],
)
def test_the_origin_of_a_url(url, expected):
    assert answers.origin(url) == expected
