"""The front door of two replicas, before a provider that lies on cue and beside another."""

import secrets

import pytest

from tests.support.browsers import PUBLIC
from tests.support.doors import TEAM, doors
from tests.support.issuer import issuing
from tests.support.issuer_lies import Lies
from tests.support.offers import offered


@pytest.fixture(scope="module")
def providers():
    with issuing() as provider, issuing() as other:
        other.rotate("ES256")  # else it shares its key with the first
        for one in (provider, other):
            one.audience = PUBLIC
        yield provider, other


@pytest.fixture(scope="module")
async def backend(control_plane, tmp_path_factory, providers):
    folder = tmp_path_factory.mktemp("door")
    async with doors(control_plane, folder, *providers) as made:
        yield made


@pytest.fixture(scope="module")
async def offer(control_plane, backend):
    async with offered(control_plane.cluster, namespace=backend.namespace) as offer:
        yield offer


@pytest.fixture(scope="module")
async def cluster_wide(control_plane, backend):
    place = {"namespace": backend.namespace, "scope": "Cluster"}
    async with offered(control_plane.cluster, **place) as offer:
        yield offer


@pytest.fixture(scope="module")
async def door(backend, offer, cluster_wide):
    return await backend.start()


@pytest.fixture(scope="module")
async def second(backend, door):
    return await backend.start()


@pytest.fixture
def provider(providers):
    provider, _ = providers
    provider.lies = Lies()
    provider.sign_in_as(f"user-{secrets.token_hex(4)}", groups=[TEAM])
    return provider


@pytest.fixture
def other(providers):
    return providers[1]


@pytest.fixture
def browser(backend):
    return backend.client()
