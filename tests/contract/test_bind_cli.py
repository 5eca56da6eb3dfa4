"""`klutchctl bind` and `kubectl-bind` at an original provider, on real API servers.

What is asked and written is held against 03-default-mode-oidc of the captures: 13 to 16, 40, 41,
50 and 60 to 62.
"""

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import yaml

from klutchctl.binding.signed_in import cluster_id
from reconciler import api
from reconciler.blueprints import rbac
from reconciler.core import names, refs
from reconciler.core.manifest import get_map, get_text, name_of, uid_of
from reconciler.core.refs import Ref
from tests.support import original_provider
from tests.support.binding_objects import CONFIG_MAP, SECRETS
from tests.support.bound_scenes import Scene, remove
from tests.support.clusters import LiveCluster
from tests.support.original_provider import Ended, OriginalProvider

BIND = names.KLUTCH_NAMESPACE
IMAGE = "registry.example/konnector:v0.1.0"


@dataclass
class Provider:
    """A provider with a space, and the app cluster that is to be bound."""

    scene: Scene
    server: OriginalProvider
    environ: Mapping[str, str]
    content: bytes

    async def run(self, program: str, *arguments: str, answers: str = "") -> Ended:
        app = self.scene.app
        url = f"{self.server.url}/export"
        command = [program, *(["bind"] if program == "klutchctl" else []), url, *arguments]
        where = ["--kubeconfig", str(app.kubeconfig), "--context", app.context]
        return await original_provider.run(*command, *where, answers=answers, environ=self.environ)

    async def secrets(self) -> list[Any]:
        """Return the kubeconfig Secrets that lead to the space."""
        found = await self.scene.app.cluster.list(refs.SECRET, namespace=BIND)
        text = base64.b64encode(self.content).decode()
        return [one for one in found.items if get_text(one, "data", "kubeconfig") == text]

    async def requests(self) -> list[Any]:
        kind = api.API_SERVICE_EXPORT_REQUEST
        return [*(await self.scene.plane.cluster.list(kind, namespace=self.scene.space)).items]


def request_of(scene: Scene, claims: Any) -> dict[str, Any]:
    return {
        "kind": "APIServiceExportRequest",
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "metadata": {"name": scene.offer.name},
        "spec": {"resources": [{**scene.offer.resource.wire, "permissionClaims": claims}]},
        "status": {},
    }


@pytest.fixture
async def provider(scene: Scene, tmp_path: Any) -> Any:
    """A space with its backend; the app cluster has Namespace klutch-bind and nothing of it."""
    await scene.make_space()
    await remove(scene.app, refs.SECRET, BIND, scene.secret)
    kubeconfig = await scene.on_plane(refs.SECRET, names.KUBECONFIG)
    content = base64.b64decode(get_text(kubeconfig, "data", "kubeconfig"))

    def respond(session: str) -> Mapping[str, Any]:
        return {
            "kind": "BindingResponse",
            "apiVersion": "klutch.anynines.com/v1alpha1",
            "authentication": {
                "oauth2CodeGrant": {"sid": session, "id": "http://idp.example/alice"}
            },
            "kubeconfig": base64.b64encode(content).decode(),
            "requests": [request_of(scene, [SECRETS, CONFIG_MAP])],
        }

    home = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    for name in ("DISPLAY", "BROWSER", "WAYLAND_DISPLAY"):
        home.pop(name, None)
    async with original_provider.original_provider(respond) as server, scene.backend():
        found = Provider(scene, server, home, content)
        try:
            yield found
        finally:
            for secret in await found.secrets():
                await remove(scene.app, refs.SECRET, BIND, name_of(secret))


def canaries(provider: Provider, *ends: Ended) -> None:
    token = get_text(yaml.safe_load(provider.content), "users", 0, "user", "token")
    for end in ends:
        for text in (end.stdout, end.stderr):
            assert token not in text
            assert base64.b64encode(provider.content).decode()[:60] not in text


