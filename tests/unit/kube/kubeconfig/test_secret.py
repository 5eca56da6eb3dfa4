"""Kubeconfigs from Secrets: what an untrusted author may not say."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube import kubeconfig
from reconciler.kube.connection import ClientCertificate, Connection, Token
from reconciler.kube.networks import ANYWHERE
from tests.support.kubeconfigs import CERTIFICATE, KEY, b64, document, leaks, text

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "/bin/sh",
    "args": ["-c", "canary"],
    "interactiveMode": "Never",
}


def from_secret(content, **options):
    content = content if isinstance(content, bytes) else text(content)
    return kubeconfig.from_secret(content, name="shop", **{"environ": {}} | options)


def test_what_a_backend_hands_out():
    content = document(
        user={"token": "abc"},
        cluster={"certificate-authority-data": b64(CERTIFICATE), "tls-server-name": "kubernetes"},
        context={"namespace": "klutch-bind-shop"},
    )
    assert from_secret(content) == Connection(
        name="shop",
        server="https://api.example:6443",
        credential=Token(Secret("abc")),
        ca=CERTIFICATE,
        tls_server_name="kubernetes",
        namespace="klutch-bind-shop",
        networks=ANYWHERE,
    )


ELSEWHERE = {
    "http://api.example": "server must start with https://",
    "https://169.254.169.254": "server is refused: 169.254.169.254 is a link-local address",
    "https://[fd00:ec2::254]:443/latest": "server is refused: fd00:ec2::254 is a metadata service",
    "https://[::ffff:a9fe:a9fe]": "server is refused: 169.254.169.254 is a link-local address",
}


@pytest.mark.parametrize(("server", "sentence"), ELSEWHERE.items(), ids=ELSEWHERE)
def test_a_server_that_is_no_api_server_of_theirs_is_refused(server, sentence):
    with pytest.raises(ConfigError) as caught:
        from_secret(document(cluster={"server": server}))
    assert sentence in str(caught.value)


def test_a_client_certificate_is_welcome():
    user = {"client-certificate-data": b64(CERTIFICATE), "client-key-data": b64(KEY)}
    connection = from_secret(document(user=user))
    assert connection.credential == ClientCertificate(CERTIFICATE, Secret(KEY))


def test_nobody_is_kept_busy_by_a_huge_one():
    content = text(document())
    from_secret(content + b" " * ((64 << 10) - len(content)))
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        from_secret(content + b" " * ((64 << 10) - len(content) + 1))


def test_the_proxy_of_this_machine_is_used():
    connection = from_secret(document(), environ={"HTTPS_PROXY": "proxy:3128"})
    assert connection.proxy == Secret("http://proxy:3128")


FORBIDDEN = {
    "a command": (
        document(user={"exec": EXEC}),
        ["exec would run a command on this machine"],
    ),
    "a command, of whatever form": (
        document(user={"exec": "canary"}),
        ["exec would run a command on this machine"],
    ),
    "a command beside a token": (
        document(user={"exec": EXEC, "token": "canary"}),
        ["exec would run a command on this machine"],
    ),
    "a legacy plug-in": (
        document(user={"auth-provider": {"name": "gcp", "config": {"cmd-path": "canary"}}}),
        ["auth-provider is not supported, and would run code on this machine"],
    ),
    "a token file": (
        document(user={"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}),
        ["tokenFile would send a file of this machine to the server: use token"],
    ),
    "certificate files": (
        document(user={"client-certificate": "/etc/canary", "client-key": "/etc/canary"}),
        [
            "client-certificate would read a file of this machine: use client-certificate-data",
            "client-key would read a file of this machine: use client-key-data",
        ],
    ),
    "a CA file": (
        document(cluster={"certificate-authority": "/etc/canary"}),
        ["certificate-authority would read a file of this machine: use certificate-authority-data"],
    ),
    "a proxy": (
        document(cluster={"proxy-url": "http://me:canary@evil.example"}),
        ["proxy-url would lead the traffic through a host of the author's choice"],
    ),
    "no verification": (
        document(cluster={"insecure-skip-tls-verify": True}),
        ["insecure-skip-tls-verify would talk to whoever answers at the address"],
    ),
    "impersonation": (
        document(user={"as": "admin", "as-user-extra": {"a": ["b"]}}),
        [
            "as is not supported: use a user that has the rights itself",
            "as-user-extra is not supported: use a user that has the rights itself",
        ],
    ),
    "all at once": (
        document(
            user={"exec": EXEC, "tokenFile": "/etc/shadow"},
            cluster={"proxy-url": "http://evil.example", "insecure-skip-tls-verify": True},
        ),
        [
            "exec would run a command on this machine",
            "tokenFile would send a file of this machine to the server: use token",
            "proxy-url would lead the traffic through a host of the author's choice",
            "insecure-skip-tls-verify would talk to whoever answers at the address",
        ],
    ),
}


@pytest.mark.parametrize(("content", "want"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_forbidden(content, want):
    with pytest.raises(ConfigError) as caught:
        from_secret(content)
    assert str(caught.value) == (
        f"kubeconfig of shop: this kubeconfig is not accepted from a Secret: {'; '.join(want)}"
    )
    assert leaks(caught.value, ("canary",)) == []


def test_what_only_looks_forbidden_is_not():
    user = {"token": "abc", "exec": None, "tokenFile": "", "as": ""}
    cluster = {"proxy-url": "", "insecure-skip-tls-verify": False}
    assert from_secret(document(user=user, cluster=cluster)).credential == Token(Secret("abc"))


def test_what_no_entry_in_use_says_is_neither_judged_nor_used():
    content = document(user={"token": "abc"})
    content["users"].append({"name": "evil", "user": {"exec": EXEC}})
    content["clusters"].append({"name": "evil", "cluster": {"proxy-url": "http://evil.example"}})
    content["contexts"].append({"name": "evil", "context": {"cluster": "evil", "user": "evil"}})
    assert from_secret(content).credential == Token(Secret("abc"))


BROKEN = {
    "garbage": (b"\x00\x01garbage", "kubeconfig of shop:1:1: not YAML"),
    "empty": (b"", "kubeconfig of shop:1:1: no current-context is set"),
    "no current context": (
        document() | {"current-context": ""},
        "kubeconfig of shop:3:18: no current-context is set",
    ),
    "a context that is not there": (
        document() | {"current-context": "gone"},
        'kubeconfig of shop:3:18: current-context "gone" does not exist',
    ),
}


@pytest.mark.parametrize(("content", "want"), BROKEN.values(), ids=BROKEN.keys())
def test_broken(content, want):
    with pytest.raises(ConfigError) as caught:
        from_secret(content)
    assert str(caught.value).startswith(want)
