"""The connection of a pod to its own cluster."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.connection import Connection, TokenFile
from reconciler.kube.kubeconfig.files import in_cluster
from tests.support.kubeconfigs import CERTIFICATE

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "namespace").write_text("team-a")
    return tmp_path


def test_the_service_account_of_the_pod(root):
    assert in_cluster(environ=POD, root=root) == Connection(
        name="in-cluster",
        server="https://10.96.0.1:443",
        credential=TokenFile(root / "token"),
        ca=CERTIFICATE.strip(),
        namespace="team-a",
    )


def test_an_ipv6_address_goes_into_brackets(root):
    environ = POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert in_cluster(environ=environ, root=root).server == "https://[fd00::1]:443"


def test_a_pod_without_a_namespace_file(root):
    (root / "namespace").unlink()
    assert in_cluster(environ=POD, root=root, name="hub").namespace == ""


def test_the_proxy_of_the_pod(root):
    environ = POD | {"HTTPS_PROXY": "p:1", "NO_PROXY": "10.0.0.0/24"}
    assert in_cluster(environ=environ, root=root).proxy == Secret("http://p:1")


OUTSIDE = {
    "nothing set": {},
    "no port": {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
    "no host": {"KUBERNETES_SERVICE_PORT": "443"},
    "a port as Docker links write it": POD | {"KUBERNETES_SERVICE_PORT": "tcp://10.96.0.1:443"},
}


@pytest.mark.parametrize("environ", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_outside_of_a_pod(root, environ):
    with pytest.raises(ConfigError, match=r"^in-cluster: not in a pod: "):
        in_cluster(environ=environ, root=root)


BROKEN = {
    "an empty token": ("token", "", "{root}/token: this file is empty"),
    "a CA that is none": (
        "ca.crt",
        "canary",
        "{root}/ca.crt: this file contains no PEM block BEGIN CERTIFICATE",
    ),
    "no token": (
        "token",
        None,
        "{root}/token: cannot be read: No such file or directory. "
        "Does the pod mount a service account token (automountServiceAccountToken)?",
    ),
}


@pytest.mark.parametrize(("file", "content", "want"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_service_account(root, file, content, want):
    (root / file).unlink()
    if content is not None:
        (root / file).write_text(content)
    with pytest.raises(ConfigError) as caught:
        in_cluster(environ=POD, root=root)
    assert str(caught.value) == want.format(root=root)


def test_a_host_that_is_none(root):
    with pytest.raises(ConfigError, match=r"^\$KUBERNETES_SERVICE_HOST: .* names no valid host$"):
        in_cluster(environ=POD | {"KUBERNETES_SERVICE_HOST": "-"}, root=root)
