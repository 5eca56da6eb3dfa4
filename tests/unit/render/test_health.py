"""The rules of health, evaluated by CEL and Lua as Flux and Argo CD do: states of each kind."""

import json

import pytest
import yaml
from cel_expr_python import cel  # type: ignore[import-untyped]
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped]

from klutchctl import main
from klutchctl.render import health
from reconciler.core.keys import API_VERSION
from reconciler.core.manifest import get_text
from reconciler.kube import crds
from tests.pipelines.example import EXAMPLE

CLAIMED = ("PostgresqlInstance.anynines.com", "ServiceBinding.anynines.com", "*.shop.example")
CURRENT, IN_PROGRESS, FAILED = "Current", "InProgress", "Failed"
HEALTHY, PROGRESSING, DEGRADED, SUSPENDED = "Healthy", "Progressing", "Degraded", "Suspended"
WANTED, OTHER = "a" * 40, "b" * 40
ENV = cel.NewEnv(variables=dict.fromkeys(("metadata", "spec", "status"), cel.Type.DYN))


def printed(tool, *arguments):
    return yaml.safe_load(health.text(tool, arguments))


FLUX = {
    (one["apiVersion"].partition("/")[0], one.get("kind", "*")): one
    for one in printed("flux", *CLAIMED)["spec"]["healthCheckExprs"]
}
ARGO = yaml.safe_load(printed("argocd", *CLAIMED)["data"]["resource.customizations"])


def of_flux(live, exprs):
    """Return the status by Flux's evaluator: generations first, then each expression in order.

    An expression that cannot be evaluated ends the look, and is tried again until the timeout.
    """
    generation = live["metadata"]["generation"]
    if live.get("status", {}).get("observedGeneration", generation) != generation:
        return IN_PROGRESS
    for name, status in (("inProgress", IN_PROGRESS), ("failed", FAILED), ("current", CURRENT)):
        value = ENV.compile(exprs[name]).eval(data=live)
        if value.type() != cel.Type.BOOL:
            return f"error: {value.value()}"
        if value.value():
            return status
    return IN_PROGRESS


def of_argocd(live, rules):
    """Return the health by Argo CD, which decides itself about what is being deleted."""
    if "deletionTimestamp" in live["metadata"]:
        return PROGRESSING
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    for library in ("string", "table", "os", "math", "io", "debug", "package", "python"):
        lua.globals()[library] = None
    lua.globals()["obj"] = lua.table_from(json.loads(json.dumps(live)), recursive=True)
    found = lua.execute(rules["health.lua"])
    assert isinstance(found["message"], str)
    return found["status"]


def condition(kind, status, **more):
    return {"type": kind, "status": status, "message": "a sentence", **more}


READY, STALLED = condition("Ready", "True"), condition("Stalled", "True")
RECONCILING, UNREADY = condition("Reconciling", "True"), condition("Ready", "False")
UNKNOWN, SYNCED = condition("Ready", "Unknown"), condition("Synced", "True")
REVISION = {"annotations": {"klutchctl.dev/revision": WANTED}}


def live(*conditions, metadata=(), **status):
    return {
        "metadata": {
            "generation": 3,
            "managedFields": [{"manager": "kubectl"}, {"manager": "us", "subresource": "status"}],
            **dict(metadata),
        },
        "spec": {},
        "status": {"conditions": list(conditions), **status},
    }


def without_status():
    made = live(metadata={"managedFields": [{"manager": "kubectl"}]})
    del made["status"]
    return made


def empty():
    return {**live(), "status": {}}


GOING = {"deletionTimestamp": "2026-11-26T12:00:00Z"}
ALWAYS = {
    "without a status": (without_status(), IN_PROGRESS, PROGRESSING),
    "with an empty status": (empty(), IN_PROGRESS, PROGRESSING),
    "without a condition": (live(), IN_PROGRESS, PROGRESSING),
    "on its way": (live(UNKNOWN), IN_PROGRESS, PROGRESSING),
    "Ready": (live(READY), CURRENT, HEALTHY),
    "of an old generation": (live(READY, observedGeneration=2), IN_PROGRESS, PROGRESSING),
    "being deleted": (live(READY, metadata=GOING), IN_PROGRESS, PROGRESSING),
}
SUSPENDING = condition("Ready", "False", reason="Suspended")
FLEET = {
    "Ready for what it was asked for": (live(READY, observedGeneration=3), CURRENT, HEALTHY),
    "tried again": (live(UNREADY, RECONCILING), IN_PROGRESS, PROGRESSING),
    "held by a guard": (live(UNREADY, STALLED), FAILED, DEGRADED),
    "with a degraded unit": (live(UNREADY), IN_PROGRESS, DEGRADED),
    "suspended": (live(SUSPENDING), IN_PROGRESS, SUSPENDED),
    "Ready at another commit": (
        live(READY, metadata=REVISION, source={"revision": OTHER, "looked": {"revision": OTHER}}),
        CURRENT,  # by Flux through spec.files: it has no variable with the commit
        PROGRESSING,
    ),
    "Ready at the commit": (
        live(READY, metadata=REVISION, source={"revision": WANTED}),
        CURRENT,
        HEALTHY,
    ),
    "ahead of the sync": (
        live(READY, metadata=REVISION, source={"revision": OTHER}, history=[{"revision": WANTED}]),
        CURRENT,
        HEALTHY,
    ),
    "where the commit is refused": (
        live(
            UNREADY,
            STALLED,
            metadata=REVISION,
            source={"revision": OTHER, "looked": {"revision": WANTED}},
        ),
        FAILED,
        DEGRADED,
    ),
    "where another commit is refused": (
        live(UNREADY, STALLED, metadata=REVISION, source={"refused": OTHER}),
        FAILED,
        PROGRESSING,
    ),
}


