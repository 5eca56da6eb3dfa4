"""What is next about Secret, binding and CRD in an app cluster (D.2, D.4, F22, F28)."""

from typing import Any

import pytest

from klutchctl.binding import decisions
from klutchctl.binding.decisions import CreateSecret, KeepSecret, RefreshSecret
from klutchctl.binding.progress import BindEnded
from klutchctl.binding.response import Wanted
from reconciler.core.refs import GroupResource
from tests.support import binding_objects as objects
from tests.support.kubeconfigs import CERTIFICATE, b64

CONTENT = objects.kubeconfig()
RENEWED = objects.kubeconfig(token="renewed")
ELSEWHERE = objects.kubeconfig(namespace="cluster-other")
OTHER_HOST = objects.kubeconfig(server="https://other.example:6443")
# Anybody may name the server and the space of another provider.
CLAIMED = {
    name: objects.kubeconfig(token="renewed", cluster={name: value})
    for name, value in (
        ("certificate-authority-data", b64(CERTIFICATE)),
        ("tls-server-name", "other.example"),
    )
}
DATABASES = Wanted(
    GroupResource("shop.example", "databases"), [objects.SECRETS, objects.CONFIG_MAP]
)


def step(*secrets, used=()):
    return decisions.secret_step(secrets, CONTENT.encode(), used)


def test_the_first_kubeconfig_gets_a_secret_as_the_original_makes_it():
    # 03-default-mode-oidc/14-bind.cli-requests.yaml, 4
    assert step() == CreateSecret(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"generateName": "kubeconfig-", "namespace": "klutch-bind"},
            "type": "Opaque",
            "data": {"kubeconfig": objects.encoded(CONTENT)},
        }
    )


@pytest.mark.parametrize("content", [ELSEWHERE, OTHER_HOST, *CLAIMED.values(), "", "a: [", "{}"])
def test_a_secret_that_leads_elsewhere_is_left_alone(content):
    assert isinstance(step(objects.secret("kubeconfig-aaaaa", content)), CreateSecret)


def test_a_secret_with_this_very_kubeconfig_is_kept():
    assert step(objects.secret("kubeconfig-aaaaa")) == KeepSecret("kubeconfig-aaaaa")


def test_a_secret_of_the_space_gets_the_new_credential_alone_unless_it_changed():
    patch = {"metadata": {"resourceVersion": "7"}, "data": {"kubeconfig": objects.encoded(CONTENT)}}
    found = step(objects.secret("kubeconfig-aaaaa", RENEWED))
    assert found == RefreshSecret("kubeconfig-aaaaa", patch)


def test_of_several_secrets_of_a_space_that_of_a_binding_is_taken():
    secrets = [objects.secret("kubeconfig-bbbbb"), objects.secret("kubeconfig-aaaaa", RENEWED)]
    assert step(*secrets) == RefreshSecret("kubeconfig-aaaaa", step(*secrets).patch)
    assert step(*secrets, used={"kubeconfig-bbbbb"}) == KeepSecret("kubeconfig-bbbbb")


def test_a_binding_is_made_as_the_original_makes_it():
    # 03-default-mode-oidc/14-bind.cli-requests.yaml, 23, and 40-..., 12
    states = [{**objects.SECRETS, "state": "Accepted"}]
    made = decisions.new_binding(DATABASES, states, secret="kubeconfig-x8t4d", namespaced=True)
    assert made == {
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "kind": "APIServiceBinding",
        "metadata": {"name": "databases.shop.example", "namespace": "klutch-bind"},
        "spec": {
            "kubeconfigSecretRef": {
                "name": "kubeconfig-x8t4d",
                "key": "kubeconfig",
                "namespace": "klutch-bind",
            },
            "permissionClaims": states,
        },
    }
    bare: Any = decisions.new_binding(DATABASES, [], secret="kubeconfig-x8t4d", namespaced=False)
    assert "permissionClaims" not in bare["spec"]
    assert "namespace" not in bare["metadata"]