async def test_kubectl_bind_does_what_the_original_does_and_comes_back(provider):
    scene, app = provider.scene, provider.scene.app
    mark = app.audit.mark()
    done = await provider.run("kubectl-bind", "--skip-konnector", answers="yes\nn\n")
    assert done.code == 0, done.stderr
    assert done.pages == (302, 200)
    namespace = await app.cluster.get(Ref(app.name, refs.NAMESPACE, "", BIND))
    [asked] = provider.server.asked
    assert asked.keys() == {"s", "c", "p"}
    assert asked["c"] == cluster_id(uid_of(namespace))
    [secret] = await provider.secrets()
    assert secret["metadata"]["generateName"] == "kubeconfig-"
    assert (secret["type"], set(secret["data"])) == ("Opaque", {"kubeconfig"})
    binding = await scene.binding()
    assert get_map(binding, "spec", "kubeconfigSecretRef") == {
        "namespace": BIND, "name": name_of(secret), "key": "kubeconfig",
    }  # fmt: skip
    claims = binding["spec"]["permissionClaims"]
    assert [{**claim, "state": claim["state"]} for claim in claims] == [
        {**SECRETS, "group": "", "state": "Accepted"},
        {**CONFIG_MAP, "group": "", "state": "Rejected"},
    ]
    written = [(one.verb, one.resource) for one in app.audit.writes_since(mark, namespace=BIND)]
    assert written == [
        ("create", "secrets"),
        ("create", "apiservicebindings"),
        ("patch", "apiservicebindings"),
    ]
    [request] = await provider.requests()
    assert get_map(request, "spec", "resources", 0, "permissionClaims", 0) == {
        **SECRETS, "group": "",
    }  # fmt: skip
    assert done.stdout.count("Do you accept this Permission? [No,Yes]") == 2
    head, row = done.stdout.splitlines()[-2:]
    assert head.split() == ["NAME", "PROVIDER", "READY", "MESSAGE", "AGE"]
    assert row.split()[:3] == [
        f"apiservicebinding.klutch.anynines.com/{scene.offer.name}", "False", "Pending",
    ]  # fmt: skip
    host = scene.plane.connection.server
    assert [line for line in done.stderr.splitlines() if line] == [
        "Sign in with your browser:",
        f"\t{provider.server.url}/authorize?c={asked['c']}&p={asked['p']}&s={asked['s']}",
        f"Signed in at {provider.server.url}/export",
        f"Created Secret klutch-bind/{name_of(secret)} for {host}, namespace {scene.space}",
        f"Requesting {scene.offer.name}",
        f"Created APIServiceBinding {scene.offer.name}",
    ]
    again = await provider.run("kubectl-bind", "--skip-konnector")
    assert again.code == 0, again.stderr
    assert "Do you accept" not in again.stdout
    assert f"APIServiceBinding {scene.offer.name} is there already" in again.stderr
    assert await provider.secrets() == [secret]
    assert uid_of(await scene.binding()) == uid_of(binding)
    assert len(await provider.requests()) == 2  # the name of the first is taken
    canaries(provider, done, again)


async def test_klutchctl_bind_waits_until_a_konnector_serves(provider):
    scene = provider.scene
    arguments = ["--claims", "required", "--konnector-image", IMAGE, "--no-browser"]
    async with scene.konnector():
        done = await provider.run("klutchctl", *arguments)
    assert done.code == 0, done.stderr
    assert f"{scene.offer.name} is Ready" in done.stderr
    assert "Shop Inc" in done.stdout
    deployment = await scene.in_app(refs.DEPLOYMENT, names.KONNECTOR)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    role = await scene.in_app(refs.CLUSTER_ROLE, names.KONNECTOR_CLUSTER_ROLE)
    bound = {
        (rule["apiGroups"][0], plural) for rule in role["rules"] for plural in rule["resources"]
    }
    assert {(scene.offer.group, "databases"), ("", "secrets")} <= bound
    assert ("*", "*") not in bound
    assert "may do everything" not in done.stderr
    canaries(provider, done)
    ref = Ref(scene.app.name, refs.CLUSTER_ROLE, "", names.KONNECTOR_CLUSTER_ROLE)
    await scene.app.cluster.merge_patch(ref, {"rules": [*rbac.FULL]}, manager="kubectl-bind")
    for rights, says in (("Minimal", 1), ("Full", 0)):
        wide = await provider.run("klutchctl", "--no-wait", "--konnector-rbac", rights)
        assert wide.code == 0, wide.stderr
        assert wide.stderr.count("may do everything in this cluster") == says
    await remove(scene.app, refs.DEPLOYMENT, BIND, names.KONNECTOR)
    await remove(scene.app, refs.SERVICE_ACCOUNT, BIND, names.KONNECTOR)
    for kind in (refs.CLUSTER_ROLE_BINDING, refs.CLUSTER_ROLE):
        await remove(scene.app, kind, "", names.KONNECTOR_CLUSTER_ROLE)


UNAGREED = [
    (["--skip-konnector"], "no\nyes\n", 6),
    (["--skip-konnector"], "yes\n", 6),
    (["--skip-konnector", "--claims", "all", "--resource", "queues.shop.example"], "", 6),
]
HOPELESS = [
    (["--identity", "env:TOKEN"], "sign-in with a browser only"),
    ([], "no konnector is there"),
]


