"""The kubeconfig that each side gets, byte for byte (protocol-bind.md B.4)."""

from typing import Any

import pytest
import yaml

from reconciler.blueprints import broker_policy, objects, policies
from reconciler.core.live import Address
from reconciler.core.secret import Secret
from tests.support.policy_files import FILES, text

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


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.parent.name)
def test_the_files_are_as_they_would_be_made(file):
    assert file.read_text() == text(*FILES[file]), "run python -m tests.support.policy_files"
    kinds = [one["kind"] for one in yaml.safe_load_all(file.read_text())]
    assert kinds[::2] == ["ValidatingAdmissionPolicy"] * (len(kinds) // 2)
    assert kinds[1::2] == ["ValidatingAdmissionPolicyBinding"] * (len(kinds) // 2)


@pytest.mark.parametrize(
    "policy",
    [policies.backend(), policies.binder(), policies.konnector(), broker_policy.policy()],
    ids=lambda one: one.name,
)
def test_a_policy_fails_closed_and_refuses(policy):
    made: Any
    bound: Any
    made, bound = policy.manifests()
    assert made["spec"]["failurePolicy"] == "Fail"
    assert bound["spec"] == {"policyName": policy.name, "validationActions": ["Deny"]}
    (rule,) = made["spec"]["matchConstraints"]["resourceRules"]
    assert {"*"} == {*rule["apiGroups"], *rule["operations"], *rule["apiVersions"]}


def test_a_konnector_writes_where_permission_claims_name_namespaces():
    first = policies.konnector(["shop", "kube-shop"]).rules[0].expression
    assert "request.namespace in ['kube-shop', 'shop']" in first
    assert "startsWith('kube-')" not in first
    anywhere = policies.konnector(["*", "kube-shop"]).rules[0].expression
    assert "(request.namespace in ['kube-shop']) || (!request.namespace.startsWith('kube-'))" in (
        anywhere
    )
