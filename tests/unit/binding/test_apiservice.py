"""The request and the kubeconfig of `kubectl bind apiservice`, as they are read (D.4)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from klutchctl.binding import response
from klutchctl.binding.apiservice import Source
from klutchctl.binding.errors import BadAnswer
from reconciler.core.errors import ConfigError, KlutchError
from tests.support import binding_objects as objects

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]"
# Each is one that a constructor of PyYAML answers by an error of its own, or by what has no end.
ODD = [
    "a: !!bool foo",
    'a: !!int ""',
    'a: !!float ""',
    "a: !!timestamp foo",
    "a: &x [*x]",
    "a: &x {b: *x}",
    BOMB,
    "a: " + "[" * 100 + "]" * 100,
    "a: [",
    "a: \x07",
    "- a",
    "a: 1\n---\na: 2",
]


def source(folder: Path, manifest: str = "", kubeconfig: str = "", namespace: str = "") -> Source:
    (folder / "request.yaml").write_text(manifest)
    (folder / "kubeconfig").write_text(kubeconfig)
    return Source(
        str(folder / "request.yaml"), "", folder / "kubeconfig", ("", ""), namespace=namespace
    )


async def requested(folder: Path, manifest: str) -> Any:
    nothing: Any = None
    return await source(folder, manifest).request(nothing)


async def moved(folder: Path, kubeconfig: str) -> bytes:
    nothing: Any = None
    return await source(folder, kubeconfig=kubeconfig, namespace="elsewhere").content(nothing)


@pytest.mark.parametrize("text", ["", "# nothing\n", "just text", *ODD])
async def test_what_is_no_plain_manifest_is_refused_by_its_place(tmp_path, text):
    with pytest.raises(KlutchError) as caught:
        await requested(tmp_path, text)
    if text in ODD:
        assert isinstance(caught.value, ConfigError)
        assert caught.value.where.startswith(f"{tmp_path}/request.yaml")


@pytest.mark.parametrize("text", ["just text", *ODD])
async def test_a_kubeconfig_is_read_as_plainly_before_its_namespace_changes(tmp_path, text):
    with pytest.raises(BadAnswer, match="kubeconfig"):
        await moved(tmp_path, text)


async def test_a_request_has_the_values_that_kubectl_reads(tmp_path):
    request = objects.document()["requests"][0]
    assert await requested(tmp_path, yaml.safe_dump(request)) == request
    text = yaml.safe_dump({key: request[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    text += "  since: 2026-01-02T03:04:05Z\n  at: 12:30:45\n  count: 3\n  flags: [yes, false]\n"
    spec = response.export_request(await requested(tmp_path, text))["spec"]
    assert spec == request["spec"] | {
        "since": "2026-01-02T03:04:05Z", "at": "12:30:45", "count": 3, "flags": [True, False],
    }  # fmt: skip


async def test_only_the_namespace_of_the_current_context_changes(tmp_path):
    before = objects.kubeconfig()
    found = await moved(tmp_path, before)
    assert found.decode().count("elsewhere") == 1
    remote = response.remote_of(found)
    assert (remote.namespace, remote.server) == (
        "elsewhere",
        response.remote_of(before.encode()).server,
    )
    assert yaml.safe_load(found.replace(b"elsewhere", objects.SPACE.encode())) == yaml.safe_load(
        before
    )
