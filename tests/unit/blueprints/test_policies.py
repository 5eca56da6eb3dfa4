"""Admission policies as they are shipped: the files say what the blueprints say."""

from typing import Any

import pytest
import yaml

from reconciler.blueprints import broker_policy, policies
from tests.support.policy_files import FILES, text


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
