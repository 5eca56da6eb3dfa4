"""The Helm charts: they give what kustomize gives, change what values say, and take over."""

import copy
import json
import re
import shlex
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import konnector
from reconciler.core.manifest import name_of
from reconciler.core.refs import CLUSTER_ROLE, CRD, DEPLOYMENT, NAMESPACE, SERVICE_ACCOUNT, Ref
from tests.release import archives
from tests.support import deployed, helm, removal
from tests.support.books import ROOT
from tests.support.helm import BACKEND, CHARTS, CONTROLLER, KONNECTOR

# The first of them builds Helm, where no earlier run did.
pytestmark = pytest.mark.timeout(1_800)

MINIMAL = Path(konnector.__file__).parent / "deploy" / "minimal"
KEEP = {"helm.sh/resource-policy": "keep"}
# Each with its values, and the folders of kustomize that give the same.
SAME: dict[str, tuple[Path, dict[str, Any], list[Path]]] = {
    "the backend": (BACKEND, {}, [deployed.FOLDER]),
    "AppClusterBindings": (
        BACKEND,
        {"controlPlaneMode": {"enabled": True}},
        [deployed.CONTROL_PLANE_MODE],
    ),
    "one tenant": (BACKEND, {"consumerScope": "Cluster"}, [deployed.CLUSTER_SCOPE]),
    "the front door": (BACKEND, {"door": {"enabled": True}}, [deployed.FRONT_DOOR]),
    "brokers": (BACKEND, {"osb": {"enabled": True}}, [deployed.FOLDER, deployed.OSB]),
    "brokers in place of provider-anynines": (
        BACKEND,
        {"osb": {"enabled": True, "dataservices": True}},
        [deployed.FOLDER, deployed.DATASERVICES],
    ),
    "the konnector": (KONNECTOR, {}, [MINIMAL]),
    "the konnector with all rights": (KONNECTOR, {"rbac": "Full"}, [MINIMAL.parent / "full"]),
    "the controller": (CONTROLLER, {}, [CONTROLLER.parent / "controller"]),
    "the controller, monitored": (
        CONTROLLER,
        {"monitoring": {"enabled": True}},
        [CONTROLLER.parent / "controller", CONTROLLER.parent / "monitoring"],
    ),
}


def chart_ids(chart):
    return chart.parents[1].name


def identity(one: Any) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def comparable(one: Any) -> Any:
    """Return an object with its arguments sorted: their order matters to nobody."""
    one = copy.deepcopy(one)
    if one["kind"] == DEPLOYMENT.kind:
        for container in one["spec"]["template"]["spec"]["containers"]:
            container["args"] = sorted(container["args"])
    if one["kind"] == NAMESPACE.kind:
        assert one["metadata"]["annotations"].pop(*KEEP, "keep") == "keep"
    return one


def by_kustomize(folder: Path) -> list[Any]:
    made = deployed.built(folder)
    for one in made:
        if one["kind"] == DEPLOYMENT.kind:
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container["image"] = image_of(folder, container["image"])
    return made


def image_of(folder: Path, name: str) -> str:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for one in kustomization.get("images", ()):
        if one["name"] == name:
            return f"{one['newName']}:{one['newTag']}"
    (base,) = [one for one in kustomization["resources"] if one.startswith("../")]
    return image_of((folder / base).resolve(), name)


@pytest.mark.parametrize("case", SAME)
def test_a_chart_gives_the_objects_that_kustomize_gives(case, tmp_path):
    chart, values, folders = SAME[case]
    made = [
        one
        for one in helm.rendered(tmp_path, chart, values)
        if one["kind"] not in (CRD.kind, "ConfigMap")
    ]
    wanted = [one for folder in folders for one in by_kustomize(folder)]
    assert {identity(one): comparable(one) for one in made} == {
        identity(one): comparable(one) for one in wanted
    }
    assert len(made) == len(wanted)


