"""Objects of services are applied until they stick, on a real API server."""

import uuid

import pytest

from klutchctl.sandbox import manifests
from klutchctl.sandbox.manifests import Written
from reconciler.core.errors import HostError, Origin
from reconciler.core.refs import CONFIG_MAP, Kind, Ref
from tests.support.definitions import definition


def at(line, manifest):
    return Written(manifest, Origin("objects.yaml", line, 1))


def config_map(name, namespace=None):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


@pytest.fixture
def group():
    """A new one, so that its kinds are not known yet."""
    return f"{uuid.uuid4().hex[:8]}.example.com"


KINDS = {
    "the usual plural": ("Policy", "policies"),
    "a plural that no rule tells": ("Octopus", "octopodes"),
}


@pytest.mark.parametrize(("kind", "plural"), KINDS.values(), ids=KINDS.keys())
async def test_no_order_is_needed(control_plane, namespace, group, kind, plural):
    name = f"{namespace}-inner"
    metadata = {"name": "one", "namespace": name}
    custom = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata}
    objects = [
        at(1, custom),
        at(2, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        at(3, definition(Kind(group, "v1", kind, plural))),
    ]
    await manifests.apply(control_plane.cluster, objects)
    found = await control_plane.cluster.get(Ref("", Kind(group, "v1", kind, plural), name, "one"))
    assert found is not None


async def test_an_object_without_a_namespace_goes_to_the_default_one(control_plane, namespace):
    await manifests.apply(control_plane.cluster, [at(1, config_map(namespace))])
    assert await control_plane.cluster.get(Ref("", CONFIG_MAP, "default", namespace))


async def test_what_is_refused_is_named_and_the_rest_is_there(
    control_plane, namespace, monkeypatch
):
    monkeypatch.setattr(manifests, "_REFUSED_DEADLINE", 0.3)
    objects = [at(1, config_map("Bad_Name", namespace)), at(4, config_map("good", namespace))]
    with pytest.raises(HostError, match="has not taken 1 objects") as caught:
        await manifests.apply(control_plane.cluster, objects)
    assert "objects.yaml:1:1: ConfigMap Bad_Name: " in str(caught.value)
    assert "metadata.name: Invalid value" in str(caught.value)
    assert "good" not in str(caught.value)
    assert await control_plane.cluster.get(Ref("", CONFIG_MAP, namespace, "good"))


async def test_what_never_comes_is_named_at_the_deadline(
    control_plane, namespace, group, monkeypatch
):
    monkeypatch.setattr(manifests, "_DEADLINE", 0.5)
    metadata = {"name": "one", "namespace": namespace}
    objects = [
        at(1, {"apiVersion": f"{group}/v1", "kind": "Squid", "metadata": metadata}),
        at(7, config_map("late", f"{namespace}-absent")),
    ]
    with pytest.raises(HostError, match="has not taken 2 objects") as caught:
        await manifests.apply(control_plane.cluster, objects)
    assert "objects.yaml:1:1: Squid one: " in str(caught.value)
    assert f"does not serve Squid in {group}/v1" in str(caught.value)
    assert "objects.yaml:7:1: ConfigMap late: " in str(caught.value)
    assert "not found" in str(caught.value)
