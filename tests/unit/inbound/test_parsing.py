"""What a target, headers and cookies say; what has two readings is refused."""

import pytest

from reconciler.inbound import parsing
from reconciler.inbound.messages import RequestRefused


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        ("/", "/", {}),
        ("/?", "/", {}),
        ("/a/b%20c", "/a/b c", {}),
        ("/%C3%BC", "/ü", {}),
        ("/a+b", "/a+b", {}),
        ("/authorize?s=1&c=a-b&p=80", "/authorize", {"s": "1", "c": "a-b", "p": "80"}),
        ("/?u=http%3A%2F%2Flocalhost%3A80%2F%3Fa%3D1", "/", {"u": "http://localhost:80/?a=1"}),
        ("/?a=b+c%2Bd", "/", {"a": "b c+d"}),
        ("/?a=1=2", "/", {"a": "1=2"}),
        ("/?a&b=&&c=?/", "/", {"a": "", "b": "", "c": "?/"}),
        ("/?a=1;b=2", "/", {"a": "1;b=2"}),
        ("/?%61=1", "/", {"a": "1"}),
        # Whom a proxy asks for is not looked at.
        ("http://evil.example/a?b=1", "/a", {"b": "1"}),
        ("HTTPS://evil.example", "/", {}),
        ("http://evil.example?b=1", "/", {"b": "1"}),
        ("//evil.example/a", "//evil.example/a", {}),
    ],
)
def test_targets(raw, path, query):
    assert parsing.target(raw) == (path, query)


@pytest.mark.parametrize(
    "raw",
    [
        "/?a=1&a=2",
        "/?a=1&%61=2",
        "/?a&a",
        "/%",
        "/%2",
        "/%zz",
        "/?a=%",
        "/?%g1=1",
        "/%00",
        "/?a=%00",
        "/?%00=1",
        "/%ff",
        "/?a=%c3",
        "/?a=%ed%a0%80",
        "/a%2fb",
        "/a%2Fb",
        "/a#b",
        "/?a=b#c",
        "/ü",
        "/\udcff",
        "/a b",
        "*",
        "evil.example:443",
        "?a=1",
        "http:///a",
        "ftp://evil.example/",
        "a",
    ],
)
def test_targets_that_are_refused(raw):
    with pytest.raises(RequestRefused) as refused:
        parsing.target(raw)
    assert refused.value.status == 400
    assert "evil" not in refused.value.sentence


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ([("Host", "a"), ("X-Some", "b")], {"host": "a", "x-some": "b"}),
        ([("Via", "a"), ("via", "b")], {"via": "a, b"}),
        ([("X-Forwarded-For", "a"), ("x-forwarded-for", "b")], {"x-forwarded-for": "a, b"}),
        ([("Cookie", "a=1"), ("cookie", "b=2")], {"cookie": "a=1; b=2"}),
        ([("User-Agent", "caf\udce9")], {"user-agent": "caf\ufffd"}),
    ],
)
def test_headers(fields, wanted):
    assert parsing.headers(fields) == wanted


@pytest.mark.parametrize("name", ["Authorization", "Origin", "Sec-Fetch-Site", "Referer"])
def test_headers_that_may_not_come_twice(name):
    with pytest.raises(RequestRefused, match="comes twice"):
        parsing.headers([(name, "a"), (name.lower(), "a")])


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1; b=2;c=3 ", {"a": "1", "b": "2", "c": "3"}),
        ("a=1=2", {"a": "1=2"}),
        ('a="1"', {"a": '"1"'}),
        ("a; =b; c=", {"": "b", "c": ""}),
        # Of others' the first counts: it is the one with the longest path.
        ("a=1; a=2", {"a": "1"}),
    ],
)
def test_cookies(header, wanted):
    assert parsing.cookies(header) == wanted


@pytest.mark.parametrize("name", ["klutch-bind-s", "__Host-klutch-ui", "__Secure-x", "KLUTCH-a"])
@pytest.mark.parametrize("values", [("1", "2"), ("1", "1"), ("", "1")])
def test_a_cookie_of_ours_that_comes_twice(name, values):
    header = "; ".join(f"{name}={value}" for value in values)
    with pytest.raises(RequestRefused, match="a cookie comes twice"):
        parsing.cookies(f"a=1; {header}")
