"""Offerings in the styles of well-known brokers, and parameters that people give them."""

from typing import Any, Final

from tests.support.offerings import plan, service

_DRAFT_4: Final = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}


def _secret(words: str) -> dict[str, Any]:
    return {"type": "string", "title": words, "default": "", "display": {"type": "password"}}


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
        "MasterUserPassword": _secret("Password"),
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
