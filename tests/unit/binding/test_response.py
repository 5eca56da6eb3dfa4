"""What a provider (A.12, F10, F28) or a person (D.4) hands out: each part is checked before use."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from klutchctl.binding import response
from klutchctl.binding.job import Source
from klutchctl.binding.progress import BadAnswer
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.refs import GroupResource
from tests.support import binding_objects as objects

# Each is one that a constructor of PyYAML answers by an error of its own, or by what has no end.
ODD = [
    "a: !!bool foo",
    'a: !!int ""',
    'a: !!float ""',
    "a: !!timestamp foo",
    "a: &x [*x]",
    "a: &x {b: *x}",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "a: " + "[" * 100 + "]" * 100,
    "a: [",
    "a: \x07",
    "- a",
    "a: 1\n---\na: 2",
]


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
    assert response.grant_of(changed("kubeconfig", ""), dry_run=True).remote is None


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


def source(folder: Path, manifest: str = "", kubeconfig: str = "", namespace: str = "") -> Source:
    (folder / "request.yaml").write_text(manifest)
    (folder / "kubeconfig").write_text(kubeconfig)
    return Source(
        str(folder / "request.yaml"), "", folder / "kubeconfig", ("", ""), namespace=namespace
    )


async def requested(folder: Path, manifest: str) -> Any:
    nothing: Any = None
    return await source(folder, manifest).request(nothing)


async def moved(folder: Path, kubeconfig: str) -> bytes:
    nothing: Any = None
    return await source(folder, kubeconfig=kubeconfig, namespace="elsewhere").content(nothing)


@pytest.mark.parametrize("text", ["", "# nothing\n", "just text", *ODD])
async def test_what_is_no_plain_manifest_is_refused_by_its_place(tmp_path, text):
    with pytest.raises(KlutchError) as caught:
        await requested(tmp_path, text)
    if text in ODD:
        assert isinstance(caught.value, ConfigError)
        assert caught.value.where.startswith(f"{tmp_path}/request.yaml")


@pytest.mark.parametrize("text", ["just text", *ODD])
async def test_a_kubeconfig_is_read_as_plainly_before_its_namespace_changes(tmp_path, text):
    with pytest.raises(BadAnswer, match="kubeconfig"):
        await moved(tmp_path, text)


async def test_a_request_has_the_values_that_kubectl_reads(tmp_path):
    request = objects.document()["requests"][0]
    assert await requested(tmp_path, yaml.safe_dump(request)) == request
    text = yaml.safe_dump({key: request[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    text += "  since: 2026-01-02T03:04:05Z\n  at: 12:30:45\n  count: 3\n  flags: [yes, false]\n"
    spec = response.export_request(await requested(tmp_path, text))["spec"]
    assert spec == request["spec"] | {
        "since": "2026-01-02T03:04:05Z", "at": "12:30:45", "count": 3, "flags": [True, False],
    }  # fmt: skip


async def test_only_the_namespace_of_the_current_context_changes(tmp_path):
    before = objects.kubeconfig()
    found = await moved(tmp_path, before)
    assert found.decode().count("elsewhere") == 1
    remote = response.remote_of(found)
    assert (remote.namespace, remote.server) == (
        "elsewhere",
        response.remote_of(before.encode()).server,
    )
    assert yaml.safe_load(found.replace(b"elsewhere", objects.SPACE.encode())) == yaml.safe_load(
        before
    )
