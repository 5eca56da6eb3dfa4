"""`klutchctl doctor` on real clusters, as an administrator; test_rights.py has the others."""

import json

import pytest

from reconciler.blueprints.policies import konnector
from reconciler.core.refs import ADMISSION_POLICY, ADMISSION_POLICY_BINDING
from reconciler.doctor.policies import in_force
from tests.support import programs, removal
from tests.support.fleet_texts import cluster, control_plane, document, one_file

FLEET = one_file(document("Fleet", "doctored", "{}"), control_plane(at="control-plane"))


def with_cluster(name, context, more=""):
    return one_file(FLEET, cluster(name, at=context, more=more))


@pytest.fixture
def doctor(control_plane, app_cluster, tmp_path):
    async def run(text: str, *arguments: str):
        (tmp_path / "fleet.yaml").write_text(text)
        kubeconfig = str(control_plane.kubeconfig)
        done = await programs.klutchctl_beside(
            "--kubeconfig", kubeconfig, "doctor", str(tmp_path), *arguments
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


async def test_an_administrator_lacks_nothing(doctor, control_plane):
    code, out = await doctor(with_cluster("shop", "app-1"), "-o", "json")
    clusters = json.loads(out)["clusters"]
    assert (code, [one["level"] for one in clusters]) == (0, ["ok", "ok"]), out
    for one in clusters:
        assert [finding["check"] for finding in one["findings"]] == [
            "connection",
            "clock",
            "crds",
            "rights",
        ]
        assert one["user"]
    assert clusters[0]["server"] == control_plane.connection.server


async def test_a_cluster_that_cannot_be_reached_spares_the_others(doctor):
    code, out = await doctor(one_file(with_cluster("away", "nowhere"), cluster(at="app-1")))
    assert code == 5
    assert "Cluster away  (context/nowhere)\n  problem  cannot be reached by context/nowhere" in out
    assert out.endswith("Doctor: 3 clusters, 1 problem, 0 warnings.\n")


async def test_missing_crds_come_with_the_command_that_installs_them(doctor):
    """The app cluster has one of Klutch's CRDs, so that it makes a poor control plane."""
    text = FLEET.replace("kubeconfigContext: control-plane", "kubeconfigContext: app-1")
    code, out = await doctor(text)
    assert code == 6
    assert "missing CRDs: apiserviceexportrequests.klutch.anynines.com, " in out
    assert "--print control-plane-crds | kubectl --context app-1 apply --server-side -f -" in out


async def test_a_suspended_cluster_is_left_alone(doctor):
    asleep = with_cluster("shop", "nowhere", ", suspend: {reason: x}")
    code, out = await doctor(asleep, "-o", "json")
    assert (code, [one["name"] for one in json.loads(out)["clusters"]]) == (0, ["eu"])


async def test_policies_count_as_an_api_server_keeps_them(app_cluster):
    policy, made = konnector(), []
    kinds = (ADMISSION_POLICY, ADMISSION_POLICY_BINDING)
    for kind, one in zip(kinds, policy.manifests(), strict=True):
        made.append(await app_cluster.cluster.apply(one, kind, manager="tests", force=True))
        await removal.remove_manifest(app_cluster.cluster, kind, one)
    assert in_force(policy, *made), made