async def test_without_consent_and_in_a_dry_run_nothing_is_written(provider):
    app = provider.scene.app
    mark = app.audit.mark()
    await what_nobody_agrees_to_ends(provider)
    await what_cannot_be_done_ends_before_anybody_signs_in(provider)
    await a_dry_run_prints_the_request(provider)
    assert app.audit.writes_since(mark, namespace=BIND) == []
    assert await provider.requests() == []
    assert await provider.secrets() == []


async def what_nobody_agrees_to_ends(provider):
    runs = [provider.run("klutchctl", *said, answers=text) for said, text, _ in UNAGREED]
    ends = await asyncio.gather(*runs)
    assert [end.code for end in ends] == [code for _, _, code in UNAGREED], ends
    both = ["--resource", provider.scene.offer.name, "--resource", "queues.shop.example"]
    two = await provider.run("klutchctl", "--skip-konnector", *both)
    assert (two.code, two.pages) == (6, (302, 200) * 2)
    said = [line for line in two.stderr.splitlines() if line and line[0] not in "\t "]
    assert said[:3] == [
        "Sign in with your browser:",
        f"Signed in at {provider.server.url}/export",
        "Agree to queues.shop.example in your browser, too:",
    ]


async def what_cannot_be_done_ends_before_anybody_signs_in(provider):
    provider.server.asked.clear()
    ends = await asyncio.gather(*(provider.run("klutchctl", *said) for said, _ in HOPELESS))
    for end, (_, problem) in zip(ends, HOPELESS, strict=True):
        assert (end.code, end.pages) == (3, ())
        assert problem in end.stderr
    assert provider.server.asked == []


async def a_dry_run_prints_the_request(provider):
    forms = [("klutchctl", "yaml"), ("kubectl-bind", "json")]
    runs = [provider.run(program, "--dry-run", "-o", form) for program, form in forms]
    for end, (_, form) in zip(await asyncio.gather(*runs), forms, strict=True):
        assert end.code == 0, end.stderr
        printed = yaml.safe_load(end.stdout)
        assert printed == request_of(provider.scene, [SECRETS, CONFIG_MAP])
        if form == "json":
            assert end.stdout == json.dumps(printed, indent=4) + "\n"
        assert "in a dry run, too" in end.stderr


async def test_a_credential_that_changed_is_refreshed_once_it_is_good(provider, tmp_path):
    """Anybody may claim the server, the CA and the space of another provider."""
    scene = provider.scene
    other = yaml.safe_load(provider.content)
    other["users"][0]["user"]["token"] = "old"
    stale = base64.b64encode(yaml.safe_dump(other).encode()).decode()
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kubeconfig-stale", "namespace": BIND},
        "data": {"kubeconfig": stale, "beside": "eA=="},
    }
    kept = await scene.app.cluster.create(made, refs.SECRET, manager="tests")
    file = tmp_path / "request.yaml"
    file.write_text(yaml.safe_dump(request_of(scene, [SECRETS])))
    remote = tmp_path / "remote.yaml"
    app = scene.app
    command = [
        "kubectl-bind", "apiservice", "-f", str(file), "--remote-kubeconfig", str(remote),
        "--no-banner", "--skip-konnector",
        "--kubeconfig", str(app.kubeconfig), "--context", app.context,
    ]  # fmt: skip
    run = partial(original_provider.run, *command, answers="y\n", environ=provider.environ)
    other["users"][0]["user"]["token"] = "another's"
    remote.write_text(yaml.safe_dump(other))
    refused = await run()
    assert refused.code == 1, refused.stderr
    assert await app.cluster.get(Ref(app.name, refs.SECRET, BIND, name_of(kept))) == kept
    remote.write_bytes(provider.content)
    done = await run()
    assert done.code == 0, done.stderr
    [secret] = await provider.secrets()
    assert name_of(secret) == "kubeconfig-stale"
    assert secret["data"]["beside"] == "eA=="
    again = await run()
    assert [line for line in again.stderr.splitlines() if line] == [
        f"Requesting {scene.offer.name}",
        f"APIServiceBinding {scene.offer.name} is there already; its claims are left as they are",
    ]
    assert get_text(await scene.binding(), "spec", "kubeconfigSecretRef", "name") == name_of(secret)


async def test_a_provider_that_is_away_is_no_defect(app_cluster: LiveCluster, tmp_path):
    where = ["--kubeconfig", str(app_cluster.kubeconfig), "--context", app_cluster.context]
    for url, code in (("https://127.0.0.1:9", 1), ("bind.example.org", 3)):
        done = await original_provider.run("klutchctl", "bind", url, *where, environ=os.environ)
        assert done.code == code, done.stderr
        assert "defect" not in done.stderr