OF_BROKERS = {"brokerrecords.osb.klutchctl.dev", "servicebrokers.osb.klutchctl.dev"}
CRDS = {
    "the backend": {
        path.stem
        for path in (ROOT / "schemas" / "crds").glob("*.yaml")
        if path.stem not in {*OF_BROKERS, "fleetstatuses.fleet.klutchctl.dev"}
    },
    "brokers": OF_BROKERS,
    "brokers in place of provider-anynines": {
        path.stem for path in (ROOT / "schemas" / "dataservices").glob("*.yaml")
    },
    "the konnector": {"apiservicebindings.klutch.anynines.com"},
    "the controller": {"fleetstatuses.fleet.klutchctl.dev"},
}


@pytest.mark.parametrize("case", CRDS)
def test_crds_are_those_of_schemas_and_stay(case, tmp_path):
    chart, values, _ = SAME[case]
    made = [one for one in helm.rendered(tmp_path, chart, values) if one["kind"] == CRD.kind]
    assert {name_of(one) for one in made} >= CRDS[case]
    for one in made:
        files = [*(ROOT / "schemas").rglob(f"{name_of(one)}.yaml")]
        (wanted,) = [yaml.safe_load(file.read_text()) for file in files]
        assert one["metadata"]["annotations"].items() >= KEEP.items()
        wanted["metadata"].setdefault("annotations", {}).update(KEEP)
        assert one == wanted
    none = helm.rendered(tmp_path, chart, {**values, "crds": False})
    assert not [one for one in none if one["kind"] == CRD.kind]


def test_dashboards_are_whole(tmp_path):
    values = {"monitoring": {"enabled": True, "dashboardLabels": {"grafana": "yes"}}}
    made = [
        one for one in helm.rendered(tmp_path, CONTROLLER, values) if one["kind"] == "ConfigMap"
    ]
    files = {
        file.name: file.read_text()
        for file in (CONTROLLER.parent / "monitoring" / "dashboards").glob("*.json")
    }
    assert {name: text for one in made for name, text in one["data"].items()} == files
    assert {one["metadata"]["labels"]["grafana"] for one in made} == {"yes"}


@pytest.mark.parametrize("chart", CHARTS, ids=chart_ids)
def test_a_chart_is_well_made(chart, tmp_path):
    given = helm.given(tmp_path, chart)
    assert "0 chart(s) failed" in helm.helm(tmp_path, "lint", "--strict", str(chart), given)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert f'\nversion = "{about["version"]}"\n' in (ROOT / "pyproject.toml").read_text()
    assert about["appVersion"] == about["version"]
    packed = helm.helm(tmp_path, "package", str(chart), "--destination", str(tmp_path))
    by_helm = Path(packed.strip().rpartition(" ")[2])
    ours = tmp_path / "release.tgz"
    archives.pack(ours, archives.files_below(chart, about["name"]), epoch=0, gzipped=True)
    assert members(ours) == members(by_helm)
    plain = helm.helm(tmp_path, "template", "x", str(chart), given)
    packs = [helm.helm(tmp_path, "template", "x", str(one), given) for one in (by_helm, ours)]
    assert packs == [plain] * 2


def members(archive: Path) -> dict[str, Any]:
    """Return the files of a packed chart: helm writes its own form of what Chart.yaml says."""
    with tarfile.open(archive) as tar:
        opened = {one.name: tar.extractfile(one) for one in tar}
        read = {name: file.read() for name, file in opened.items() if file is not None}
    about = {name: yaml.safe_load(text) for name, text in read.items() if "Chart.yaml" in name}
    return {**read, **about}


