"""Whatever is in a kubeconfig: a connection or a ConfigError comes out, and never a secret."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.kube import kubeconfig
from reconciler.kube.connection import Connection, ExecPlugin, TokenFile
from tests.support.kubeconfigs import CERTIFICATE, b64, document, leaks, text

TOKEN, PASSWORD, PROXY, ENV, ARG, KEY = (
    f"Canary{index}Z0a1B2c3D4e5F6g7H8i9J" for index in range(6)
)
KEY_PEM = f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n"
SECRETS = (TOKEN, PASSWORD, PROXY, ENV, ARG, KEY, b64(KEY_PEM))

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "/usr/bin/login",
    "args": ["get-token", ARG],
    "env": [{"name": "A", "value": ENV}],
    "interactiveMode": "Never",
    "provideClusterInfo": True,
    "installHint": "install it",
}
USERS = (
    {"token": TOKEN},
    {"username": "me", "password": PASSWORD},
    {"token": TOKEN, "client-certificate-data": b64(CERTIFICATE), "client-key-data": b64(KEY_PEM)},
    {"exec": EXEC},
    {"tokenFile": "/run/token", "client-certificate": "/run/crt", "client-key": "/run/key"},
    {"auth-provider": {"name": "gcp", "config": {"access-token": TOKEN}}},
    {"token": TOKEN, "as": "admin", "as-groups": ["g"], "as-user-extra": {"a": ["b"]}},
)
EXTENSION = {"name": "client.authentication.k8s.io/exec", "extension": {"secret": ENV, "n": 1.5}}
CLUSTERS = (
    {"certificate-authority-data": b64(CERTIFICATE), "tls-server-name": "a.example"},
    {"proxy-url": f"http://me:{PROXY}@proxy.example:3128", "insecure-skip-tls-verify": True},
    {"server": "http://127.0.0.1:8001", "extensions": [EXTENSION]},
    {"server": f"https://me:{PASSWORD}@api.example", "certificate-authority": "/run/ca"},
)

KEYS = sorted(
    {*document(), *EXEC, *(key for entry in (*USERS, *CLUSTERS) for key in entry)}
    | {"name", "context", "cluster", "user", "namespace", "extensions", "value", "<<", "\0"}
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=8)
    | st.sampled_from(["dev", "c", "u", "https://a", "http://[", "/", "..", "socks5://a", "%"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
WRITERS = (text, lambda value: json.dumps(value, default=str, ensure_ascii=False).encode())


@st.composite
def valid(draw):
    user, cluster = draw(st.sampled_from(USERS)), draw(st.sampled_from(CLUSTERS))
    return document(user=copy.deepcopy(user), cluster=copy.deepcopy(cluster))


@st.composite
def with_strange_values(draw):
    """A valid kubeconfig with a few values replaced, removed or given twice."""
    value = draw(valid())
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(list(_places(value))))
        change = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if change == "replace":
            container[key] = draw(VALUES)
        elif change == "remove":
            del container[key]
        elif isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
    return _written(draw, value)


@st.composite
def with_strange_text(draw):
    """A valid kubeconfig with a few stretches of its text removed, repeated or overwritten."""
    content = _written(draw, draw(valid()))
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.integers(0, len(content))) for _ in range(2))
        end = min(end, start + draw(st.sampled_from([0, 1, 2, 20, 200])))
        middle = draw(
            st.sampled_from(
                [b"", content[start:end] * 2, b"\n", b" ", b"&a ", b"*a", b"!!x ", b"["]
            )
            | st.binary(max_size=4)
        )
        content = content[:start] + middle + content[end:]
    return content


MARKS = (
    *(
        ": ",
        "\n",
        "  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        '"',
        "|",
        ">",
        "&a ",
        "*a",
        "?",
        "<<: ",
    ),
    *("---", "...", "%TAG", "!!", "#", "\t", "\r", "\ufeff", "\x85", "0x", "~", "\\"),
)
YAMLISH = st.lists(st.sampled_from((*KEYS, *MARKS)), max_size=60).map(
    lambda parts: "".join(parts).encode()
)
ANYTHING = (
    with_strange_values()
    | with_strange_text()
    | VALUES.map(text)
    | YAMLISH
    | st.binary(max_size=200)
    | st.text(max_size=200).map(lambda value: value.encode("utf-8", "surrogatepass"))
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(items):
            yield value, key
            yield from _places(item)


def _written(draw: Any, value: Any) -> bytes:
    return bytes(draw(st.sampled_from(WRITERS))(value))


def attempt(load):
    """Return the connection or the ConfigError, after making sure that neither shows a secret."""
    outcome: object
    try:
        outcome = load()
    except ConfigError as error:
        outcome = error
    assert leaks(outcome, SECRETS) == []
    return outcome


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "config"


@settings(max_examples=400, deadline=None)
@given(ANYTHING)
@example(b"a: " + b"[" * 2000)
@example(b"[" * MAX_BYTES)
@example(b"a: 'x\n" * 1000)
def test_from_a_file(file, content):
    file.write_bytes(content)
    listed = attempt(lambda: kubeconfig.contexts([file]))
    names = [None] if isinstance(listed, ConfigError) else [None, *(each.name for each in listed)]
    for name in names:
        outcome = attempt(lambda name=name: kubeconfig.load([file], environ={}, context=name))
        assert isinstance(outcome, Connection | ConfigError)


@settings(max_examples=400, deadline=None)
@given(ANYTHING)
def test_from_a_secret(content):
    outcome = attempt(lambda: kubeconfig.from_secret(content, name="shop", environ={}))
    if isinstance(outcome, Connection):
        assert not isinstance(outcome.credential, ExecPlugin | TokenFile)
        assert (outcome.insecure, outcome.proxy) == (False, None)


@given(valid())
def test_the_fuzz_starts_from_kubeconfigs_that_are_read(file, content):
    """Else it would only ever meet the first check."""
    file.write_bytes(text(content))
    outcome = attempt(lambda: kubeconfig.load([file], environ={}))
    unusable = ("auth-provider", "not supported", "contains credentials", "cannot be read")
    assert isinstance(outcome, Connection) or any(word in str(outcome) for word in unusable)


def test_a_leak_would_be_found():
    error = ConfigError("fine", where="x")
    error.__context__ = ValueError(f"bad {TOKEN}")
    assert leaks(error, SECRETS) != []
    assert leaks(Connection("c", "https://a", tls_server_name=PASSWORD), SECRETS) != []
