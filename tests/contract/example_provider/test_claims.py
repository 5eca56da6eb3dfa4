"""What users may write for the services of fleet-example, by the rules of a real API server.

Crossplane makes a CRD of each definition by adding its own fields; here that is done by hand.
"""

import uuid

import pytest
import pytest_asyncio
import yaml

from klutchctl.sandbox import manifests
from reconciler.core import manifest
from reconciler.core.errors import Rejected
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, Kind, Ref
from tests.support import removal
from tests.support.operated import SERVICES

GROUP = "claims.example.com"
NANO = {"service": "a9s-postgresql14", "plan": "postgresql-single-nano"}
A9S = {"compositionRef": {"name": "a9s-postgresql"}}
BIND = {"instanceRef": "orders", "serviceInstanceType": "postgresql"}
RESTORE = {**BIND, "backupRef": "nightly"}


def definitions():
    files = sorted((SERVICES / "crossplane").glob("*.yaml"))
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    return [one for one in documents if one["kind"] == "CompositeResourceDefinition"]


def crd_of(definition):
    claim = manifest.get_map(definition, "spec", "claimNames")
    (version,) = manifest.get_maps(definition, "spec", "versions")
    reference: Manifest = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 253}},
    }
    path = ("schema", "openAPIV3Schema", "properties", "spec", "properties", "compositionRef")
    served = {**manifest.put(version, reference, *path), "storage": True}
    del served["referenceable"]
    plural = manifest.get_text(claim, "plural")
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"plural": plural, "kind": manifest.get_text(claim, "kind")},
            "scope": "Namespaced",
            "versions": [served],
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(control_plane):
    made = [crd_of(one) for one in definitions()]
    await manifests.install_all(control_plane.cluster, made)
    yield control_plane.cluster
    for one in made:
        await removal.remove_manifest(control_plane.cluster, CRD, one)


