"""Which URLs are asked, and what of a URL may be shown."""

import pytest

from reconciler.core.secret import Secret
from reconciler.web.outbound import Answer, Http, OutboundError, shown, url_fault

ASKED = (
    "https://login.example/realms/a?x=1",
    "https://10.0.0.1:8443/",
    "https://[2001:db8::1]/",
    "https://localhost",
    "http://localhost:8080/",
    "http://LOCALHOST:8080/",
    "http://127.0.0.1:8080",
    "http://127.8.8.8/",
    "http://[::1]:1/",
)
NOT_ASKED = {
    "http://login.example/": "only https",
    "http://localhost.evil.example/": "only https",
    "http://10.0.0.1/": "only https",
    "ftp://localhost/": "only https",
    "file:///etc/passwd": "not valid",
    "login.example/x": "not valid",
    "": "not valid",
    "https://": "not valid",
    "https://a b/": "not valid",
    "https://a/\r\nHost: b": "not valid",
    "https://a/\x00": "not valid",
    "https://b\u00fccher.example/": "not valid",
    "https://a:port/": "not valid",
    "https://[::1/": "not valid",
    "https://a..b/": "not valid",
    "https://me:pw@login.example/": "credentials",
    "http://localhost@evil.example/": "credentials",
    "https://@login.example/": "credentials",
}


@pytest.mark.parametrize("url", ASKED)
def test_asked(url):
    assert url_fault(url) == ""


@pytest.mark.parametrize(("url", "fault"), NOT_ASKED.items())
def test_not_asked(url, fault):
    assert fault in url_fault(url)


@pytest.mark.parametrize("url", ["http://login.example/", "http://10.0.0.1/", *ASKED])
def test_asked_in_the_clear(url):
    assert url_fault(url, plain_http=True) == ""


@pytest.mark.parametrize("url", [url for url, fault in NOT_ASKED.items() if fault != "only https"])
def test_not_asked_in_the_clear_either(url):
    assert url_fault(url, plain_http=True) != ""


@pytest.mark.parametrize("url", ["ftp://localhost/", "ws://login.example/"])
def test_no_other_scheme(url):
    assert "only https" in url_fault(url, plain_http=True)


SHOWN = {
    "https://login.example/a/b?code=canary#canary": "https://login.example/a/b",
    "https://me:canary@login.example:8443/": "https://login.example:8443/",
    "https://[::1]:1/x": "https://[::1]:1/x",
    "https://[canary": "a URL that is not valid",
    "https://a:canary/": "a URL that is not valid",
}


@pytest.mark.parametrize(("url", "want"), SHOWN.items())
def test_shown(url, want):
    assert shown(url) == want
    assert str(OutboundError(url, "no answer")) == f"{want}: no answer"


def test_a_long_url_is_shown_in_part():
    assert len(shown("https://a/" + "x" * 100_000)) == 300


def test_an_answer_shows_its_status_alone():
    answer = Answer(302, b"canary", {"set-cookie": "canary"}, "https://a/?code=canary")
    assert repr(answer) == "Answer(status=302)"


FORBIDDEN = {
    "https://169.254.169.254/latest/": "link-local",
    "https://[fe80::1]/": "link-local",
    "https://[::ffff:169.254.169.254]/": "link-local",
    "https://[64:ff9b::a9fe:a9fe]/": "link-local",
    "https://[fd00:ec2::254]/": "metadata service",
    "https://100.100.100.200/": "metadata service",
    "https://0.0.0.0/": "no address of a host",
    "https://224.0.0.1/": "multicast",
    "https://10.1.2.3/": "may not lead",
    "https://[::ffff:10.1.2.3]/": "may not lead",
}


@pytest.mark.parametrize(("url", "fault"), FORBIDDEN.items())
async def test_addresses_that_are_never_connected_to(url, fault):
    async with Http(forbids=lambda address: str(address) == "10.1.2.3") as http:
        with pytest.raises(OutboundError, match=fault) as caught:
            await http.get(url, headers={"Authorization": Secret("canary")})
    assert caught.value.status == 0
