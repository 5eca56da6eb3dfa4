"""The kubeconfig that each side gets, byte for byte (protocol-bind.md B.4)."""

import yaml

from reconciler.blueprints import objects
from reconciler.core.live import Address
from reconciler.core.secret import Secret

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
WHOLE = """\
apiVersion: v1
kind: Config
preferences: {}
current-context: default
clusters:
- name: default
  cluster:
    server: https://cp.example:6443
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
    tls-server-name: kubernetes.example
contexts:
- name: default
  context:
    cluster: default
    namespace: cluster-7fk2q
    user: default
users:
- name: default
  user:
    token: a.b.c
"""  # noqa: E501 - the point is that it is not folded


ADDRESS = Address("https://cp.example:6443", CA, "kubernetes.example")


def kubeconfig(token, address=ADDRESS):
    return objects.kubeconfig(address, Secret(token), namespace="cluster-7fk2q")


def test_the_whole_text():
    assert kubeconfig("a.b.c") == WHOLE


def test_what_is_empty_is_left_out():
    bare = yaml.safe_load(kubeconfig("t", Address("https://cp.example:6443", "")))
    assert bare["clusters"][0]["cluster"] == {"server": "https://cp.example:6443"}


def test_a_long_token_stays_on_one_line():
    token = "x" * 5000
    assert f"token: {token}\n" in kubeconfig(token)


def test_a_token_that_looks_like_a_number_is_text():
    assert yaml.safe_load(kubeconfig("12345"))["users"][0]["user"]["token"] == "12345"
