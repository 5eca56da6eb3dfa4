"""What is sent to a broker: paths, queries and bodies, to the letter."""

import base64
import json

import pytest

from reconciler.blueprints.offering import messages
from reconciler.core.secret import Secret

CONTEXT = {"platform": "kubernetes", "namespace": "shop", "clusterid": "c1"}
PROVISION = messages.Provision("i1", "s1", "p1", "org", "space", CONTEXT, {"size": 1}, "2.1.1")
UPDATE = messages.Update(
    "i1", "s1", "p2", messages.Previous("p1", "org", "space", "2.1.0"), {"size": 2}, CONTEXT
)
UPGRADE = messages.Update(
    "i1", "s1", "p1", messages.Previous("p1", maintenance="2.1.0"), maintenance="2.1.1"
)
BIND = messages.Bind("i1", "b1", "s1", "p1", "app", CONTEXT, {"ro": True})
ROTATE = messages.Bind("i1", "b2", "s1", "p1", "app", CONTEXT, {"ro": True}, predecessor="b1")
IDS = "service_id=s1&plan_id=p1"
OPERATION = messages.LastOperation("i1", "s1", "p1", Secret("task 7/&?"))


def body_of(call, version="2.17"):
    body = messages.http_request(call, api_version=version).body
    return None if body is None else json.loads(body)


# Sentence: the call, method, path, body.
WIRE = {
    "the catalogue": (messages.ReadCatalogue(), "GET", "/v2/catalog", None),
    "an instance is made": (
        PROVISION,
        "PUT",
        "/v2/service_instances/i1?accepts_incomplete=true",
        {
            "service_id": "s1",
            "plan_id": "p1",
            "organization_guid": "org",
            "space_guid": "space",
            "context": CONTEXT,
            "parameters": {"size": 1},
            "maintenance_info": {"version": "2.1.1"},
        },
    ),
    "an instance without parameters": (
        messages.Provision("i1", "s1", "p1", "org", "space"),
        "PUT",
        "/v2/service_instances/i1?accepts_incomplete=true",
        {"service_id": "s1", "plan_id": "p1", "organization_guid": "org", "space_guid": "space"},
    ),
    "an instance changes plan and parameters": (
        UPDATE,
        "PATCH",
        "/v2/service_instances/i1?accepts_incomplete=true",
        {
            "service_id": "s1",
            "plan_id": "p2",
            "context": CONTEXT,
            "parameters": {"size": 2},
            "previous_values": {
                "service_id": "s1",
                "plan_id": "p1",
                "organization_id": "org",
                "space_id": "space",
                "maintenance_info": {"version": "2.1.0"},
            },
        },
    ),
    "an instance is upgraded": (
        UPGRADE,
        "PATCH",
        "/v2/service_instances/i1?accepts_incomplete=true",
        {
            "service_id": "s1",
            "plan_id": "p1",
            "maintenance_info": {"version": "2.1.1"},
            "previous_values": {
                "service_id": "s1",
                "plan_id": "p1",
                "maintenance_info": {"version": "2.1.0"},
            },
        },
    ),
    "the parameters become none": (
        messages.Update("i1", "s1", "p1", messages.Previous("p1"), parameters={}),
        "PATCH",
        "/v2/service_instances/i1?accepts_incomplete=true",
        {
            "service_id": "s1",
            "plan_id": "p1",
            "parameters": {},
            "previous_values": {"service_id": "s1", "plan_id": "p1"},
        },
    ),
    "an instance is deleted": (
        messages.Deprovision("i1", "s1", "p1"),
        "DELETE",
        f"/v2/service_instances/i1?{IDS}&accepts_incomplete=true",
        None,
    ),
    "an instance is read": (
        messages.FetchInstance("i1", "s1", "p1"),
        "GET",
        f"/v2/service_instances/i1?{IDS}",
        None,
    ),
    "a binding is made": (
        BIND,
        "PUT",
        "/v2/service_instances/i1/service_bindings/b1?accepts_incomplete=true",
        {
            "service_id": "s1",
            "plan_id": "p1",
            "bind_resource": {"app_guid": "app"},
            "context": CONTEXT,
            "parameters": {"ro": True},
        },
    ),
    "a binding takes the place of another": (
        ROTATE,
        "PUT",
        "/v2/service_instances/i1/service_bindings/b2?accepts_incomplete=true",
        {"service_id": "s1", "plan_id": "p1", "context": CONTEXT, "predecessor_binding_id": "b1"},
    ),
    "a binding is deleted": (
        messages.Unbind("i1", "b1", "s1", "p1"),
        "DELETE",
        f"/v2/service_instances/i1/service_bindings/b1?{IDS}&accepts_incomplete=true",
        None,
    ),
    "a binding is read": (
        messages.FetchBinding("i1", "b1", "s1", "p1"),
        "GET",
        f"/v2/service_instances/i1/service_bindings/b1?{IDS}",
        None,
    ),
    "an operation is asked for by its key": (
        OPERATION,
        "GET",
        f"/v2/service_instances/i1/last_operation?{IDS}&operation=task%207%2F%26%3F",
        None,
    ),
    "an operation without a key": (
        messages.LastOperation("i1", "s1", "p1"),
        "GET",
        f"/v2/service_instances/i1/last_operation?{IDS}",
        None,
    ),
    "an operation of a binding": (
        messages.LastOperation("i1", "s1", "p1", None, "b1"),
        "GET",
        f"/v2/service_instances/i1/service_bindings/b1/last_operation?{IDS}",
        None,
    ),
    "ids with characters of their own": (
        messages.Unbind("i/1", "b?1", "s&1", "p 1"),
        "DELETE",
        "/v2/service_instances/i%2F1/service_bindings/b%3F1"
        "?service_id=s%261&plan_id=p%201&accepts_incomplete=true",
        None,
    ),
}


