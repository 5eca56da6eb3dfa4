"""What we say to a credential plug-in and what its answer means. Pure.

Source: the Kubernetes API group client.authentication.k8s.io, v1 and v1beta1.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from reconciler.core.errors import ConfigError
from reconciler.core.secret import HIDDEN, Secret, scrub
from reconciler.kube.connection import ClientCertificate, Connection, ExecPlugin
from reconciler.kube.kubeconfig import credential_text

_TAIL: Final = 500
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\x20-\x7e]+")
_LONG_WORD: Final = re.compile(r"[\w+/=.~%-]{16,}")
# No token of that length is without digits and capitals, but words and paths are.
_HARMLESS: Final = re.compile(r"[a-z/.-]+")
_STATUS_FIELDS: Final = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")


@dataclass(frozen=True, slots=True)
class Issued:
    """What a plug-in gave out: a token, a certificate or both. `expires` is in UTC."""

    token: Secret | None
    certificate: ClientCertificate | None
    expires: datetime | None


def place(plugin: ExecPlugin) -> str:
    """Name a plug-in in errors: by its command, for the arguments may hold a password."""
    return f"exec plug-in {plugin.command}"


def request(plugin: ExecPlugin, connection: Connection, *, interactive: bool) -> str:
    """Return the text for KUBERNETES_EXEC_INFO."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = _cluster(plugin, connection)
    return json.dumps({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec})


def answer(output: bytes, plugin: ExecPlugin) -> Issued:
    """Read what a plug-in printed. Raises ConfigError, which never quotes it."""
    credential = _object(output)
    status = credential.get("status")
    problem = ""
    if credential.get("kind") != "ExecCredential" or not isinstance(status, dict):
        problem = "printed no ExecCredential with a status"
    elif credential.get("apiVersion") != plugin.api_version:
        problem = f"did not answer in the version it was asked for, {plugin.api_version}"
    elif any(not isinstance(status.get(key) or "", str) for key in _STATUS_FIELDS):
        problem = "printed a status with values that are not text"
    if problem or not isinstance(status, dict):
        raise ConfigError(problem, where=place(plugin))
    return _issued({key: status.get(key) or "" for key in _STATUS_FIELDS}, plugin)


def is_complete(output: bytes) -> bool:
    """Tell whether a plug-in has printed a whole JSON object."""
    return bool(_object(output))


def failure_tail(stderr: bytes, plugin: ExecPlugin) -> str:
    """Return the end of what a plug-in complained, on one line and without what may be secret."""
    text = printable(scrub(stderr.decode("utf-8", "replace"), tuple(_arguments(plugin))))
    text = _LONG_WORD.sub(lambda word: word[0] if _HARMLESS.fullmatch(word[0]) else HIDDEN, text)
    # Cut last: a cut through a token would leave a harmless-looking rest.
    return text if len(text) <= _TAIL else f"...{text[-_TAIL:]}"


def printable(text: str) -> str:
    """Return text on one line, without what would steer a terminal."""
    return " ".join(_ESCAPES.sub(" ", text).split())


def _cluster(plugin: ExecPlugin, connection: Connection) -> dict[str, Any]:
    cluster: dict[str, Any] = {"server": connection.server}
    if connection.tls_server_name:
        cluster["tls-server-name"] = connection.tls_server_name
    if connection.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if connection.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(connection.ca.encode()).decode()
    if connection.proxy is not None:
        cluster["proxy-url"] = connection.proxy.reveal()
    if plugin.cluster_config is not None:
        cluster["config"] = json.loads(plugin.cluster_config.reveal())
    return cluster


def _object(output: bytes) -> dict[str, Any]:
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):  # these carry the output: let none of them out
        return {}
    return value if isinstance(value, dict) else {}


def _issued(status: dict[str, str], plugin: ExecPlugin) -> Issued:
    token, certificate = status["token"], status["clientCertificateData"]
    key, expiry = status["clientKeyData"], status["expirationTimestamp"]
    expires = _time(expiry) if expiry else None
    problem = ""
    if not (token or certificate or key):
        problem = "gave neither a token nor a certificate"
    elif bool(certificate) != bool(key):
        problem = "gave a certificate without its key, or a key without a certificate"
    elif token and (fault := credential_text.token_fault(token)):
        problem = f"gave a token that {fault}"
    elif certificate and (fault := credential_text.certificates_fault(certificate)):
        problem = f"gave clientCertificateData that {fault}"
    elif key and (fault := credential_text.key_fault(key)):
        problem = f"gave clientKeyData that {fault}"
    elif expiry and expires is None:
        problem = "gave an expirationTimestamp that is not an RFC 3339 time"
    if problem:
        raise ConfigError(problem, where=place(plugin))
    return Issued(
        token=Secret(token) if token else None,
        certificate=ClientCertificate(certificate, Secret(key)) if certificate else None,
        expires=None if expires is None or expires.year == 1 else expires,  # Go's zero time
    )


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return None if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _arguments(plugin: ExecPlugin) -> Iterator[str]:
    """Yield what the plug-in was given and might repeat: all but options and sub-commands."""
    yield from (value.reveal() for _, value in plugin.env)
    for previous, arg in pairwise(("", *(arg.reveal() for arg in plugin.args))):
        option, equals, value = arg.partition("=")
        is_option = arg.startswith("--") and not equals
        follows_option = previous.startswith("-") and "=" not in previous
        if equals and option.startswith("-"):
            yield value
        elif not is_option and (follows_option or not _HARMLESS.fullmatch(arg)):
            yield arg
