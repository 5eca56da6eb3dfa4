"""What the stand-ins make of a Secret with a kubeconfig: SecretValid, and where it leads."""

import base64
import binascii

from reconciler.core import causes, conditions, names
from reconciler.core.conditions import Condition
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, get_text
from reconciler.kube import kubeconfig
from reconciler.kube.connection import Connection


def connection(secret: Manifest | None) -> Connection:
    """Return the connection in a Secret. Raises ConfigError where there is none."""
    text = get_text(secret, "data", names.KUBECONFIG)
    if not text:
        raise ConfigError(f'is missing "{names.KUBECONFIG}" string key')
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ConfigError("is not base64") from None
    return kubeconfig.from_secret(content, name="stand-in", environ={})


def namespace(secret: Manifest | None) -> str:
    """Return the namespace that a Secret's kubeconfig leads to, "" for none."""
    try:
        return connection(secret).namespace
    except ConfigError:
        return ""


def verdict(secret: Manifest | None, place: str, *, namespace_needed: bool) -> Condition:
    """Return SecretValid for a Secret at `place`, in the originals' words where short."""
    if secret is None:
        message = f"Kubeconfig secret {place} not found."
        return conditions.false(causes.KUBECONFIG_SECRET_NOT_FOUND, message)
    try:
        found = connection(secret)
        if namespace_needed and not found.namespace:
            raise ConfigError("has no namespace in its current context")
    except ConfigError as error:
        message = f"Kubeconfig secret {place} has an invalid kubeconfig: {error}"
        return conditions.false(causes.KUBECONFIG_SECRET_INVALID, message)
    return conditions.true(causes.SECRET_VALID)
