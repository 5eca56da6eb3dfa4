"""What a provider hands out (A.12, F10, F28): every part is checked before it is used."""

import base64
import json
from typing import Any

import pytest

from klutchctl.binding import response
from klutchctl.binding.errors import BadAnswer
from reconciler.core.refs import GroupResource
from tests.support import binding_objects as objects


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the document with one field changed, by a dotted path."""
    document = objects.document()
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = document
    for step in steps:
        place = place[step]
    place[last] = value
    return document


@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padding", ["=", ""])
def test_either_alphabet_is_read_padded_or_not(alphabet, padding):
    document = {**objects.document(), "note": "~~~???ÿÿÿÿ"}
    text = alphabet(json.dumps(document, ensure_ascii=False).encode()).decode()
    assert response.document_of(text.rstrip("=") + padding * text.count("=")) == document


@pytest.mark.parametrize("text", ["", "%", "é", "bm8", base64.b64encode(b"[]").decode()])
def test_what_is_no_response_is_refused(text):
    with pytest.raises(BadAnswer):
        response.document_of(text)


def test_a_grant_has_its_resources_claims_and_place():
    grant = response.grant_of(objects.document())
    [wanted] = grant.wanted
    assert wanted.resource == GroupResource("shop.example", "databases")
    assert wanted.claims == [objects.SECRETS, objects.CONFIG_MAP]
    assert response.place_of(grant.remote) == ("https://control-plane.example:6443", objects.SPACE)
    assert objects.TOKEN not in repr(grant)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("apiVersion", "v1alpha1"),
        ("kind", "Status"),
        ("requests", []),
        ("requests.0.apiVersion", "v1"),
        ("requests.0.kind", "Secret"),
        ("requests.0.metadata.name", "../secrets"),
        ("requests.0.spec.resources", []),
        ("requests.0.spec.resources.0.resource", "databases/status"),
        ("requests.0.spec.resources.0.group", "shop..example"),
        ("requests.0.spec.resources.0.permissionClaims.0.resource", "secrets\n"),
        ("requests.0.spec.resources.0.permissionClaims.0.version", ""),
        ("kubeconfig", "no base64!"),
        ("kubeconfig", ""),
        ("kubeconfig", objects.encoded("a: [")),
        ("kubeconfig", objects.encoded(objects.kubeconfig(namespace=""))),
        ("kubeconfig", objects.encoded(objects.kubeconfig(user={"tokenFile": "/etc/passwd"}))),
        ("kubeconfig", objects.encoded(objects.kubeconfig(user={"exec": {"command": "sh"}}))),
        ("kubeconfig", objects.encoded(objects.kubeconfig(server="http://a.example"))),
        ("kubeconfig", objects.encoded(objects.kubeconfig(server="https://169.254.169.254"))),
    ],
)
def test_a_response_that_lies_is_refused(path, value):
    with pytest.raises(BadAnswer):
        response.grant_of(changed(path, value))


def test_only_a_dry_run_may_lack_the_kubeconfig():
    document = changed("kubeconfig", "")
    assert response.grant_of(document, dry_run=True).remote is None


def test_grants_of_one_space_are_one():
    renewed = objects.kubeconfig(token="renewed")
    second = objects.document(resource="queues", claims=(), kubeconfig=renewed)
    first = objects.document()
    grant = response.merged([response.grant_of(one) for one in (first, second)])
    assert [one.resource.plural for one in grant.wanted] == ["databases", "queues"]
    assert grant.remote == response.remote_of(grant.kubeconfig)
    other = objects.document(kubeconfig=objects.kubeconfig(namespace="cluster-other"))
    with pytest.raises(BadAnswer, match="different"):
        response.merged([response.grant_of(one) for one in (first, other)])


def test_a_request_is_made_as_it_was_sent_without_a_status():
    # 03-default-mode-oidc/14-bind.cli-requests.yaml, 6, and 41-bind-again.cli-requests.yaml, 3
    request = objects.document()["requests"][0]
    made = response.export_request(request)
    assert made == {key: value for key, value in request.items() if key != "status"}
    again = response.export_request(request, taken=True)
    assert again["metadata"] == {"generateName": "databases.shop.example-"}
    unnamed = response.export_request({**request, "metadata": {}})
    assert unnamed["metadata"] == {"generateName": "export-"}
