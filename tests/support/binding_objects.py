"""What providers hand out, and what lies in an app cluster that was bound."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from klutchctl.binding.provider import Device, FrontDoor

SPACE: Final = "cluster-7fk2q"
TOKEN: Final = "canary-of-the-space-token"
SECRETS: Final[dict[str, Any]] = {
    "resource": "secrets",
    "version": "v1",
    "selector": {"names": ["*"], "namespaces": ["*"], "owner": "Provider"},
    "required": True,
    "read": {},
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
}
CONFIG_MAP: Final[dict[str, Any]] = {
    "resource": "configmaps",
    "version": "v1",
    "selector": {"names": ["backup-settings"], "namespaces": ["*"], "owner": "Consumer"},
    "required": False,
    "read": {},
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
}


def kubeconfig(
    *,
    server: str = "https://control-plane.example:6443",
    namespace: str = SPACE,
    user: Mapping[str, Any] | None = None,
    token: str = TOKEN,
    cluster: Mapping[str, str] | None = None,
) -> str:
    """Return the kubeconfig of a space (B.4); `cluster` is said beside its server."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "preferences": {},
            "current-context": "default",
            "clusters": [{"name": "default", "cluster": {"server": server, **(cluster or {})}}],
            "contexts": [
                {
                    "name": "default",
                    "context": {"cluster": "default", "namespace": namespace, "user": "default"},
                }
            ],
            "users": [{"name": "default", "user": dict(user or {"token": token})}],
        }
    )


def encoded(text: str) -> str:
    """Return base64."""
    return base64.b64encode(text.encode()).decode()


def front_door(device: Device | None = None) -> FrontDoor:
    """Return a door at https://bind.example.org, whose machines sign in at https://id.example."""
    base = "https://bind.example.org"
    redeem, bind, catalogue = (f"{base}/api/v1/{path}" for path in ("redeem", "bind", "catalogue"))
    return FrontDoor(redeem, bind, catalogue, base, "", device, "https://id.example", ())


def request(
    resource: str = "databases", claims: Sequence[Mapping[str, Any]] = (SECRETS, CONFIG_MAP)
) -> dict[str, Any]:
    """Return the trimmed APIServiceExportRequest of the captures (A.12)."""
    wanted: dict[str, Any] = {"group": "shop.example", "resource": resource}
    if claims:
        wanted["permissionClaims"] = [dict(claim) for claim in claims]
    return {
        "kind": "APIServiceExportRequest",
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "metadata": {"name": f"{resource}.shop.example"},
        "spec": {"resources": [wanted]},
        "status": {},
    }


def document(
    *,
    sid: str = "h3Xk9a",
    resource: str = "databases",
    claims: Sequence[Mapping[str, Any]] = (SECRETS, CONFIG_MAP),
    kubeconfig: str = kubeconfig(),
) -> dict[str, Any]:
    return {
        "kind": "BindingResponse",
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "authentication": {"oauth2CodeGrant": {"sid": sid, "id": "http://idp.example/alice"}},
        "kubeconfig": encoded(kubeconfig),
        "requests": [request(resource, claims)],
    }


def secret(name: str, content: str | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "klutch-bind", "resourceVersion": "7"},
        "data": {"kubeconfig": encoded(kubeconfig() if content is None else content)},
    }


def binding(
    secret: str = "kubeconfig-x8t4d",
    *,
    name: str = "databases.shop.example",
    claims: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "kind": "APIServiceBinding",
        "metadata": {"name": name, "namespace": "klutch-bind", "uid": f"uid-of-{name}"},
        "spec": {
            "kubeconfigSecretRef": {
                "namespace": "klutch-bind",
                "name": secret,
                "key": "kubeconfig",
            },
            "permissionClaims": [dict(claim) for claim in claims],
        },
    }
