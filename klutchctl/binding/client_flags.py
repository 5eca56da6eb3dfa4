"""The app cluster as client flags of `kubectl bind` say it, over those of a kubeconfig (D.1)."""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from reconciler.core.addresses import proxy_fault
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube import host, kubeconfig
from reconciler.kube.connection import BasicAuth, Connection, Credential, Token
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.networks import server_fault

_NAME: Final = "the app cluster"


def connection(said: argparse.Namespace) -> Connection:
    """Return the connection to the app cluster. Raises ConfigError."""
    if said.as_uid:
        raise ConfigError("impersonation is not supported", where="--as-uid")
    found = _of_files(said)
    for value, fault, flag in (
        (said.server, server_fault, "--server"),
        (said.proxy_url, proxy_fault, "--proxy-url"),
    ):
        if value and (problem := fault(value)):
            raise ConfigError(problem, where=flag)
    insecure = said.insecure_skip_tls_verify or found.insecure
    return replace(
        found,
        server=said.server.rstrip("/") or found.server,
        credential=_credential(said) or found.credential,
        ca=None if insecure else _authorities(said) or found.ca,
        insecure=insecure,
        tls_server_name=said.tls_server_name or found.tls_server_name,
        proxy=Secret(said.proxy_url) if said.proxy_url else found.proxy,
    )


def _of_files(said: argparse.Namespace) -> Connection:
    home = host.home_directory()
    paths = kubeconfig.search_paths(said.kubeconfig, environ=os.environ, home=home)
    try:
        files = kubeconfig.merged(paths)
    except ConfigError:
        if said.server and not said.kubeconfig:
            return Connection(_NAME, said.server)
        raise
    chosen = entries.profile(files, said.context or None)
    if said.user:
        if said.user not in files.users:
            raise ConfigError("there is no such user in the kubeconfig", where="--user")
        chosen = replace(chosen, user=files.users[said.user])
    return profile.connection(chosen, name=_NAME, environ=os.environ, read=kubeconfig.read_file)


def _credential(said: argparse.Namespace) -> Credential | None:
    if said.token:
        return Token(Secret(said.token))
    if said.username or said.password:
        return BasicAuth(said.username, Secret(said.password))
    return None


def _authorities(said: argparse.Namespace) -> str | None:
    if not said.certificate_authority:
        return None
    path = Path(said.certificate_authority)
    try:
        return kubeconfig.read_file(path).decode("latin-1")
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(problem, where="--certificate-authority") from None
