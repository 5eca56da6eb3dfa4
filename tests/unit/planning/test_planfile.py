"""The plan file: what it keeps, what its id means, and every way in which one is refused."""

import json
from dataclasses import replace
from functools import partial

import pytest

from reconciler.core.decision import FieldChange
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.manifest import KNOWN_AFTER_APPLY
from reconciler.core.refs import CONFIG_MAP, SECRET, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning import planfile
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster

UNIT = UnitKey("shop", "anynines.com", "backups")
CHANGE = Change(
    cluster="shop",
    subject="db",
    ref=Ref("shop", CONFIG_MAP, "ns", "a"),
    action=Action.UPDATE,
    reason="differs",
    origin=Origin("fleet.yaml", 3, 1),
    unit=UNIT,
    fields=(FieldChange("/data/x", 1, 2),),
)
PLAN = planfile.identified(
    Plan(
        fleet="acme",
        revision="abc",
        digest="d1",
        changes=(CHANGE,),
        sections={"shop": "eu"},
        held=(Tripped("in-use", "3 instances exist"),),
        unseen=(UnseenCluster("edge", "timeout", "look"),),
        warnings=("a note",),
        clusters_total=2,
    )
)

SAME_ID = {
    "another reason why a cluster is unseen": replace(
        PLAN, unseen=(UnseenCluster("edge", "connection reset", ""),)
    )
}
OTHER_ID = {
    "another commit": replace(PLAN, revision="def+dirty"),
    "another repository": replace(PLAN, repository="/elsewhere"),
    "other files": replace(PLAN, digest="d2"),
    "another cluster unseen": replace(PLAN, unseen=(UnseenCluster("other", "timeout", "look"),)),
    "a change less": replace(PLAN, changes=()),
    "another action": replace(PLAN, changes=(replace(CHANGE, action=Action.ADOPT),)),
    "another live state": replace(PLAN, changes=(replace(CHANGE, before="0f"),)),
    "another value": replace(
        PLAN, changes=(replace(CHANGE, fields=(FieldChange("/data/x", 1, 3),)),)
    ),
    "another guard": replace(PLAN, held=()),
}


@pytest.mark.parametrize("plan", SAME_ID.values(), ids=SAME_ID.keys())
def test_same_id(plan):
    assert planfile.plan_id(plan) == PLAN.id


@pytest.mark.parametrize("plan", OTHER_ID.values(), ids=OTHER_ID.keys())
def test_another_id(plan):
    assert planfile.plan_id(plan) != PLAN.id


def test_why_a_unit_is_unknown_is_not_in_the_id():
    one, other = (
        replace(PLAN, changes=(replace(CHANGE, action=Action.UNKNOWN, reason=reason),))
        for reason in ("timeout", "connection reset")
    )
    assert planfile.plan_id(one) == planfile.plan_id(other)


def test_equal_plans_are_equal_files_in_whatever_order_their_maps_were_made():
    one = replace(PLAN, sections={"a": "eu", "b": "us"})
    assert planfile.dump(one) == planfile.dump(replace(PLAN, sections={"b": "us", "a": "eu"}))


def edited(**changes):
    return json.dumps({**json.loads(planfile.dump(PLAN)), **changes}).encode()


def with_change(*, without="", **changes):
    (change,) = json.loads(planfile.dump(PLAN))["changes"]
    change.pop(without, None)
    return edited(changes=[{**change, **changes}])


def test_a_later_minor_version_is_read_and_its_new_fields_are_ignored():
    document = json.loads(planfile.dump(PLAN))
    document["version"] = "1.7"
    document["waves"] = [1, 2]
    document["changes"][0]["cost"] = 7
    document["id"] = planfile._identity(document)  # as the later version computes it
    assert planfile.parse(json.dumps(document).encode(), "plan") == replace(PLAN, id=document["id"])


REFUSED = {
    "nothing": b"",
    "text": b"hello",
    "a second line": b'{"a":\n x}',
    "bytes": b"\xff\xfe",
    "NaN": b'{"a": NaN}',
    "an infinite number": b'{"a": 1e999}',
    "a huge number": b'{"a": ' + b"9" * 5_000 + b"}",
    "deep": b"[" * 100_000,
    "deep in a field": edited(sections="[0]").replace(b'"[0]"', b"[" * 99_999),
    "a list": b"[]",
    "another document": b'{"kind": "List"}',
    "no version": edited(version=None),
    "a version of another form": edited(version="1"),
    "a later major version": edited(version="2.0"),
    "an edited field": edited(fleet="other"),
    "an unknown field": edited(force=True),
    "another id": edited(id="0" * 32),
    "no id": edited(id=""),
    "a wrong type": edited(fleet=7),
    "a flag for a number": edited(clusters=True),
    "text for a number": edited(clusters="3"),
    "text for a flag": with_change(keepsData="true"),
    "a number for a flag": with_change(keepsData=1),
    "no list": edited(changes={}),
    "no object": edited(changes=[7]),
    "a missing object": with_change(without="ref"),
    "an unknown action": with_change(action="destroy"),
    "a verb of an older klutchctl": with_change(steps=[{"verb": "delete-copied"}]),
    "a key that acts": edited(sections={"\x1b[2J": 7}),
}


