"""Kubeconfigs and certificates to try the loaders on, and a search for what leaks out of them."""

import base64
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.core.secret import Secret


def _self_signed() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "klutchctl test")])
    start = datetime.now(UTC) - timedelta(hours=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=2))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.decode(), secret.decode()


CERTIFICATE, KEY = _self_signed()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document(
    *, user: Any = None, cluster: Any = None, context: Any = None, **top: Any
) -> dict[str, Any]:
    """Return a kubeconfig with one context, `dev`; keywords add to its entries, or replace."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"} | (context or {})}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://api.example:6443"} | (cluster or {})}
        ],
        "users": [{"name": "u", "user": {} if user is None else user}],
    } | top


def text(value: Any) -> bytes:
    return yaml.safe_dump(value, sort_keys=False, width=10**6).encode()


def leaks(value: object, secrets: tuple[str, ...]) -> list[str]:
    """Return every place reachable from `value` (an answer or an error) that shows a secret."""
    found = []
    for path, seen in _walk(value, "value", set()):
        shown = f"{seen!s} {seen!r}" if not isinstance(seen, bytes) else seen.decode("latin-1")
        found += [f"{path} shows {secret}" for secret in secrets if secret in shown]
    return found


def _walk(value: object, path: str, visited: set[int]) -> Iterator[tuple[str, object]]:
    if id(value) in visited or isinstance(value, type | int | float | None):
        return
    visited.add(id(value))
    yield path, value
    if isinstance(value, Secret | str | bytes):
        return
    inside: dict[str, object] = dict(getattr(value, "__dict__", {}))
    if dataclasses.is_dataclass(value):
        inside |= {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, BaseException):
        inside |= {"cause": value.__cause__, "context": value.__context__, "args": value.args}
        inside["notes"] = getattr(value, "__notes__", None)
        if isinstance(value, UnicodeError | ValueError):
            names = (name for name in dir(value) if not name.startswith("__"))
            inside |= {name: getattr(value, name) for name in names}
    if isinstance(value, dict):
        inside |= {f"[{key}]": item for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        inside |= {f"[{index}]": item for index, item in enumerate(value)}
    for name, item in inside.items():
        yield from _walk(item, f"{path}.{name}", visited)
