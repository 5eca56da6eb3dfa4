"""What a real API server says of generated CRDs, and of objects of their kinds."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import aiohttp
import pytest

from reconciler.api import kind_of
from reconciler.api.osb import BrokerSpec, generated_kind
from reconciler.blueprints.objects import build
from reconciler.blueprints.offering.catalogue import Catalogue, catalogue_of
from reconciler.blueprints.offering.files import Output, files_of
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from tests.support.eventually import eventually
from tests.support.random_catalogues import Catalogues
from tests.support.raw import http_session

SOAK: Final = pytest.mark.soak
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DRY: Final = {"dryRun": "All", "fieldValidation": "Strict"}


def files(catalogue: Catalogue, group: str) -> Output:
    broker = BrokerSpec(name="acme", group=group)
    return files_of(broker, catalogue, None, allow_narrowing=False)


def crds_of(output: Output) -> Iterator[Manifest]:
    return (one[0] for path, one in output.files.items() if path.startswith("crds/"))


@pytest.fixture
async def server(control_plane) -> AsyncIterator[aiohttp.ClientSession]:
    async with http_session(control_plane.connection) as session:
        yield session


async def post(
    server: aiohttp.ClientSession, path: str, body: Manifest, **query: str
) -> tuple[int, str]:
    """Return status and text of the answer, or its warnings, if there are any."""
    async with server.post(path, params=query, json=body) as answer:
        warnings = answer.headers.getall("Warning", [])
        return answer.status, "; ".join(warnings) or ("" if answer.ok else await answer.text())


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=SOAK) for n in range(3, 300))])
async def test_a_server_takes_the_crds_of_any_catalogue_without_a_warning(server, seed):
    document = json.dumps(Catalogues(seed).catalogue()).encode()
    for crd in crds_of(files(catalogue_of(document), "any.catalogue.example")):
        status, said = await post(server, _CRDS, crd, **_DRY)
        assert (status, said) == (201, ""), f"{said}\n{json.dumps(crd)}"


async def create(server: aiohttp.ClientSession, output: Output) -> None:
    """Make the CRDs, and wait until their kinds are served."""
    for crd in crds_of(output):
        assert await post(server, _CRDS, crd) == (201, "")
    await asyncio.gather(
        *(eventually(partial(is_served, server, kind(crd))) for crd in crds_of(output))
    )


def kind(crd: Manifest) -> Kind:
    return kind_of(crd, "v1")


async def is_served(server: aiohttp.ClientSession, kind: Kind) -> bool:
    async with server.get(f"/apis/{kind.api_version}/{kind.plural}") as answer:
        return answer.ok


@dataclass(frozen=True, slots=True)
class Claims:
    """Objects of a kind in a namespace; all writes are dry runs, unless they are to stay."""

    server: aiohttp.ClientSession
    kind: Kind
    namespace: str

    async def create(
        self, spec: Manifest, *, name: str = "one", stays: bool = False
    ) -> tuple[int, str]:
        body = build(self.kind, name, namespace=self.namespace, spec=spec)
        more = {} if stays else {"dryRun": "All"}
        path = f"/apis/{self.kind.api_version}/namespaces/{self.namespace}/{self.kind.plural}"
        return await post(self.server, path, body, fieldValidation="Ignore", **more)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SOAK) for n in range(1, 60))])
async def test_a_kind_takes_what_the_schema_of_a_plan_takes(server, namespace, seed):
    random_ = Catalogues(seed)
    catalogue = catalogue_of(json.dumps(random_.catalogue()).encode())
    output = files(catalogue, f"s{seed}.taken.example")
    await create(server, output)
    for crd in crds_of(output):
        generated = generated_kind(crd)
        offering = catalogue.offering(generated.offering)
        claims = Claims(server, generated.kind, namespace)
        for plan in offering.plans:
            schema = plan.schemas.bind if generated.is_binding else plan.schemas.create
            if generated.is_binding and not plan.bindable:
                continue
            for parameters in random_.fitting(schema, tries=12):
                head = {"instanceRef": "one"} if generated.is_binding else {"plan": plan.name}
                answer = await claims.create({**head, "parameters": parameters})
                assert answer == (201, ""), f"{answer[1]}\n{json.dumps(schema)}\n{parameters}"
