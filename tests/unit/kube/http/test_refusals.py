"""T25: a refusal names the field and the rule, and quotes nothing of what was sent."""

import pytest

from reconciler.core.refs import Kind, Ref
from reconciler.kube.http.failures import failure
from reconciler.kube.requests import Request

CANARY = "hunter2canary"
HEAD = 'Database.shop.example "db" is invalid'
SERVICE = Ref("app-1", Kind("shop.example", "v1", "Database", "databases"), "team-a", "db")

CAUSES = {
    "text": (
        f'Invalid value: "{CANARY}": spec.a in body should match "^[0-9]+$"',
        'spec.a: Invalid value: spec.a in body should match "^[0-9]+$"',
    ),
    "text with quotes": (
        rf'Invalid value: "\"{CANARY}\": must": must be a number',
        "spec.a: Invalid value: must be a number",
    ),
    "a word that is none of those": (
        f'Unsupported value: "{CANARY}": supported values: "small", "large"',
        'spec.a: Unsupported value: supported values: "small", "large"',
    ),
    "twice": (f'Duplicate value: "{CANARY}"', "spec.a: Duplicate value"),
    "a number": (
        "Invalid value: 31337: must be at most 5",
        "spec.a: Invalid value: must be at most 5",
    ),
    "an object": (
        f'Invalid value: {{"p":"{CANARY}","q":[": x"]}}: the value is immutable',
        "spec.a: Invalid value: the value is immutable",
    ),
    "a value of Go": (
        f'Invalid value: map[string]interface {{}}{{"p":"{CANARY}"}}: it is immutable',
        "spec.a: Invalid value",
    ),
    "a list of Go": (
        f'Invalid value: []v1.Item{{{{Name:"{CANARY}"}}}}: no',
        "spec.a: Invalid value",
    ),
    "a pointer of Go": (f'Invalid value: &v1.Item{{Name:"{CANARY}"}}: no', "spec.a: Invalid value"),
    "text without its end": (f'Invalid value: "{CANARY}', "spec.a: Invalid value"),
    "a rule of a CRD, which quotes no value": (
        "Invalid value: a plan (small, large) is set once",
        "spec.a: Invalid value: a plan (small, large) is set once",
    ),
    "the value in the rule as well": (
        f'Invalid value: "{CANARY}": {CANARY} is no size',
        "spec.a: Invalid value: <redacted> is no size",
    ),
    "what is required": ("Required value: a size", "spec.a: Required value: a size"),
    "what is forbidden": ("Forbidden: it is set once", "spec.a: Forbidden: it is set once"),
}


def refused(message, causes, status=422, reason="Invalid"):
    answer = {"kind": "Status", "message": message, "reason": reason}
    if causes:
        answer["details"] = {"causes": causes}
    request = Request("create", SERVICE, "POST", "/x", b"{}")
    return failure(request, status=status, answer=answer)


@pytest.mark.parametrize(("said", "want"), CAUSES.values(), ids=CAUSES.keys())
def test_a_cause(said, want):
    error = refused(f"{HEAD}: spec.a: {said}", [{"field": "spec.a", "message": said}])
    assert error.message == f"{HEAD}: {want}"
    assert CANARY not in str(error)


def test_several_causes():
    causes = [
        {"field": "spec.a", "message": f'Invalid value: "{CANARY}": one'},
        {"field": "spec.b", "message": "Required value"},
        {"field": "<nil>", "message": f'Invalid value: "{CANARY}": two'},
    ]
    assert refused(f"{HEAD}: [{CANARY}]", causes).message == (
        f"{HEAD}: spec.a: Invalid value: one; spec.b: Required value; Invalid value: two"
    )


WITHOUT = {
    "a sentence alone": (
        f'{HEAD}: spec.a: Invalid value: "{CANARY}": must be short',
        f"{HEAD}: spec.a: Invalid value: <redacted>: must be short",
    ),
    "another type": (
        f'.spec.a: expected numeric, got &value.valueUnstructured{{Value:"{CANARY}"}}',
        ".spec.a: expected numeric, got something else",
    ),
    "what stands around a mistake": (
        f'v1.X.Spec: expects {{, error found in #10 byte of ...|"p":"{CANARY}"|...',
        "v1.X.Spec: expects {",
    ),
}


@pytest.mark.parametrize(("said", "want"), WITHOUT.values(), ids=WITHOUT.keys())
@pytest.mark.parametrize(("status", "reason"), [(422, "Invalid"), (400, "BadRequest"), (500, "")])
def test_without_causes(said, want, status, reason):
    assert refused(said, [], status, reason).message == want
