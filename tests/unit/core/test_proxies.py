"""Which proxy leads to a server. The NO_PROXY cases are answers of Go's httpproxy package."""

from functools import partial

import pytest

from reconciler.core import addresses
from reconciler.core.secret import Secret

ENVIRONMENTS = {
    "nothing set": ({}, None),
    "https has its own variable": ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
    "the one for http does not count": ({"HTTP_PROXY": "http://p:1"}, None),
    "lower case counts": ({"https_proxy": "http://p:1"}, "http://p:1"),
    "upper case comes first": ({"HTTPS_PROXY": "http://p:1", "https_proxy": "q"}, "http://p:1"),
    "an empty variable is none": ({"HTTPS_PROXY": "", "https_proxy": "http://q:1"}, "http://q:1"),
    "http is assumed": ({"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
    "a proxy over TLS": ({"HTTPS_PROXY": "https://p"}, "https://p"),
    "a password is kept": ({"HTTPS_PROXY": "http://me:pw@p:1"}, "http://me:pw@p:1"),
    "NO_PROXY": ({"HTTPS_PROXY": "p:1", "NO_PROXY": "example"}, None),
    "no_proxy": ({"HTTPS_PROXY": "p:1", "no_proxy": "example"}, None),
    "NO_PROXY comes before no_proxy": (
        {"HTTPS_PROXY": "p:1", "NO_PROXY": "other", "no_proxy": "example"},
        "http://p:1",
    ),
    "a proxy that is not used may be anything": (
        {"HTTPS_PROXY": "socks5://p:1", "NO_PROXY": "*"},
        None,
    ),
}


@pytest.mark.parametrize(("environ", "want"), ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_environment(environ, want):
    found = addresses.proxy_from_environment("https://api.example:6443/k8s", environ)
    assert found == (want and Secret(want))


BYPASSED = {
    "a domain and itself": ("https://foo.com", "foo.com"),
    "a domain and below": ("https://api.foo.com", "foo.com"),
    "far below": ("https://a.b.api.foo.com", "foo.com"),
    "a leading dot and below": ("https://api.foo.com", ".foo.com"),
    "a star and below": ("https://api.foo.com", "*.foo.com"),
    "any case": ("https://API.foo.com", "FOO.com"),
    "the same port": ("https://foo.com:6443", "foo.com:6443"),
    "the port that is implied": ("https://foo.com", "foo.com:443"),
    "the port that http implies": ("http://foo.com", "foo.com:80"),
    "one of a list": ("https://foo.com", "bar, ,foo.com"),
    "everything": ("https://foo.com", "*"),
    "everything, in a list": ("https://10.1.2.3", "bar,*"),
    "an address": ("https://10.1.2.3:6443", "10.1.2.3"),
    "an address with its port": ("https://10.1.2.3:6443", "10.1.2.3:6443"),
    "a network": ("https://10.1.2.3", "10.0.0.0/8"),
    "a network named by a host in it": ("https://10.1.2.3", "10.9.9.9/8"),
    "an IPv6 address": ("https://[fd00::1]:6443", "fd00::1"),
    "an IPv6 address with its port": ("https://[fd00::1]:6443", "[fd00::1]:6443"),
    "an IPv6 network": ("https://[fd00::1]", "fd00::/8"),
    "an IPv4 address written as IPv6": ("https://[::ffff:10.1.2.3]", "10.0.0.0/8"),
    "localhost": ("https://localhost:6443", ""),
    "loopback": ("https://127.9.9.9", ""),
    "IPv6 loopback": ("https://[::1]:6443", ""),
}


@pytest.mark.parametrize(("server", "exceptions"), BYPASSED.values(), ids=BYPASSED.keys())
def test_reached_directly(server, exceptions):
    environ = {"HTTPS_PROXY": "p:1", "HTTP_PROXY": "p:1", "NO_PROXY": exceptions}
    assert addresses.proxy_from_environment(server, environ) is None


PROXIED = {
    "another domain": ("https://xfoo.com", "foo.com"),
    "a leading dot is only what is below": ("https://foo.com", ".foo.com"),
    "a star too": ("https://foo.com", "*.foo.com"),
    "a star elsewhere means nothing": ("https://xfoo.com", "*foo.com"),
    "another port": ("https://foo.com:6443", "foo.com:443"),
    "another address": ("https://10.1.2.3", "10.1.2.4"),
    "another network": ("https://11.1.2.3", "10.0.0.0/8"),
    "part of an address is no suffix": ("https://10.1.2.3", "2.3"),
    "a name that resembles a network": ("https://foo.com", "10.0.0.0/8"),
    "a netmask is not read": ("https://10.1.2.3", "10.0.0.0/255.0.0.0"),
    "an address in brackets without a port": ("https://[fd00::1]", "[fd00::1]"),
    "only a port": ("https://foo.com:80", ":80"),
    "nonsense": ("https://foo.com", "a:b:c,/,."),
}


@pytest.mark.parametrize(("server", "exceptions"), PROXIED.values(), ids=PROXIED.keys())
def test_reached_by_proxy(server, exceptions):
    environ = {"HTTPS_PROXY": "p:1", "NO_PROXY": exceptions}
    assert addresses.proxy_from_environment(server, environ) == Secret("http://p:1")


FAULTS = {
    "SOCKS": "socks5://me:canary@p:1",
    "SOCKS with names": "socks5h://p:1",
    "another scheme": "ftp://me:canary@p",
    "no host": "http://",
    "a name that is too long": f"http://me:canary@{'p' * 64}.example",
    "an empty part in its name": "http://p..example",
    "a port that is none": "http://me:canary@p:canary",
    "a broken address": "http://[canary",
    "a space": "http://me:canary canary@p",
    "a line break": "http://p\n:1",
    "a host that turns into another (NFKC)": "http://canary\u2100.com",
}


def test_a_proxy_that_cannot_be_used_is_an_error(refusals):
    attempts = {
        name: partial(addresses.proxy_from_environment, "https://api.example", {"https_proxy": url})
        for name, url in FAULTS.items()
    }
    refusals("proxies", attempts, secrets=["canary"])
