"""Kubeconfigs from Secrets: what an untrusted author may not say."""

from functools import partial

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube import kubeconfig
from reconciler.kube.connection import ClientCertificate, Connection, Token
from reconciler.kube.networks import ANYWHERE
from tests.support.kubeconfigs import CERTIFICATE, KEY, b64, document, text

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
    "a command": document(user={"exec": EXEC}),
    "a command, of whatever form": document(user={"exec": "canary"}),
    "a command beside a token": document(user={"exec": EXEC, "token": "canary"}),
    "a legacy plug-in": document(
        user={"auth-provider": {"name": "gcp", "config": {"cmd-path": "canary"}}}
    ),
    "a token file": document(
        user={"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}
    ),
    "certificate files": document(
        user={"client-certificate": "/etc/canary", "client-key": "/etc/canary"}
    ),
    "a CA file": document(cluster={"certificate-authority": "/etc/canary"}),
    "a proxy": document(cluster={"proxy-url": "http://me:canary@evil.example"}),
    "no verification": document(cluster={"insecure-skip-tls-verify": True}),
    "impersonation": document(user={"as": "admin", "as-user-extra": {"a": ["b"]}}),
    "all at once": document(
        user={"exec": EXEC, "tokenFile": "/etc/shadow"},
        cluster={"proxy-url": "http://evil.example", "insecure-skip-tls-verify": True},
    ),
}


def test_forbidden(refusals):
    attempts = {name: partial(from_secret, content) for name, content in FORBIDDEN.items()}
    refusals("forbidden", attempts, secrets=["canary"])


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
    "garbage": b"\x00\x01garbage",
    "empty": b"",
    "no current context": document() | {"current-context": ""},
    "a context that is not there": document() | {"current-context": "gone"},
}


def test_broken(refusals):
    refusals("broken", {name: partial(from_secret, content) for name, content in BROKEN.items()})