def test_a_binding_of_another_provider_is_refused():
    decisions.require_provider(objects.binding(), secret="kubeconfig-x8t4d")
    for secret in ("", "kubeconfig-other"):
        with pytest.raises(BindEnded, match="not from this provider"):
            decisions.require_provider(objects.binding(), secret=secret)


def owned_by(uid, name="databases.shop.example"):
    owner = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceBinding"}
    return {"metadata": {"name": name, "ownerReferences": [{**owner, "name": name, "uid": uid}]}}


@pytest.mark.parametrize("crd", [None, owned_by("uid-of-databases.shop.example")])
def test_the_crd_of_a_binding_is_absent_or_its_own(crd):
    decisions.require_own_crd(objects.binding(), crd)


@pytest.mark.parametrize(
    "crd", [{"metadata": {"name": "x"}}, owned_by("uid-of-one-before"), owned_by("u", "other")]
)
def test_the_crd_of_another_is_refused(crd):
    # 03-default-mode-oidc/81-bound-again.yaml
    with pytest.raises(BindEnded, match="not of its binding"):
        decisions.require_own_crd(objects.binding(), crd)


def test_claims_of_which_a_binding_says_nothing_are_named():
    held = [{**objects.SECRETS, "state": "Accepted", "group": ""}]
    assert decisions.unanswered(objects.binding(claims=held), DATABASES) == ["configmaps"]
    both = [*held, {**objects.CONFIG_MAP, "state": "Rejected"}]
    assert decisions.unanswered(objects.binding(claims=both), DATABASES) == []


@pytest.mark.parametrize(
    ("answered", "offered", "unanswered"),
    [
        (["shop"], ["shop"], False),
        (["shop", "bank"], ["shop"], False),
        (["shop"], ["*"], True),
        (["shop"], ["shop", "bank"], True),
        (["*"], ["*", "kube-system"], True),
    ],
)
@pytest.mark.parametrize("state", ["Accepted", "Rejected"])
def test_a_claim_that_reaches_further_than_was_answered_is_named(
    state, answered, offered, unanswered
):
    def claim(namespaces, **more):
        selector = {**objects.SECRETS["selector"], "namespaces": namespaces}
        return {**objects.SECRETS, "selector": selector, **more}

    binding = objects.binding(claims=[claim(answered, state=state)])
    wanted = Wanted(DATABASES.resource, [claim(offered)])
    assert decisions.unanswered(binding, wanted) == (["secrets"] if unanswered else [])


def with_ready(status, reason="", message="", severity="Error", connected="True"):
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
    said = [ready | {"severity": severity}, {"type": "Connected", "status": connected}]
    return {**objects.binding(), "status": {"conditions": said}}


@pytest.mark.parametrize(
    ("binding", "ready", "why", "error"),
    [
        (None, False, "it is gone", False),
        (objects.binding(), False, "no konnector has come to it", False),
        (with_ready("False", "Pending", "Pending", "Info"), False,
         "no konnector has come to it", False),
        (with_ready("False", "ForeignCustomResourceDefinition", "x is not owned"), False,
         "ForeignCustomResourceDefinition: x is not owned", True),
        (with_ready("True"), True, None, False),
        # The original's konnector, once it has the Secret.
        (with_ready("True", connected="Unknown"), False, None, False),
    ],
)  # fmt: skip
def test_readiness(binding, ready, why, error):
    assert decisions.is_ready(binding) is ready
    if why is not None:
        assert decisions.why_not_ready(binding) == why
    assert decisions.error_of(binding) == (why if error else "")


def test_a_new_binding_says_that_its_konnector_has_not_come():
    # 03-default-mode-oidc/14-bind.cli-requests.yaml, 24
    live = {"metadata": {"resourceVersion": "9"}}
    assert decisions.pending(live, "2026-01-01T00:00:00Z") == {
        "metadata": {"resourceVersion": "9"},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "severity": "Info",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reason": "Pending",
                    "message": "Pending",
                }
            ]
        },
    }
