"""Kubeconfig files: what becomes a connection, what is refused, and where the error points."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube import connection, kubeconfig
from reconciler.kube.kubeconfig import ContextSummary
from tests.support.kubeconfigs import CERTIFICATE, KEY, b64, document, leaks, text

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "login",
    "interactiveMode": "Never",
}
PLUGIN = connection.ExecPlugin(
    command="login",
    args=(),
    env=(),
    api_version="client.authentication.k8s.io/v1",
    provide_cluster_info=False,
    interactive_mode="Never",
)
PAIR = {"client-certificate-data": b64(CERTIFICATE), "client-key-data": b64(KEY)}
CLIENT = connection.ClientCertificate(CERTIFICATE, Secret(KEY))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "client.crt").write_text(CERTIFICATE)
    (tmp_path / "client.key").write_text(KEY)
    (tmp_path / "notes.txt").write_text("not a certificate")
    (tmp_path / "encrypted.key").write_text(KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"))
    return tmp_path


def load(folder, content, **options):
    path = folder / "config"
    path.write_bytes(content if isinstance(content, bytes) else text(content))
    return kubeconfig.load([path], **{"environ": {}} | options)


USERS = {
    "nobody": ({}, connection.NoCredential()),
    "a token": ({"token": "abc"}, connection.Token(Secret("abc"))),
    "a token file wins over a token": (
        {"token": "abc", "tokenFile": "/run/token"},
        connection.TokenFile(Path("/run/token")),
    ),
    "a password": ({"username": "me", "password": "pw"}, connection.BasicAuth("me", Secret("pw"))),
    "an empty password": ({"username": "me"}, connection.BasicAuth("me", Secret(""))),
    "a certificate": (PAIR, CLIENT),
    "a certificate in files beside the kubeconfig": (
        {"client-certificate": "client.crt", "client-key": "./client.key"},
        CLIENT,
    ),
    "a certificate with its key in a file": (
        {"client-certificate-data": b64(CERTIFICATE), "client-key": "client.key"},
        CLIENT,
    ),
    "a certificate and a token, as AKS writes": (
        PAIR | {"token": "abc"},
        connection.CertificateAndHeader(CLIENT, connection.Token(Secret("abc"))),
    ),
    "a plug-in": ({"exec": EXEC}, PLUGIN),
    "a token wins over a plug-in": (
        {"exec": EXEC, "token": "abc"},
        connection.Token(Secret("abc")),
    ),
    "empty values are no values": ({"token": "", "tokenFile": "", "auth-provider": None}, None),
    "fields that nobody knows are left alone": ({"new-thing": {"a": 1}}, None),
}


@pytest.mark.parametrize(("user", "want"), USERS.values(), ids=USERS.keys())
def test_credentials(folder, user, want):
    assert load(folder, document(user=user)).credential == (want or connection.NoCredential())


CLUSTERS = {
    "only a server": ({}, {}),
    "a slash at the end is dropped": ({"server": "https://api.example:6443/"}, {}),
    "a server with a path": (
        {"server": "https://gate.example/k8s/clusters/c-1/"},
        {"server": "https://gate.example/k8s/clusters/c-1"},
    ),
    "an IPv6 server": ({"server": "https://[fd00::1]:6443"}, {"server": "https://[fd00::1]:6443"}),
    "plain http for nobody in particular": (
        {"server": "http://gate.example"},
        {"server": "http://gate.example"},
    ),
    "a CA": ({"certificate-authority-data": b64(CERTIFICATE)}, {"ca": CERTIFICATE}),
    "a CA in lines": (
        {"certificate-authority-data": f"{b64(CERTIFICATE)[:76]}\n{b64(CERTIFICATE)[76:]}"},
        {"ca": CERTIFICATE},
    ),
    "a CA file": ({"certificate-authority": "ca.crt"}, {"ca": CERTIFICATE}),
    "no verification": ({"insecure-skip-tls-verify": True}, {"insecure": True}),
    "another name in the certificate": (
        {"tls-server-name": "kubernetes.default"},
        {"tls_server_name": "kubernetes.default"},
    ),
    "an IP in the certificate": ({"tls-server-name": "10.0.0.1"}, {"tls_server_name": "10.0.0.1"}),
    "a proxy": (
        {"proxy-url": "http://me:pw@proxy.example:3128"},
        {"proxy": Secret("http://me:pw@proxy.example:3128")},
    ),
}


@pytest.mark.parametrize(("cluster", "want"), CLUSTERS.values(), ids=CLUSTERS.keys())
def test_clusters(folder, cluster, want):
    expected = {"name": "dev", "server": "https://api.example:6443"} | want
    assert load(folder, document(cluster=cluster)) == connection.Connection(**expected)


def test_a_plug_in_is_read_in_full(folder):
    plugin = EXEC | {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "bin/login",
        "args": ["--secret", "s"],
        "env": [{"name": "A", "value": "b"}],
        "provideClusterInfo": True,
        "installHint": "install it",
    }
    del plugin["interactiveMode"]
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": 7}}
    content = document(user={"exec": plugin}, cluster={"extensions": [extension]})
    assert load(folder, content).credential == connection.ExecPlugin(
        command=str(folder / "bin/login"),
        args=(Secret("--secret"), Secret("s")),
        env=(("A", Secret("b")),),
        api_version="client.authentication.k8s.io/v1beta1",
        provide_cluster_info=True,
        interactive_mode="IfAvailable",
        install_hint="install it",
        cluster_config=Secret('{"audience": 7}'),
    )


def test_null_lists_as_kubectl_writes_them(folder):
    plugin = EXEC | {"args": None, "env": None, "provideClusterInfo": False}
    content = document(user={"exec": plugin}, preferences={}, extensions=None)
    assert load(folder, content).credential == PLUGIN


def test_json_reads_as_yaml(folder):
    content = (
        b'{"contexts":[{"name":"dev","context":{"cluster":"c","user":"u","namespace":"team-a"}}],'
        b'"clusters":[{"name":"c","cluster":{"server":"https:\\/\\/a"}}],'
        b'"users":[{"name":"u","user":{"token":"t"}}],"current-context":"dev"}'
    )
    want = connection.Connection(
        "dev", "https://a", connection.Token(Secret("t")), namespace="team-a"
    )
    assert load(folder, content) == want


def test_a_context_can_be_chosen_and_named(folder):
    other = {"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}
    content = document()
    content["contexts"].append(other)
    connection = load(folder, content, context="prod", name="shop-eu")
    assert (connection.name, connection.namespace) == ("shop-eu", "shop")


def test_the_proxy_of_the_environment_is_the_second_choice(folder):
    environ = {"HTTPS_PROXY": "http://env:1"}
    own = {"proxy-url": "http://own:1"}
    assert load(folder, document(), environ=environ).proxy == Secret("http://env:1")
    assert load(folder, document(cluster=own), environ=environ).proxy == Secret("http://own:1")


def test_an_entry_that_no_context_uses_is_never_judged(folder):
    content = document(user={"token": "t"})
    content["users"].append({"name": "broken", "user": {"exec": 7, "token": 8}})
    content["clusters"].append({"name": "broken", "cluster": {"server": "ftp://x"}})
    assert load(folder, content).credential == connection.Token(Secret("t"))


REFUSED = {
    "a context that is not there": document() | {"current-context": "gone"},
    "no current context": {
        key: value for key, value in document().items() if key != "current-context"
    },
    "an empty file": b"",
    "a missing cluster": document(context={"cluster": "gone"}),
    "a missing user": document(context={"user": "gone"}),
    "a context without a cluster": document(context={"cluster": ""}),
    "a name that looks like a token": document(context={"user": "eyJhbGciOiJSUzI1NiIsImtpZCI6"}),
    "another kind of object": {"apiVersion": "v1", "kind": "Secret", "data": {}},
    "another version": document(apiVersion="v2"),
    "two users of one name": document(users=[{"name": "u"}, {"name": "u"}]),
    "a user without a name": document(users=[{"user": {}}]),
    "a namespace that leads elsewhere": document(context={"namespace": "../secrets"}),
    "a numeric token": document(user={"token": 12345}),
    "a token of two lines": document(user={"token": "a\nb"}),
    "a token and a password": document(user={"token": "a", "username": "b"}),
    "a user name with a colon": document(user={"username": "a:b"}),
    "a legacy plug-in": document(user={"auth-provider": {"name": "gcp"}}),
    "the plug-in of OIDC": document(user={"auth-provider": {"name": "oidc", "config": {}}}),
    "impersonation": document(user={"token": "a", "as": "admin"}),
    "impersonated groups": document(user={"token": "a", "as-groups": ["g"]}),
    "a certificate without its key": document(user={"client-certificate-data": b64(CERTIFICATE)}),
    "a key without its certificate": document(user={"client-key-data": b64(KEY)}),
    "a key that needs a password": document(
        user={"client-certificate": "client.crt", "client-key": "encrypted.key"}
    ),
    "a key in place of a certificate": document(user=PAIR | {"client-certificate-data": b64(KEY)}),
    "a certificate in place of a key": document(user=PAIR | {"client-key-data": b64(CERTIFICATE)}),
    "what is not base64": document(cluster={"certificate-authority-data": "%%%"}),
    "a CA that is cut off": document(
        cluster={"certificate-authority-data": b64(CERTIFICATE[:100])}
    ),
    "a CA that is no certificate inside": document(
        cluster={
            "certificate-authority-data": b64(
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
            )
        }
    ),
    "a CA file that is none": document(cluster={"certificate-authority": "notes.txt"}),
    "a CA twice": document(
        cluster={"certificate-authority": "ca.crt", "certificate-authority-data": b64(CERTIFICATE)}
    ),
    "a CA that is not to be used": document(
        cluster={"certificate-authority": "ca.crt", "insecure-skip-tls-verify": True}
    ),
    "a flag in quotes": document(cluster={"insecure-skip-tls-verify": "true"}),
    "no server": document(cluster={"server": ""}),
    "a server without a scheme": document(cluster={"server": "api.example:6443"}),
    "a server of a name that is too long": document(
        cluster={"server": f"https://{'a' * 64}.example"}
    ),
    "a server with an empty part in its name": document(cluster={"server": "https://api..example"}),
    "a server with a password": document(cluster={"server": "https://me:canary@api.example"}),
    "a server with a query": document(cluster={"server": "https://api.example/?a=b"}),
    "a server with a broken address": document(cluster={"server": "https://[fd00::1"}),
    "a server with a port that is none": document(cluster={"server": "https://api.example:99999"}),
    "a server with a line break": document(cluster={"server": "https://api.example/\nx"}),
    "a server without a host": document(cluster={"server": "https:///path"}),
    "a token over plain http": document(
        user={"token": "a"}, cluster={"server": "http://api.example"}
    ),
    "a server name that is none": document(cluster={"tls-server-name": "a b"}),
    "a server name that is too long to be asked for": document(
        cluster={"tls-server-name": f"{'a' * 64}.example"}
    ),
    "a proxy of a name that is too long": document(
        cluster={"proxy-url": f"http://me:canary@{'a' * 64}.example:3128"}
    ),
    "a SOCKS proxy": document(cluster={"proxy-url": "socks5://me:canary@proxy:1080"}),
    "a plug-in of another age": document(
        user={"exec": EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}}
    ),
    "a plug-in without a command": document(user={"exec": EXEC | {"command": ""}}),
    "a v1 plug-in without a mode": document(user={"exec": EXEC | {"interactiveMode": ""}}),
    "a variable without a name": document(
        user={"exec": EXEC | {"env": [{"name": "", "value": "canary"}]}}
    ),
    "numbers among the arguments": document(user={"exec": EXEC | {"args": [1]}}),
}


def test_refused(folder, refusals):
    attempts = {name: partial(load, folder, content) for name, content in REFUSED.items()}
    refusals("files", attempts, secrets=("canary", KEY.splitlines()[1]), unique=f"{folder}/")


LOOPBACKS = ("http://localhost:8001", "http://127.0.0.1:8001", "http://[::1]:8001")


@pytest.mark.parametrize("server", LOOPBACKS)
def test_a_token_may_go_over_plain_http_to_this_machine(folder, server):
    assert load(folder, document(user={"token": "a"}, cluster={"server": server})).server == server


UNREADABLE = {
    "missing": ("gone.crt", "No such file or directory"),
    "a folder": (".", "Is a directory"),
    "below a file": ("ca.crt/x", "Not a directory"),
    "too large": ("large", "File too large"),
    "too long a name": ("x" * 5000, "File name too long"),
}


@pytest.mark.parametrize(("path", "reason"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_file_that_cannot_be_read(folder, path, reason):
    (folder / "large").write_bytes(b" " * (1 << 20) + b"x")
    with pytest.raises(ConfigError) as caught:
        load(folder, document(cluster={"certificate-authority": path}))
    place = folder / "config"
    shown = folder / path if len(path) < 100 else "(a path that is not shown)"
    message = f"{place}:13:28: certificate-authority: {shown} cannot be read: {reason}"
    assert str(caught.value) == message


def test_a_key_in_place_of_its_path_is_not_shown(folder):
    user = {"client-certificate-data": b64(CERTIFICATE), "client-key": b64(KEY)}
    with pytest.raises(ConfigError, match="client-key: ") as caught:
        load(folder, document(user=user))
    assert leaks(caught.value, (b64(KEY)[:40], b64(KEY)[60:100], b64(KEY)[-40:])) == []


def test_relative_paths_start_beside_the_file_that_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
    users = [{"name": "u", "user": {"tokenFile": "t"}}]
    Path("a/config").write_bytes(text(document(users=[])))
    Path("b/config").write_bytes(text({"users": users}))
    way = kubeconfig.load([Path("a/config"), Path("b/config")], environ={})
    assert way.credential == connection.TokenFile(tmp_path / "b" / "t")


def merged(tmp_path, *documents, context=None):
    paths = [tmp_path / f"config-{index}" for index in range(len(documents))]
    for path, content in zip(paths, documents, strict=True):
        if content is not None:
            path.write_bytes(text(content))
    return kubeconfig.load(paths, environ={}, context=context)


def test_the_first_entry_of_a_name_wins_whole(tmp_path):
    first = document(user={"token": "first"}, cluster={"server": "https://first"})
    second = document(user={"token": "second"}, cluster={"tls-server-name": "second"})
    assert merged(tmp_path, first, second) == connection.Connection(
        "dev", "https://first", connection.Token(Secret("first"))
    )


def test_the_first_current_context_wins(tmp_path):
    first = document() | {"current-context": ""}
    second = {
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "prod",
    }
    assert merged(tmp_path, first, second, {"current-context": "dev"}).name == "prod"


def test_files_that_are_missing_are_skipped(tmp_path):
    assert merged(tmp_path, None, document(), None).name == "dev"


def test_no_file_at_all_is_an_error(tmp_path):
    with pytest.raises(ConfigError) as caught:
        merged(tmp_path, None, None)
    assert str(caught.value) == (
        f"--kubeconfig: no kubeconfig found; looked for {tmp_path}/config-0, {tmp_path}/config-1. "
        "Name a kubeconfig with --kubeconfig or $KUBECONFIG"
    )


def test_a_kubeconfig_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(ConfigError) as caught:
        kubeconfig.load([tmp_path], environ={})
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


HOME = Path("/home/me")
PATHS = {
    "the file that was asked for": ("/x", {"KUBECONFIG": "/y"}, ("/x",)),
    "a name with a separator is one file": ("/x:/y", {}, ("/x:/y",)),
    "the list of the environment": (
        None,
        {"KUBECONFIG": os.pathsep.join(("/a", "", "/b", "/a"))},
        ("/a", "/b"),
    ),
    "the default": (None, {}, ("/home/me/.kube/config",)),
    "an empty variable is none": (None, {"KUBECONFIG": ""}, ("/home/me/.kube/config",)),
}


@pytest.mark.parametrize(("explicit", "environ", "want"), PATHS.values(), ids=PATHS.keys())
def test_where_kubeconfigs_are(explicit, environ, want):
    assert kubeconfig.search_paths(explicit, environ=environ, home=HOME) == tuple(map(Path, want))


def test_contexts_are_listed(tmp_path):
    content = document(context={"namespace": "shop"})
    content["contexts"] += [
        {"name": "bad", "context": {"cluster": "x", "user": "u"}},
        {"name": "lost", "context": {"cluster": "gone"}},
    ]
    content["clusters"].append({"name": "x", "cluster": {"server": "https://me:canary@x"}})
    path = tmp_path / "config"
    path.write_bytes(text(content))
    listed = kubeconfig.contexts([path])
    assert listed == (
        ContextSummary(
            name="bad",
            current=False,
            origin=f"{path}:12:5",
            problem=f"{path}:23:13: server contains credentials: move them to the user",
        ),
        ContextSummary(
            name="dev",
            current=True,
            origin=f"{path}:7:5",
            cluster="c",
            user="u",
            namespace="shop",
            server="https://api.example:6443",
        ),
        ContextSummary(
            name="lost",
            current=False,
            origin=f"{path}:16:5",
            problem=f'{path}:16:14: the context names cluster "gone", which does not exist',
        ),
    )
    assert leaks(listed, ("canary",)) == []


def test_the_module_is_light():
    program = (
        "import sys, reconciler.kube.kubeconfig.files\n"
        "heavy = {'httptools', 'kubernetes', 'asyncio', 'cryptography', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