@pytest.mark.parametrize("chart", CHARTS, ids=chart_ids)
def test_every_value_is_in_the_schema(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    assert {*schema["properties"]} == {*values, "global"}
    for name, value in values.items():
        if isinstance(value, dict) and "properties" in schema["properties"][name]:
            assert {*schema["properties"][name]["properties"]} == {*value}


REFUSED = {
    "a name that there is not": (KONNECTOR, ["replica=3"], "replica"),
    "another mode": (KONNECTOR, ["rbac=minimal"], "rbac"),
    "a digest that is none": (KONNECTOR, ["image.digest=latest"], "digest"),
    "a flag with its dashes": (BACKEND, ["options.--qps=3"], "--qps"),
    "a provider without TLS": (BACKEND, ["door.issuerURL=http://login"], "issuerURL"),
    "a folder as repository": (CONTROLLER, ["fleet.git=/srv/fleet"], "git"),
    "no number of replicas": (KONNECTOR, ["replicas=null"], "replicas"),
    "no word on policies": (BACKEND, ["admissionPolicies=null"], "admissionPolicies"),
    "a port that is none": (BACKEND, ["networkPolicy.egressPorts={0}"], "egressPorts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_are_refused(case, tmp_path):
    chart, given, named = REFUSED[case]
    settings = [f"--set={one}" for one in given]
    done = helm.run(tmp_path, "template", "release", str(chart), *settings)
    assert done.returncode != 0
    assert named in done.stderr


# What each chart asks for, and the values by which it is asked.
MISSING: dict[str, tuple[Path, list[str], list[str]]] = {
    "the konnector": (KONNECTOR, [], ["image.repository"]),
    "the backend": (BACKEND, [], ["image.repository"]),
    "the controller": (CONTROLLER, [], ["fleet.git", "fleet.name", "image.repository", "trust"]),
    "a controller that verifies nothing": (
        CONTROLLER,
        ["verify=off"],
        ["fleet.git", "fleet.name", "image.repository"],
    ),
    "AppClusterBindings": (
        BACKEND,
        ["controlPlaneMode.enabled=true", "image.repository=x"],
        ["controlPlaneMode.konnectorImage"],
    ),
    "the front door": (
        BACKEND,
        ["door.enabled=true", "image.repository=x"],
        ["door.externalAddress", "door.host", "door.issuerURL", "door.konnectorImage"],
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_only_an_operator_knows_is_asked_for_at_once(case, tmp_path):
    chart, values, asked = MISSING[case]
    done = helm.run(tmp_path, "template", "x", str(chart), *(f"--set={one}" for one in values))
    assert done.returncode != 0
    (sentence,) = re.findall(r"the chart needs values for:(.*)", done.stderr, re.DOTALL)
    assert re.findall(r"^  ([\w.]+): \S", sentence, re.MULTILINE) == asked


@pytest.mark.parametrize("chart", CHARTS, ids=chart_ids)
def test_the_commands_of_its_readme_and_of_the_first_hour_are_enough(chart, tmp_path):
    readme = helm.helm(tmp_path, "show", "readme", str(chart))
    text = readme + (ROOT / "klutchctl/docs/start/production.md").read_text()
    commands = re.findall(r"^helm upgrade --install (.*?[^\\])\n", text, re.M | re.S)
    given = [shlex.split(one.replace("\\\n", " ")) for one in commands]
    own = [one for one in given if ROOT / one[1] == chart]
    assert len(own) == 2
    for name, _, *more in own:
        notes = helm.helm(tmp_path, "install", "--dry-run=client", name, str(chart), *more)
        assert "\nNOTES:\n" in notes


NAMED: dict[str, tuple[Path, dict[str, Any], set[str]]] = {
    "the controller": (
        CONTROLLER,
        {"secrets": {"kubeconfig": "mine-kube", "git": "mine-git"}, "trust": "mine-trust"},
        {"mine-kube", "mine-git", "mine-trust"},
    ),
    "the front door": (
        BACKEND,
        {"door": {"enabled": True, "clientSecret": "mine-oidc", "tlsSecret": "mine-tls"}},
        {"mine-oidc", "mine-tls"},
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_secrets_have_the_names_that_values_give_and_notes_say_how_to_make_them(case, tmp_path):
    chart, values, names = NAMED[case]
    made = helm.rendered(tmp_path, chart, values)
    pod = deployed.only(DEPLOYMENT, made)["spec"]["template"]["spec"]
    sources = [one.get("secret") or one.get("configMap") or {} for one in pod["volumes"]]
    assert {one.get("secretName") or one.get("name") for one in sources} - {None} == names
    for ingress in (one for one in made if one["kind"] == deployed.INGRESS.kind):
        assert [one["secretName"] for one in ingress["spec"]["tls"]] == ["mine-tls"]
    more = f"--values={helm.written(tmp_path / 'more.yaml', values)}"
    way = ["--dry-run=client", helm.given(tmp_path, chart), more]
    notes = helm.helm(tmp_path, "install", "x", str(chart), *way).partition("NOTES:")[2]
    assert {*re.findall(r"create (?:secret (?:generic|tls)|configmap) (\S+)", notes)} == names


def test_a_controller_that_verifies_nothing_starts_without_keys(tmp_path):
    made = helm.rendered(tmp_path, CONTROLLER, {"verify": "off", "trust": ""})
    volumes = deployed.only(DEPLOYMENT, made)["spec"]["template"]["spec"]["volumes"]
    (trust,) = [one for one in volumes if one["name"] == "trust"]
    assert trust["configMap"]["optional"]


def test_a_controller_that_follows_flux_needs_neither_git_nor_keys(tmp_path):
    values = {"fleet": {"flux": "flux-system/fleet", "git": ""}, "trust": ""}
    pod = deployed.only(DEPLOYMENT, helm.rendered(tmp_path, CONTROLLER, values))["spec"]["template"]
    args = pod["spec"]["containers"][0]["args"]
    assert "--flux-source=flux-system/fleet" in args
    given = {one.partition("=")[0] for one in args}
    assert given.isdisjoint({"--git", "--ref", "--verify", "--allowed-signers"})
    sources = {
        one["name"]: one.get("secret") or one.get("configMap") for one in pod["spec"]["volumes"]
    }
    assert [sources[one]["optional"] for one in ("git", "trust")] == [True, True]


WORKLOAD: dict[str, Any] = {
    "replicas": 3,
    "resources": {"limits": {"memory": "1Gi"}},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d", "app": "ours-stays"},
    "podSecurityContext": {"runAsNonRoot": True},
    "serviceAccountAnnotations": {"e": "f"},
    "nodeSelector": {"g": "h"},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "high",
    "image": {"repository": "r.example/x", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
    "options": {
        "logging-format": None,
        "qps": 7,
        "bytes": 2_097_152,
        "verbose": True,
        "quiet": False,
        "many": ["a", 2],
    },
}


def test_values_change_the_workload(tmp_path):
    (plain,), made = (
        [deployed.only(DEPLOYMENT, helm.rendered(tmp_path, KONNECTOR, {}))],
        helm.rendered(tmp_path, KONNECTOR, WORKLOAD),
    )
    spec = deployed.only(DEPLOYMENT, made)["spec"]
    pod, metadata = spec["template"]["spec"], spec["template"]["metadata"]
    (container,) = pod["containers"]
    (before,) = plain["spec"]["template"]["spec"]["containers"]
    assert spec["replicas"] == 3
    assert container["image"] == "r.example/x@sha256:" + "0" * 64
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == WORKLOAD["resources"]
    assert container["env"] == [*before["env"], *WORKLOAD["env"]]
    kept = [one for one in before["args"] if not one.startswith("--logging-format=")]
    assert container["args"] == [
        *kept,
        "--bytes=2097152",
        "--many=a",
        "--many=2",
        "--qps=7",
        "--verbose",
    ]
    assert metadata["annotations"] == WORKLOAD["podAnnotations"]
    # The selector still selects it.
    assert metadata["labels"] == {"app": "konnector", "c": "d"}
    for key in ("nodeSelector", "tolerations", "priorityClassName"):
        assert pod[key] == WORKLOAD[key]
    assert pod["securityContext"] == WORKLOAD["podSecurityContext"]
    account = deployed.only(SERVICE_ACCOUNT, made)
    assert account["metadata"]["annotations"] == WORKLOAD["serviceAccountAnnotations"]


def test_values_change_rights_ports_and_what_is_made_at_all(tmp_path):
    rules = [{"apiGroups": ["acme.example"], "resources": ["lamps"], "verbs": ["get"]}]
    values = {
        "services": rules,
        "replicas": 1,
        "namespace": False,
        "admissionPolicies": False,
        "networkPolicy": {"egressPorts": [16443]},
    }
    made = helm.rendered(tmp_path, BACKEND, values)
    assert deployed.only(CLUSTER_ROLE, made, name=deployed.SERVICES)["rules"] == rules
    (egress,) = deployed.only(deployed.NETWORK_POLICY, made)["spec"]["egress"]
    assert [one["port"] for one in egress["ports"]] == [53, 53, 16443]
    left = {one["kind"] for one in by_kustomize(deployed.FOLDER)} - {one["kind"] for one in made}
    # A budget of one for one replica would hold up every drain.
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert left == {"Namespace", "PodDisruptionBudget", *policies}
    without = helm.rendered(tmp_path, BACKEND, {"networkPolicy": {"enabled": False}})
    assert not [one for one in without if one["kind"] == "NetworkPolicy"]


def test_the_front_door_is_where_values_say(tmp_path):
    door = {
        "enabled": True,
        "host": "bind.acme.example",
        "ingressClassName": "traefik",
        "issuerURL": "https://login.acme.example",
        "clientID": "us",
        "cliClientID": "cli",
        "externalAddress": "https://api.acme.example",
    }
    made = helm.rendered(tmp_path, BACKEND, {"door": door})
    ingress = deployed.only(deployed.INGRESS, made)["spec"]
    assert ingress["ingressClassName"] == "traefik"
    assert [one["host"] for one in ingress["rules"]] == [door["host"]]
    assert [one["hosts"] for one in ingress["tls"]] == [[door["host"]]]
    (container,) = deployed.only(DEPLOYMENT, made)["spec"]["template"]["spec"]["containers"]
    assert {
        "--oidc-callback-url=https://bind.acme.example/callback",
        "--oidc-issuer-url=https://login.acme.example",
        "--oidc-issuer-client-id=us",
        "--cli-client-id=cli",
        "--external-address=https://api.acme.example",
    } <= {*container["args"]}


def test_an_option_that_is_null_takes_away_one_that_another_value_gives(tmp_path):
    made = helm.rendered(tmp_path, CONTROLLER, {"options": {"ref": None, "verify": "tag"}})
    (container,) = deployed.only(DEPLOYMENT, made)["spec"]["template"]["spec"]["containers"]
    flags = dict(one.partition("=")[::2] for one in container["args"])
    assert "--ref" not in flags
    assert flags["--verify"] == "tag"


async def test_a_release_takes_over_upgrades_rolls_back_and_leaves_what_outlives_it(
    control_plane, tmp_path
):
    """What kustomize installed becomes a release; CRDs are upgraded; the namespace stays."""
    cluster, namespace = control_plane.cluster, "klutch-bind"
    made = by_kustomize(deployed.FOLDER)
    way = ["--kubeconfig", str(control_plane.kubeconfig), "--kube-context", control_plane.context]
    way += ["--namespace", namespace]
    crd = Ref(control_plane.name, CRD, "", "clusterbindings.klutch.anynines.com")
    workload = Ref(control_plane.name, DEPLOYMENT, namespace, "klutch-bind")

    async def replicas() -> Any:
        live = await cluster.get(workload)
        return live and live["spec"]["replicas"]

    described = "/spec/versions/0/schema/openAPIV3Schema/description"
    older = [{"op": "replace", "path": described, "value": "older"}]
    try:
        await deployed.apply(cluster, made)
        found = await cluster.json_patch(crd, older, manager="operator")
        install = ["upgrade", "--install", "--take-ownership", "--force-conflicts", *way]
        install += ["klutch-bind", str(BACKEND), helm.given(tmp_path, BACKEND)]
        helm.helm(tmp_path, *install)
        taken = await cluster.get(workload)
        assert taken is not None
        assert taken["metadata"]["annotations"]["meta.helm.sh/release-name"] == "klutch-bind"
        crd_taken = await cluster.get(crd)
        assert crd_taken is not None
        assert crd_taken["metadata"]["uid"] == found["metadata"]["uid"]
        assert "older" not in json.dumps(crd_taken["spec"])

        helm.helm(tmp_path, *install, "--set=replicas=3")
        assert await replicas() == 3
        helm.helm(tmp_path, "rollback", "--force-conflicts", "klutch-bind", "1", *way)
        assert await replicas() == 2

        helm.helm(tmp_path, "uninstall", "klutch-bind", *way)
        assert await replicas() is None
        assert await cluster.get(crd) is not None
        left = await cluster.get(Ref(control_plane.name, NAMESPACE, "", namespace))
        assert left is not None
        assert "deletionTimestamp" not in left["metadata"]
    finally:
        for one in made:
            kind = deployed.KINDS[one["kind"]]
            if kind != NAMESPACE:
                await removal.remove_manifest(cluster, kind, one)