def false(severity):
    return condition("Ready", "False", severity=severity)


BINDING = {
    "in error": (live(false("Error")), FAILED, DEGRADED),
    "False without a severity": (live(UNREADY), FAILED, DEGRADED),
    "with a warning": (live(false("Warning")), IN_PROGRESS, PROGRESSING),
    "waiting": (live(false("Info")), IN_PROGRESS, PROGRESSING),
    "with a phase before it is Ready": (live(phase="Pending"), IN_PROGRESS, PROGRESSING),
    "in phase Failed": (live(phase="Failed", terminalMessage="no"), FAILED, DEGRADED),
    "in phase Failed, and Ready": (live(READY, phase="Failed"), FAILED, DEGRADED),
    "in phase Succeeded": (live(READY, phase="Succeeded"), CURRENT, HEALTHY),
}


def managed(*conditions):
    return {"managed": {"conditions": list(conditions)}}


def at(generation):
    return condition("Ready", "True", observedGeneration=generation)


CLAIMS = {
    "not taken by the other side": (live(condition("Synced", "False")), FAILED, DEGRADED),
    "not taken before it was mended": (
        live(condition("Synced", "False", observedGeneration=2)),
        IN_PROGRESS,
        PROGRESSING,
    ),
    "Ready, and not taken": (live(READY, condition("Synced", "False")), FAILED, DEGRADED),
    "not Ready": (live(UNREADY, SYNCED), IN_PROGRESS, PROGRESSING),
    "Ready for its generation": (live(at(3), SYNCED), CURRENT, HEALTHY),
    "Ready for an old generation": (live(at(2), SYNCED), IN_PROGRESS, PROGRESSING),
    "Ready before the service exists": (live(READY, **managed(UNREADY)), IN_PROGRESS, PROGRESSING),
    "Ready, of which nothing is known": (live(READY, **managed()), IN_PROGRESS, PROGRESSING),
    "Ready, and so is the service": (live(READY, **managed(SYNCED, READY)), CURRENT, HEALTHY),
    "Ready, and the service has a state": (live(READY, managed={"state": "x"}), CURRENT, HEALTHY),
}
ROWS = {"fleet": FLEET, "binding": BINDING, "claim": CLAIMS}
TABLE = {
    f"a {one.kind} {state}": (one, *row)
    for one in (*health.OURS, *map(health.rule_of_claim, CLAIMED))
    for state, row in (ALWAYS | ROWS[one.name]).items()
}


@pytest.mark.parametrize(("rule", "live", "flux", "argocd"), TABLE.values(), ids=TABLE)
def test_both_believe(rule, live, flux, argocd):
    found = of_flux(live, FLUX[rule.group, rule.kind])
    # Without a status there is nothing to ask; Flux takes the error for "not yet".
    assert (found, of_argocd(live, ARGO[f"{rule.group}/{rule.kind}"])) == (flux, argocd)


def named(rule, live):
    """Return a whole object, for evaluators that ask which kind it is of; a rule may be of any."""
    kind = "Database" if rule.kind == health.EVERY else rule.kind
    whole = {"apiVersion": f"{rule.group}/{API_VERSION}", "kind": kind}
    return {**whole, **live, "metadata": {"name": "x", **live["metadata"]}}


def test_the_example_has_the_rule_of_a_fleet():
    *_, kustomization = yaml.safe_load_all((EXAMPLE / "flux-controller.yaml").read_text())
    assert (
        kustomization["spec"]["healthCheckExprs"] == printed("flux")["spec"]["healthCheckExprs"][:1]
    )


def test_there_are_ten_kinds_with_twelve_states_each():
    assert (len(FLUX), len(ARGO)) == (10, 10)
    assert all(len(ALWAYS | rows) >= 12 for rows in ROWS.values())


def test_kinds_are_those_of_the_crds():
    shipped = {
        (get_text(one, "spec", "group"), get_text(one, "spec", "names", "kind"))
        for one in crds.load(*crds.CONTROLLER, *crds.CONTROL_PLANE, *crds.BROKERS)
    }
    assert {(one.group, one.kind) for one in health.OURS} <= shipped


def test_a_group_of_claims_and_kinds_of_ours(capsys):
    ask = [
        "schema",
        "health",
        "--kind",
        "*.shop.example",
        "--kind",
        "ClusterBinding.klutch.anynines.com",
    ]
    assert main.run([*ask, "--for", "flux"]) == 0
    exprs = yaml.safe_load(capsys.readouterr().out)["spec"]["healthCheckExprs"]
    assert len(exprs) == len(health.OURS) + 1  # Flux refuses a kind that is there twice
    assert (exprs[-1]["apiVersion"], "kind" in exprs[-1]) == ("shop.example/v1", False)
    assert main.run([*ask, "--for", "argocd"]) == 0
    data = yaml.safe_load(capsys.readouterr().out)["data"]["resource.customizations"]
    assert [*yaml.safe_load(data)][-1] == "shop.example/*"


@pytest.mark.parametrize(
    "arguments",
    [
        ["health"],
        ["--for", "flux"],
        ["plan", "--kind", CLAIMED[0]],
        ["health", "--for", "helm"],
        ["health", "--for", "flux", "--kind", "Database"],
        ["health", "--for", "flux", "--kind", 'X."y:'],
    ],
)
def test_what_is_asked_for_makes_no_sense(arguments, capsys):
    assert main.run(["schema", *arguments]) == 64
    assert capsys.readouterr().out == ""