def claim_of(kind, spec, namespace="default"):
    served = Kind(GROUP, "v1", kind, f"{kind.lower()}s")
    metadata = {"name": f"test-{uuid.uuid4().hex[:8]}", "namespace": namespace}
    return served, {
        "apiVersion": served.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


VALID = {
    "the smallest": ("PostgresqlInstance", NANO),
    "the biggest": (
        "PostgresqlInstance",
        {**NANO, "plan": "postgresql-replica-big", "expose": "LoadBalancer"},
    ),
    "parameters that nobody knows": (
        "PostgresqlInstance",
        {**NANO, "parameters": {"deletionPolicy": "Retain", "maxConnections": 5}},
    ),
    "a plan with TLS of the other composition": (
        "PostgresqlInstance",
        {**A9S, "service": "a9s-postgresql17", "plan": "postgresql-single-big-ssl"},
    ),
    "an old plan of the old service": (
        "PostgresqlInstance",
        {**A9S, "service": "a9s-postgresql13", "plan": "postgresql-replica-small-ssl-bionic"},
    ),
    "credentials": ("ServiceBinding", BIND),
    "credentials of another composition": (
        "ServiceBinding",
        {
            "instanceRef": "cache",
            "serviceInstanceType": "keyvalue",
            "compositionRef": {"name": "a9s-servicebinding"},
        },
    ),
    "a backup": ("Backup", BIND),
    "a restore": ("Restore", RESTORE),
    "a restore of another composition, which needs no instance": (
        "Restore",
        {
            "backupRef": "nightly",
            "serviceInstanceType": "postgresql",
            "compositionRef": {"name": "a9s-restore"},
        },
    ),
}
INVALID = {
    "no plan": ("PostgresqlInstance", {"service": "a9s-postgresql14"}, "spec.plan"),
    "a service of the other composition": (
        "PostgresqlInstance",
        {**NANO, "service": "a9s-postgresql15"},
        "Unsupported service",
    ),
    "a service that the other composition has no more": (
        "PostgresqlInstance",
        {**NANO, **A9S},
        "Unsupported service",
    ),
    "a plan of the other composition": (
        "PostgresqlInstance",
        {**NANO, "plan": "postgresql-single-nano-ssl"},
        "Unsupported plan",
    ),
    "a plan that the other composition has not": (
        "PostgresqlInstance",
        {**A9S, "service": "a9s-postgresql15", "plan": "postgresql-replica-nano"},
        "Unsupported plan",
    ),
    "an old plan of a new service": (
        "PostgresqlInstance",
        {**A9S, "service": "a9s-postgresql15", "plan": "postgresql-single-nano-bionic"},
        "-bionic",
    ),
    "a place that there is not": ("PostgresqlInstance", {**NANO, "expose": "World"}, "expose"),
    "a place for the other composition": (
        "PostgresqlInstance",
        {**A9S, "service": "a9s-postgresql15", "plan": NANO["plan"], "expose": "Internal"},
        "expose is not supported",
    ),
    "a policy that there is not": (
        "PostgresqlInstance",
        {**NANO, "parameters": {"deletionPolicy": "Whenever"}},
        "deletionPolicy",
    ),
    "credentials of a service that is not offered": (
        "ServiceBinding",
        {**BIND, "serviceInstanceType": "keyvalue"},
        "Only postgresql",
    ),
    "credentials of a service that there is not": (
        "ServiceBinding",
        {**BIND, "serviceInstanceType": "redis"},
        "serviceInstanceType",
    ),
    "a backup of nothing": ("Backup", {"serviceInstanceType": "postgresql"}, "instanceRef"),
    "a restore into nothing": (
        "Restore",
        {"backupRef": "nightly", "serviceInstanceType": "postgresql"},
        "instanceRef is required",
    ),
}


@pytest.mark.parametrize(("kind", "spec"), VALID.values(), ids=VALID.keys())
async def test_it_may_be_written(cluster, kind, spec):
    served, claim = claim_of(kind, spec)
    await cluster.create(claim, served, manager="tests", dry_run=True)


@pytest.mark.parametrize(("kind", "spec", "why"), INVALID.values(), ids=INVALID.keys())
async def test_it_may_not_be_written(cluster, kind, spec, why):
    served, claim = claim_of(kind, spec)
    with pytest.raises(Rejected, match=why):
        await cluster.create(claim, served, manager="tests", dry_run=True)


def plans(before, after):
    return {**NANO, "plan": before}, {"plan": after}


def secured(before, after):
    return {**A9S, "service": "a9s-postgresql13", "plan": before}, {"plan": after}


CHANGES = {
    "a plan grows": (*plans("postgresql-single-nano", "postgresql-single-medium"), ""),
    "and is replicated": (*plans("postgresql-single-small", "postgresql-replica-small"), ""),
    "and does not shrink to nano": (
        *plans("postgresql-single-small", "postgresql-single-nano"),
        "smaller",
    ),
    "nor to small": (*plans("postgresql-single-medium", "postgresql-single-small"), "smaller"),
    "nor by two": (*plans("postgresql-single-big", "postgresql-single-small"), "smaller"),
    "nor to medium": (*plans("postgresql-single-big", "postgresql-single-medium"), "smaller"),
    "nor lose its replicas": (
        *plans("postgresql-replica-small", "postgresql-single-medium"),
        "single",
    ),
    "nor get TLS": (*secured("postgresql-single-small", "postgresql-single-small-ssl"), "-ssl"),
    "nor lose it": (*secured("postgresql-single-small-ssl", "postgresql-single-small"), "-ssl"),
    "nor become an old one": (
        *secured("postgresql-single-small", "postgresql-single-small-bionic"),
        "-bionic",
    ),
    "a service stays": (NANO, {"service": "a9s-postgresql13"}, "Service is an immutable field"),
    "a policy may change": (NANO, {"parameters": {"deletionPolicy": "Retain"}}, ""),
}


@pytest.mark.parametrize(("spec", "change", "why"), CHANGES.values(), ids=CHANGES.keys())
async def test_what_may_change(cluster, namespace, spec, change, why):
    served, claim = claim_of("PostgresqlInstance", spec, namespace)
    live = await cluster.create(claim, served, manager="tests")
    ref = Ref(cluster.name, served, namespace, manifest.name_of(live))
    patch = {"metadata": {"uid": manifest.uid_of(live)}, "spec": change}
    if not why:
        await cluster.merge_patch(ref, patch, manager="tests", dry_run=True)
        return
    with pytest.raises(Rejected, match=why):
        await cluster.merge_patch(ref, patch, manager="tests", dry_run=True)
