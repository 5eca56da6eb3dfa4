"""T25: a real API server's refusals name the field and the rule, and quote no value."""

import pytest

from reconciler.api import API_SERVICE_BINDING
from reconciler.core.errors import ClusterError
from reconciler.core.refs import CONFIG_MAP, CRD, DEPLOYMENT, SECRET, SERVICE_ACCOUNT

CANARY = "hunter2Canary"


def manifest(kind, namespace, *, metadata=None, **fields):
    head = {"name": "x", **({"namespace": namespace} if kind.namespaced else {})}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**head, **(metadata or {})},
        **fields,
    }


REFUSED = {
    "a label": (CONFIG_MAP, {"metadata": {"labels": {"a": f"{CANARY}!"}}}, "metadata.labels"),
    "a Secret": (SECRET, {"data": {"a": f"{CANARY}!"}}, "data"),
    "a word of a CRD": (
        API_SERVICE_BINDING,
        {"spec": {"kubeconfigSecretRef": {"namespace": "a", "name": "b", "key": CANARY}}},
        "spec.kubeconfigSecretRef.key",
    ),
    "another type": (CONFIG_MAP, {"data": {"a": {"b": CANARY}}}, "data"),
    "another type in a CRD": (API_SERVICE_BINDING, {"spec": CANARY}, "spec"),
    "an object": (DEPLOYMENT, {"spec": {"replicas": CANARY}}, "replicas"),
    "what does not fit together": (
        DEPLOYMENT,
        {
            "spec": {
                "selector": {"matchLabels": {"a": CANARY}},
                "template": {"metadata": {"labels": {"b": CANARY}}, "spec": {}},
            }
        },
        "spec.template.metadata.labels",
    ),
    "a CRD": (CRD, {"spec": {"group": CANARY, "scope": CANARY, "names": {}}}, "spec.scope"),
    "an account": (SERVICE_ACCOUNT, {"secrets": CANARY}, "secrets"),
}


@pytest.mark.parametrize(("kind", "wrong", "named"), REFUSED.values(), ids=REFUSED.keys())
async def test_nothing_is_quoted(control_plane, namespace, kind, wrong, named):
    cluster, made = control_plane.cluster, manifest(kind, namespace, **wrong)
    attempts = (
        cluster.create(made, kind, manager="tests"),
        cluster.apply(made, kind, manager="tests", force=True),
    )
    for attempt in attempts:
        with pytest.raises(ClusterError) as caught:
            await attempt
        assert CANARY not in str(caught.value)
        assert named in caught.value.message