def test_refused(refusals):
    attempts = {name: partial(planfile.parse, content, "p") for name, content in REFUSED.items()}
    refusals("plans", attempts)


def test_a_cut_file_is_refused_wherever_it_is_cut():
    content = planfile.dump(PLAN)
    for end in range(0, len(content) - 2, 7):
        with pytest.raises(ConfigError):
            planfile.parse(content[:end], "p")


def secret(**fields):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, **fields}


APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
HELD_SECRET = replace(CHANGE, ref=Ref("shop", SECRET, "ns", "a"), fields=())
PLAIN = {
    "data": replace(CHANGE, after=secret(data={"token": "aHVudGVyMg=="})),
    "stringData": replace(CHANGE, after=secret(stringData={"token": "hunter2"})),
    "a value that is no text": replace(CHANGE, after=secret(data={"token": ["hunter2"]})),
    "in a list": replace(
        CHANGE, after={"kind": "List", "items": [secret(data={"token": "aHVudGVyMg=="})]}
    ),
    "kubectl's annotation": replace(
        CHANGE, after=secret(metadata={"annotations": {APPLIED: '{"data":"hunter2"}'}})
    ),
    "a difference of a value": replace(
        HELD_SECRET, fields=(FieldChange("/data/token", None, "aHVudGVyMg=="),)
    ),
    "what stood there before": replace(
        HELD_SECRET, fields=(FieldChange("/stringData/token", "hunter2", None),)
    ),
    "a difference of all values": replace(
        HELD_SECRET, fields=(FieldChange("/data", None, {"token": "aHVudGVyMg=="}),)
    ),
    "a fact that is no digest": replace(
        HELD_SECRET, fields=(FieldChange("/data/kubeconfig/token", "hunter2", None),)
    ),
    "a fact that nobody knows": replace(
        HELD_SECRET, fields=(FieldChange("/data/kubeconfig/password", "0123456789abcdef", None),)
    ),
    "a kubeconfig with its token": replace(
        CHANGE, after=secret(data={"kubeconfig": {"server": "https://a", "token": "hunter2"}})
    ),
    "a difference that is a whole Secret": replace(
        CHANGE, fields=(FieldChange("", None, secret(data={"token": "aHVudGVyMg=="})),)
    ),
}


@pytest.mark.parametrize("change", PLAIN.values(), ids=PLAIN.keys())
def test_the_value_of_a_secret_is_never_written(change):
    plan = replace(PLAN, changes=(change,))
    for write in (planfile.dump, planfile.plan_id, planfile.document):
        with pytest.raises(ValueError, match="not redacted") as caught:
            write(plan)
        assert "hunter2" not in str(caught.value)


REDACTED = {
    "digests": replace(HELD_SECRET, after=secret(data={"token": "0123456789abcdef"})),
    "known after apply": replace(HELD_SECRET, after=secret(data={"token": KNOWN_AFTER_APPLY})),
    "a difference of digests": replace(
        HELD_SECRET, fields=(FieldChange("/data/token", "0123456789abcdef", None),)
    ),
    "kubeconfig facts": replace(
        HELD_SECRET,
        after=secret(data={"kubeconfig": {"server": "https://a", "token": "0f" * 16, "ca": ""}}),
        fields=(
            FieldChange("/data/kubeconfig/server", "https://a", "https://b"),
            FieldChange("/data/kubeconfig/token", "0f" * 16, "1f" * 16),
        ),
    ),
    "no kubeconfig": replace(
        HELD_SECRET, fields=(FieldChange("/data/kubeconfig", "unusable", "a kubeconfig"),)
    ),
    "metadata of a Secret": replace(
        HELD_SECRET, fields=(FieldChange("/metadata/labels/a", None, "b"),)
    ),
    "data of another kind": replace(CHANGE, fields=(FieldChange("/data/a", "b", "c"),)),
}


@pytest.mark.parametrize("change", REDACTED.values(), ids=REDACTED.keys())
def test_what_is_redacted_is_written(change):
    plan = planfile.identified(replace(PLAN, changes=(change,)))
    assert planfile.parse(planfile.dump(plan), "p") == plan
