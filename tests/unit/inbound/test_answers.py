"""What may be in an answer."""

import pytest

from reconciler.inbound.answers import answer_of, set_cookie
from reconciler.inbound.messages import Cookie, Response


@pytest.mark.parametrize(
    ("cookie", "wanted"),
    [
        (
            Cookie("klutch-bind-s", "a=-_.", 3600, secure=False),
            "klutch-bind-s=a=-_.; Max-Age=3600; Path=/; HttpOnly; SameSite=Lax",
        ),
        (
            Cookie("__Host-klutch-ui", "", 0, secure=True),
            "__Host-klutch-ui=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax; Secure",
        ),
    ],
)
def test_cookies_that_are_set(cookie, wanted):
    assert set_cookie(cookie) == wanted


@pytest.mark.parametrize("text", ["a;b", "a\r\nb", "a b", 'a"b', "a,b", "a\\b", "ü", "a\0"])
def test_a_cookie_is_one_cookie(text):
    with pytest.raises(ValueError, match="a cookie that cannot be sent"):
        set_cookie(Cookie("name", text, 1, secure=True))
    with pytest.raises(ValueError, match="a cookie that cannot be sent"):
        set_cookie(Cookie(text, "value", 1, secure=True))


def test_a_header_may_come_twice():
    answer = answer_of(Response(302, headers=(("Link", "a"), ("Link", "b"))), [("Allow", "GET")])
    assert answer.status == 302
    assert answer.headers.getall("Link") == ["a", "b"]
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b", "a\x7f"])
def test_a_header_is_one_header(value):
    for response in (
        Response(302, headers=(("Location", value),)),
        Response(302, headers=((value, "a"),)),
        Response(200, content_type=value),
    ):
        with pytest.raises(ValueError, match="a header that cannot be sent"):
            answer_of(response)