@pytest.mark.parametrize(("call", "method", "path", "body"), WIRE.values(), ids=WIRE)
def test_on_the_wire(call, method, path, body):
    sent = messages.http_request(call, api_version="2.17")
    assert (sent.method, sent.path) == (method, path)
    assert body_of(call) == body


# Sentence: the call, the version, what of the body is absent, what is there.
OLDER = {
    "no rotation in 2.16": (ROTATE, "2.16", "predecessor_binding_id", "context"),
    "no version of maintenance in 2.14": (PROVISION, "2.14", "maintenance_info", "context"),
    "nor to a new one": (UPGRADE, "2.14", "maintenance_info", "previous_values"),
    "no context of a binding in 2.12": (BIND, "2.12", "context", "parameters"),
    "no context of an instance in 2.11": (PROVISION, "2.11", "context", "parameters"),
    "nor of its update": (UPDATE, "2.11", "context", "parameters"),
}


@pytest.mark.parametrize(("call", "version", "absent", "there"), OLDER.values(), ids=OLDER)
def test_newer_fields_are_not_sent(call, version, absent, there):
    major, minor = version.split(".")
    newer = body_of(call, f"{major}.{int(minor) + 1}")
    older = body_of(call, version)
    assert absent in newer
    assert absent not in older
    assert there in older


@pytest.mark.parametrize(
    "call",
    [messages.FetchInstance("i1", "s1", "p1"), messages.FetchBinding("i1", "b1", "s1", "p1")],
)
def test_reads_name_service_and_plan_from_2_16_on(call):
    assert "?" in messages.http_request(call, api_version="2.16").path
    assert "?" not in messages.http_request(call, api_version="2.15").path


@pytest.mark.parametrize("identity", ["", ".", ".."])
def test_an_id_never_leads_to_another_path(identity):
    calls = (
        messages.Deprovision(identity, "s1", "p1"),
        messages.Unbind("i1", identity, "s1", "p1"),
        messages.LastOperation(identity, "s1", "p1"),
    )
    for call in calls:
        with pytest.raises(ValueError, match="leads out of its path"):
            messages.http_request(call, api_version="2.17")


@pytest.mark.parametrize("version", ["", "2", "3.0", "2.", "2.x", "v2.17", "2.²", "2.17.1"])
def test_no_version(version):
    with pytest.raises(ValueError, match=r"such as 2\.17"):
        messages.version_of(version)


def test_the_originating_identity_is_a_platform_and_an_object():
    value = {"username": "system:serviceaccount:space:konnector", "groups": ["a"]}
    platform, _, text = messages.OriginatingIdentity(value).header().partition(" ")
    assert platform == "kubernetes"
    assert json.loads(base64.b64decode(text)) == value


def test_neither_operation_nor_parameters_are_shown():
    shown = [repr(OPERATION)]
    shown += [
        repr(messages.http_request(call, api_version="2.17")) for call in (OPERATION, PROVISION)
    ]
    assert not any("task" in text or "size" in text for text in shown)
