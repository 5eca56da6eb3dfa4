"""Which addresses of Git repositories may be fetched from."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.source import following
from reconciler.source.following import GitUrl

GOOD = {
    "https://git.example.com/acme/fleet.git": GitUrl(
        "https", "", "git.example.com", 443, "/acme/fleet.git"
    ),
    "https://me@git.example.com:8443/fleet": GitUrl(
        "https", "me", "git.example.com", 8443, "/fleet"
    ),
    "ssh://git@git.example.com/~acme/fleet.git": GitUrl(
        "ssh", "git", "git.example.com", 22, "/~acme/fleet.git"
    ),
    "https://[2001:db8::1]/fleet": GitUrl("https", "", "2001:db8::1", 443, "/fleet"),
    "https://10.0.0.7/fleet": GitUrl("https", "", "10.0.0.7", 443, "/fleet"),
}


@pytest.mark.parametrize(("text", "want"), GOOD.items(), ids=GOOD.keys())
def test_a_url(text, want):
    url = following.git_url(text, where="--git")
    assert url == want
    assert following.git_url(str(url), where="--git") == url


BAD = {
    "plain http": ("http://git.example.com/fleet", "does not begin with https:// or ssh://"),
    "a file": ("file:///etc/passwd", "does not begin with"),
    "a path": ("/etc/passwd", "does not begin with"),
    "a helper": ("ext::sh -c id", "spaces"),
    "scp": ("git@git.example.com:fleet.git", "does not begin with"),
    "a line break": ("https://git.example.com/a%0a\nhost=evil", "spaces, or characters"),
    "a password": ("https://me:hunter2canary@git.example.com/fleet", "it holds a password"),
    "an empty password": ("https://me:@git.example.com/fleet", "it holds a password"),
    "an option as the host": ("ssh://-oProxyCommand=id/fleet", "its host is no host name"),
    "an option as the user": ("ssh://-l@git.example.com/fleet", "its user name is not made"),
    "a shell in the host": ("ssh://$(id)/fleet", "its host is no host name"),
    "no host": ("https:///fleet", "its host is no host name"),
    "no path": ("https://git.example.com", "its path is not that of a repository"),
    "a way up": ("https://git.example.com/a/../b", "its path is not that of a repository"),
    "a query": ("https://git.example.com/a?b", "a query or fragment"),
    "a port that is none": ("https://git.example.com:x/a", "it is no URL"),
    "where clouds tell secrets": ("https://169.254.169.254/a", "at which clouds tell secrets"),
    "so, mapped": ("https://[::ffff:169.254.169.254]/a", "at which clouds tell secrets"),
    "so, of version 6": ("https://[fe80::1]/a", "at which clouds tell secrets"),
    "so, of another kind": ("https://[fd00:ec2::254]/a", "at which clouds tell secrets"),
    "everybody": ("https://0.0.0.0/a", "no address of a server"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD.keys())
def test_a_url_that_is_refused(text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        following.git_url(text, where="--git")
    assert "hunter2canary" not in str(caught.value)
