"""What a real API server says of generated CRDs, and of objects of their kinds."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiohttp
import pytest

from klutchctl import main
from reconciler.api.osb import BrokerSpec, GeneratedKind, generated_kind
from reconciler.blueprints.objects import build
from reconciler.blueprints.offering.catalogue import Catalogue, Offering, catalogue_of
from reconciler.blueprints.offering.files import Output, files_of
from reconciler.core.manifest import Manifest
from tests.support.eventually import eventually
from tests.support.offerings import plan, service
from tests.support.osb_script import scripted
from tests.support.random_catalogues import Catalogues
from tests.support.raw import http_session

_DRAFT_4: Final = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}
_SOAK: Final = pytest.mark.soak
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DRY: Final = {"dryRun": "All", "fieldValidation": "Strict"}
_BROKER: Final = """\
apiVersion: osb.klutchctl.dev/v1alpha1
kind: ServiceBroker
metadata: {name: acme}
spec: {group: asked.example, secretRef: {name: acme}}
"""


# Flat, strict, with texts for numbers: of a cloud's templates.
_CLOUD: Final = {
    **_DRAFT_4,
    "required": ["AccessCidr", "DBName"],
    "additionalProperties": False,
    "properties": {
        "AccessCidr": {
            "type": "string",
            "pattern": r"^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})$",
            "description": "CIDR block to allow to connect to database",
        },
        "DBName": {"type": "string", "minLength": 1, "pattern": "^[a-zA-Z][a-zA-Z0-9_]{0,62}$"},
        "MultiAZ": {"type": "string", "enum": ["true", "false"], "default": "true"},
        "AllocatedStorageAndIops": {
            "type": "string",
            "enum": ["100GB NONE", "300GB 1000IOPS", "600GB 3000IOPS"],
            "default": "100GB NONE",
        },
        "MasterUserPassword": {
            **{"type": "string", "title": "Password"},
            **{"default": "", "display": {"type": "password"}},
        },
        "BackupRetentionPeriod": {"type": "integer", "minimum": 0, "maximum": 35},
        "PreferredMaintenanceWindowDay": {"type": "string", "enum": ["Mon", "Tue", "Wed"]},
    },
}
# Nested, with alternatives by a discriminator and form hints: of a platform's schema service.
_PLATFORM: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "_show_form_view": True,
    "_controlsOrder": ["data"],
    "required": ["data"],
    "properties": {
        "data": {
            "type": "object",
            "required": ["edition", "memory"],
            "properties": {
                "edition": {"type": "string", "enum": ["cloud", "relational"]},
                "memory": {"type": "integer", "minimum": 16, "multipleOf": 15},
                "systempassword": {
                    "type": "string", "minLength": 8, "pattern": "(?=.*[A-Z])(?=.*[0-9]).*",
                },
                "whitelistIPs": {
                    "type": "array", "uniqueItems": True,
                    "items": {"anyOf": [{"format": "ipv4"}, {"pattern": "^.*/[0-9]+$"}]},
                },
                "dataLake": {
                    "oneOf": [
                        {"$ref": "#/definitions/none"}, {"$ref": "#/definitions/lake"},
                    ]
                },
            },
            "if": {"properties": {"edition": {"const": "cloud"}}},
            "then": {"properties": {"scriptserver": {"type": "string"}}},
        }
    },
    "definitions": {
        "none": {"properties": {"enabled": {"const": False}}, "additionalProperties": False},
        "lake": {
            "properties": {
                "enabled": {"const": True},
                "workers": {"type": ["integer", "null"], "exclusiveMinimum": 0},
                "parts": {"type": "array", "items": {"$ref": "#/definitions/lake"}},
            },
            "required": ["enabled"],
        },
    },
}  # fmt: skip
# Many options of a server, by dotted and dashed names: of data services.
_SERVER: Final[dict[str, Any]] = {
    "$schema": "http://json-schema.org/draft-06/schema#",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_connections": {"type": "integer", "minimum": 0, "maximum": 1000},
        "maxmemory-policy": {"type": "string", "enum": ["noeviction", "allkeys-lru"]},
        "notify.keyspace.events": {"type": "string", "maxLength": 11},
        "custom conf": {"type": ["string", "integer", "boolean"]},
        "wal_writer_delay": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "client_min_messages": {"type": ["string", "null"], "enum": ["error", "log", None]},
        "install_plugins": {"type": "array", "items": [{"type": "string"}, {"type": "object"}]},
        "cluster": {
            "type": "object",
            "patternProperties": {"^[a-z]+$": {"type": "object", "required": ["size"]}},
            "additionalProperties": False,
        },
    },
}
_CHANGES: Final = {
    **_SERVER,
    "properties": {
        key: value for key, value in _SERVER["properties"].items() if key != "install_plugins"
    },
}
_PLUGINS: Final = {"type": "object", "properties": {"privileges": {"type": "string"}}}
SERVICES: Final = (
    service(
        plan("production", _CLOUD, _CLOUD, bindable=True),
        plan("dev", {**_CLOUD, "required": ["AccessCidr"]}),
        plan("custom"),
        name="rds-mysql",
    ),
    service(
        plan("hana", _PLATFORM, _PLATFORM), plan("hana-td", {"type": "object"}), name="hana.Cloud"
    ),
    service(
        plan("redis-single-nano", _SERVER, _CHANGES, _PLUGINS),
        plan("redis-replica-big", _SERVER, _CHANGES, _PLUGINS, plan_updateable=True),
        plan("redis dedicated/large", {}, {}, {}),
        name="a9s-redis 50",
    ),
    service(plan("default"), name="no schemas", bindable=False),
)
GIVEN: Final[dict[tuple[str, str], list[Any]]] = {
    ("rds-mysql", "production"): [
        {"AccessCidr": "10.0.0.0/8", "DBName": "o", "MultiAZ": "false", "MasterUserPassword": ""}
    ],
    ("rds-mysql", "custom"): [{"Anything": {"else": [1, None]}}],
    ("hana.Cloud", "hana"): [
        {"data": {"edition": "cloud", "memory": 30, "dataLake": {"enabled": False}}},
        {"data": {
            "edition": "cloud", "memory": 45, "scriptserver": "on", "whitelistIPs": ["10.0.0.0/8"],
            "systempassword": "Passw0rd",
            "dataLake": {"enabled": True, "workers": None, "parts": [{"enabled": True}]},
        }},
    ],
    ("a9s-redis 50", "redis-replica-big"): [
        {
            "max_connections": 20, "maxmemory-policy": "allkeys-lru", "custom conf": True,
            "notify.keyspace.events": "KEA", "wal_writer_delay": "200ms",
            "client_min_messages": None, "install_plugins": ["x", {"y": 1}],
            "cluster": {"eu": {"size": 3}},
        }
    ],
    ("a9s-redis 50", "redis dedicated/large"): [{"max_connections": 5}, {"other": 1}],
}  # fmt: skip


def read(document: Any) -> Catalogue:
    return catalogue_of(json.dumps(document).encode())


def files(catalogue: Catalogue, group: str) -> Output:
    return files_of(BrokerSpec("acme", group=group), catalogue, {}, allow_narrowing=False)


def crds_of(output: Output) -> Iterator[Manifest]:
    return (one[0] for path, one in output.files.items() if path.startswith("crds/"))


@pytest.fixture
async def server(control_plane) -> AsyncIterator[aiohttp.ClientSession]:
    async with http_session(control_plane.connection) as session:
        yield session


async def verdict(request: Any) -> str:
    """Return what a server warns of, or why it refuses; "" where all is well."""
    async with request as answer:
        warnings = "; ".join(answer.headers.getall("Warning", []))
        return warnings or ("" if answer.ok else await answer.text())


@dataclass(frozen=True, slots=True)
class Claims:
    """Objects of a generated kind in a namespace. All writes but the first are dry runs."""

    server: aiohttp.ClientSession
    of: GeneratedKind
    namespace: str
    offering: Offering

    @property
    def path(self) -> str:
        kind = self.of.kind
        return f"/apis/{kind.api_version}/namespaces/{self.namespace}/{kind.plural}"

    async def is_served(self) -> bool:
        async with self.server.get(self.path) as answer:
            return answer.ok

    async def create(self, spec: Any, *, name: str = "one", stays: bool = False) -> str:
        body = build(self.of.kind, name, namespace=self.namespace, spec=spec)
        query = {"fieldValidation": "Ignore"} | ({} if stays else {"dryRun": "All"})
        return await verdict(self.server.post(self.path, params=query, json=body))

    async def change(self, spec: Any, *, name: str = "one") -> str:
        head = {"Content-Type": "application/merge-patch+json"}
        body, query = json.dumps({"spec": spec}), {"dryRun": "All"}
        path = f"{self.path}/{name}"
        return await verdict(self.server.patch(path, params=query, data=body, headers=head))


async def served(
    server: aiohttp.ClientSession, catalogue: Catalogue, group: str, namespace: str
) -> list[Claims]:
    """Make the CRDs of a catalogue, and wait until their kinds are served."""
    found = []
    for crd in crds_of(files(catalogue, group)):
        assert await verdict(server.post(_CRDS, json=crd)) == ""
        generated = generated_kind(crd)
        assert generated is not None
        offering = catalogue.offering(generated.offering)
        assert offering is not None
        found.append(Claims(server, generated, namespace, offering))
    await asyncio.gather(*(eventually(partial(Claims.is_served, one)) for one in found))
    return found


def seeds(few: int, many: int) -> list[Any]:
    return [*range(few), *(pytest.param(seed, marks=_SOAK) for seed in range(few, many))]


@pytest.mark.parametrize("seed", seeds(4, 200))
async def test_a_server_takes_the_crds_of_any_catalogue_without_a_warning(server, seed):
    for crd in crds_of(files(read(Catalogues(seed).catalogue()), "any.catalogue.example")):
        said = await verdict(server.post(_CRDS, params=_DRY, json=crd))
        assert said == "", f"{said}\n{json.dumps(crd)}"


@pytest.mark.parametrize("seed", seeds(1, 60))
async def test_a_kind_takes_what_the_schema_of_a_plan_takes(server, namespace, seed):
    random = Catalogues(seed)
    catalogue = read(random.catalogue())
    for claims in await served(server, catalogue, f"s{seed}.taken.example", namespace):
        binds = claims.of.is_binding
        for one in claims.offering.plans:
            schema = one.schemas.bind if binds else one.schemas.create
            head = {"instanceRef": "one"} if binds else {"plan": one.name}
            if one.name not in claims.of.plans:
                continue
            for parameters in random.fitting(schema, tries=12):
                said = await claims.create({**head, "parameters": parameters})
                assert said == "", f"{said}\n{json.dumps(schema)}\n{json.dumps(parameters)}"


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def number(**more: Any) -> dict[str, Any]:
    return {"type": "integer", **more}


SIZED: Final = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": number(maximum=5),
        "region": text(),
        "engine": text(enum=["a", "b"]),
        "disk-type": {"type": "object", "properties": {"fast.io": {"type": "boolean"}}},
    },
}
CHANGES: Final = {"properties": {"size": number(maximum=5)}}
DATABASES: Final = service(
    plan("small", SIZED, CHANGES, bind={"properties": {"role": text()}}),
    plan("big", SIZED, CHANGES, bind={"properties": {"role": text()}}, plan_updateable=True),
)
# What is wanted of an instance, and a part of the reason why it is refused, "" where it is not.
NEW: Final[dict[str, tuple[Any, str]]] = {
    "all that the plans ask for": ({"plan": "small", "parameters": {"size": 5}}, ""),
    "no plan": ({"parameters": {"size": 1}}, "spec.plan: Required"),
    "an unknown plan": ({"plan": "huge", "parameters": {"size": 1}}, "Unsupported value"),
    "no parameters where one is required": ({"plan": "big"}, "spec.parameters: Required"),
    "a required one is missing": ({"plan": "big", "parameters": {}}, "size: Required"),
    "a bound": ({"plan": "big", "parameters": {"size": 6}}, "should be less than or equal to 5"),
    "a value": (
        {"plan": "big", "parameters": {"size": 1, "engine": "c"}}, "Unsupported value",
    ),
    "another type": ({"plan": "big", "parameters": {"size": "1"}}, "must be of type integer"),
}  # fmt: skip
OLD: Final = {"plan": "small", "parameters": {"size": 2, "region": "eu"}}
CHANGED: Final[dict[str, tuple[Any, str]]] = {
    "what may be changed": ({"parameters": {"size": 3}}, ""),
    "what was only said for creating": ({"parameters": {"region": "us"}}, "region cannot be"),
    "a plan that its instances stay in": ({"plan": "big"}, "an instance of plan small stays"),
}


async def test_what_all_plans_refuse_is_refused(server, namespace):
    kinds = await served(server, read({"services": [DATABASES]}), "refused.example", namespace)
    bindings, instances = sorted(kinds, key=lambda one: not one.of.is_binding)
    for title, (spec, part) in NEW.items():
        said = await instances.create(spec)
        assert (part in said, bool(said)) == (True, bool(part)), f"{title}: {said}"
    one = {"plan": "big", "parameters": {"size": 1}}
    assert "63 characters" in await instances.create(one, name="x" * 64)
    assert await instances.create(OLD, stays=True) == ""
    for title, (spec, part) in CHANGED.items():
        said = await instances.change(spec)
        assert (part in said, bool(said)) == (True, bool(part)), f"{title}: {said}"
    assert await instances.create({**OLD, "plan": "big"}, name="two", stays=True) == ""
    assert await instances.change({"plan": "small"}, name="two") == ""

    bound: dict[str, Any] = {
        "instanceRef": "one",
        "parameters": {"role": "reader"},
        "secretName": "creds",
    }
    assert await bindings.create(bound, stays=True) == ""
    assert await bindings.change({"rotation": {"request": "1", "overlap": "1h"}}) == ""
    assert "247 characters" in await bindings.create(bound, name="x" * 248)
    for spec in (
        {"instanceRef": "two"}, {"secretName": "others"}, {"secretName": None},
        {"parameters": {"role": "writer"}}, {"parameters": None},
    ):  # fmt: skip
        assert "immutable" in await bindings.change(spec), spec


def nested(levels: int) -> Any:
    inner = nested(levels - 1) if levels else text()
    return {"type": "object", "properties": {"a": inner, "b": text(enum=["b"])}}


MANY: Final = {f"option{one}": text() for one in range(400)}
WIDE: Final = {
    "parameters that cannot be changed": [
        plan("small", {"type": "object", "properties": MANY}, {"properties": {"more": text()}})
    ],
    "many levels": [plan("small", nested(20)), plan("big", nested(20))],
    "bindings with much": [plan("small", bind={"properties": MANY | {"n": nested(20)}})],
}


@pytest.mark.parametrize("plans", WIDE.values(), ids=WIDE)
async def test_a_server_takes_rules_on_much(server, plans):
    for crd in crds_of(files(read({"services": [service(*plans)]}), "many.example")):
        assert await verdict(server.post(_CRDS, params=_DRY, json=crd)) == ""


async def test_offerings_in_the_styles_of_known_brokers_take_what_people_give_them(
    server, namespace
):
    kinds = await served(server, read({"services": SERVICES}), "styles.example", namespace)
    for crd in crds_of(files(read({"services": SERVICES}), "strict.example")):
        assert await verdict(server.post(_CRDS, params=_DRY, json=crd)) == ""
    of = {one.offering.name: one for one in kinds if not one.of.is_binding}
    for (offering, name), given in GIVEN.items():
        for parameters in given:
            said = await of[offering].create({"plan": name, "parameters": parameters})
            assert said == "", f"{offering}, {name}: {said}"


async def test_a_catalogue_that_is_asked_for_gives_the_files_of_a_saved_one(tmp_path, capsys):
    document = {"services": [DATABASES]}
    (tmp_path / "saved.json").write_text(json.dumps(document))
    with scripted(document) as broker:
        (tmp_path / "keys.yaml").write_text(json.dumps({
            "url": broker.url, "username": broker.user, "password": broker.password,
        }))  # fmt: skip
        (tmp_path / "broker.yaml").write_text(_BROKER)
        command = ["catalog", str(tmp_path / "broker.yaml")]
        asked = [*command, "--credentials", str(tmp_path / "keys.yaml")]
        assert await asyncio.to_thread(main.run, asked) == 0
        assert main.run([*command, "--catalog", str(tmp_path / "saved.json"), "--check"]) == 0
        (tmp_path / "keys.yaml").write_text(json.dumps({
            "url": broker.url, "username": broker.user, "password": "wr0ng",
        }))  # fmt: skip
        assert await asyncio.to_thread(main.run, asked) == 1
    said = capsys.readouterr()
    assert broker.password not in said.out + said.err
    assert "wr0ng" not in said.out + said.err
