"""Models the documents of a fleet repository, one class for each kind, and their JSON Schema.

These are also the source of schemas/fleet.schema.json, so descriptions are for people with an
editor. A model is only the form of one document; what documents say about each other is decided
in the modules that build `fleet.values`.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic.json_schema import models_json_schema

from reconciler.core.manifest import JSON, get, get_list, get_map
from reconciler.fleet import base_model
from reconciler.fleet.service_models import BindingSpec, PolicySpec, TemplateSpec

API_VERSION: Final = "fleet.klutchctl.dev/v1alpha1"
LONGEST: Final = 1024  # characters of a variable, which a short reference copies
# The dialect that yaml-language-server knows best.
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"


def _glob_alone(value: Any) -> Any:
    if isinstance(value, str):
        return {"glob": value}
    if not isinstance(value, dict):
        raise base_model.refused("must be text or a mapping", code="wrong-type")
    return value


class Include(base_model.StrictModel):
    """Files of the repository that belong to the fleet."""

    glob: base_model.PathPattern = Field(description="As *.yaml or folder/**/*.yaml.")
    optional: StrictBool = Field(default=False, description="It may match no file.")


class KonnectorDefaults(base_model.StrictModel):
    """Defaults for the konnector of each Cluster."""

    image: base_model.Image | None = Field(default=None, description="Image; there is no default.")
    rbac: Literal["Minimal", "Full"] | None = Field(
        default=None, description="Its rights in the app cluster. Full is everything."
    )
    overrides: dict[StrictStr, JsonValue] = Field(
        default={}, description="Fields of its container (core/v1 Container)."
    )


class Konnector(KonnectorDefaults):
    """The konnector of one cluster."""

    deploy: StrictBool = Field(default=False, description="Deploy it, and keep it as described.")


class Prune(base_model.StrictModel):
    """The limits for releases and deletions of units that left the files."""

    # YAML reads `off` without quotes as false.
    mode: Annotated[
        Literal["off", "report", "auto"],
        BeforeValidator(lambda mode: "off" if mode is False else mode),
    ] = Field(default="auto", description="off: ignored. report: only shown. auto: done.")
    max_deletes: StrictInt = Field(
        default=10, ge=0, description="If a run has more, it makes none of them."
    )
    max_delete_percent: StrictInt = Field(
        default=5, ge=0, le=100, description="The smaller limit wins; below 20 units, half may go."
    )
    allow_empty: StrictBool = Field(
        default=False, description="An empty fleet may release everything."
    )
    keep_if_in_use: StrictBool = Field(
        default=True, description="No replace and no delete while service instances exist."
    )
    on_cluster_leave: Literal["Release", "Delete", "Block"] = Field(
        default="Release", description="For the space of a Cluster that left the files."
    )


class PolicyDefault(base_model.StrictModel):
    """The rule for Bindings in files without a Policy."""

    default: Literal["Deny", "Allow"] = Field(
        description="Deny: they may bind nothing. Allow: they may bind anything."
    )


class Suspend(base_model.StrictModel):
    """Present: the cluster, or all of the fleet, is left alone."""

    reason: base_model.Line = Field(description="A text for plans, status and the board.")


class FleetSpec(base_model.StrictModel):
    """The files that belong to the fleet, and the settings for all of it."""

    include: list[Annotated[Include, base_model.Shorthand("string", _glob_alone)]] = Field(
        default=[], description="Globs of further files, from the folder of this one."
    )
    vars: dict[StrictStr, Annotated[StrictStr, Field(max_length=LONGEST)]] = Field(
        default={}, description="Values of ${vars.NAME}."
    )
    konnector: KonnectorDefaults = KonnectorDefaults()
    prune: Prune = Prune()
    policies: PolicyDefault | None = Field(
        default=None, description="Absent: Allow, with a warning."
    )
    suspend: Suspend | None = None


class SecretRef(base_model.StrictModel):
    """A kubeconfig in a Secret; its namespace is always klutch-bind."""

    name: base_model.Subdomain = Field(description="The Secret.")
    key: base_model.SecretKey = Field(description="The key with the kubeconfig.")


class Access(base_model.StrictModel):
    """The connection of klutchctl to a cluster: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    kubeconfig_context: base_model.Line | None = Field(default=None, description="A context.")
    secret_ref: SecretRef | None = None
    in_cluster: Literal[True] | None = Field(
        None, description="The cluster of klutchctl's own pod."
    )

    @model_validator(mode="after")
    def _one(self) -> "Access":
        if len(self.model_fields_set) != 1:
            raise base_model.refused(
                "must have exactly one of kubeconfigContext, secretRef, inCluster"
            )
        return self


class ControlPlaneSpec(base_model.StrictModel):
    """A cluster on which services run."""

    access: Access
    mode: Literal["Direct", "AppClusterBinding"] = Field(
        default="Direct", description="Program that makes spaces: klutchctl, or klutch-bind."
    )
    endpoint: base_model.Url | None = Field(
        default=None, description="Its address for app clusters, if it is another one."
    )
    ca_file: base_model.FilePath | None = Field(
        default=None, description="Its CA certificates, in the repository."
    )
    namespace: base_model.DnsLabel = Field(
        default="klutch-fleet", description="The namespace of AppClusterBindings."
    )
    pretty_name: base_model.Line | None = Field(
        default=None, description="Name of the provider, for people."
    )
    template_namespaces: list[base_model.DnsLabel] = Field(
        default=[], description="Namespaces of the templates that count. []: all."
    )


class AppClusterBindingName(base_model.StrictModel):
    """The AppClusterBinding of a cluster, where it has one already."""

    namespace: base_model.DnsLabel | None = Field(default=None, description="Its namespace.")
    name: base_model.DnsLabel | None = Field(default=None, description="Its name.")


class Adopt(base_model.StrictModel):
    """Existing objects that klutchctl adopts for the cluster, without another proof."""

    space: base_model.DnsLabel = Field(
        description="A binding space that exists on the control plane."
    )


class ClusterSpec(base_model.StrictModel):
    """An app cluster."""

    access: Access
    control_plane: base_model.Name = Field(description="The ControlPlane that serves it.")
    identity: base_model.Uid | None = Field(
        default=None, description="UID of its namespace kube-system. Refuses another cluster."
    )
    adopt: Adopt | None = Field(
        default=None, description="The binding space to give it: after a rename, or a release."
    )
    endpoint: base_model.Url | None = Field(
        default=None, description="Its address for the control plane (AppClusterBinding)."
    )
    ca_file: base_model.FilePath | None = Field(
        default=None, description="Its CA certificates, in the repository."
    )
    konnector: Konnector = Konnector()
    suspend: Suspend | None = None
    app_cluster_binding: AppClusterBindingName = AppClusterBindingName()


class _Document(base_model.StrictModel):
    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: str
    metadata: base_model.Metadata


class FleetDocument(_Document):
    """The fleet: one per repository, in the file that is read first."""

    kind: Literal["Fleet"]
    spec: FleetSpec = FleetSpec()


class ControlPlaneDocument(_Document):
    """A control plane."""

    kind: Literal["ControlPlane"]
    spec: ControlPlaneSpec


class ClusterDocument(_Document):
    """An app cluster."""

    kind: Literal["Cluster"]
    metadata: base_model.LabelledMetadata
    spec: ClusterSpec


class TemplateDocument(_Document):
    """A service, and the ceiling of its claims."""

    kind: Literal["Template"]
    spec: TemplateSpec


class BindingDocument(_Document):
    """A service in some clusters."""

    kind: Literal["Binding"]
    metadata: base_model.LabelledMetadata
    spec: BindingSpec


class PolicyDocument(_Document):
    """A permission to bind."""

    kind: Literal["Policy"]
    spec: PolicySpec


KINDS: Final[dict[str, type[base_model.StrictModel]]] = {
    "Fleet": FleetDocument,
    "ControlPlane": ControlPlaneDocument,
    "Cluster": ClusterDocument,
    "Template": TemplateDocument,
    "Binding": BindingDocument,
    "Policy": PolicyDocument,
}


def schema() -> dict[str, JSON]:
    keys, generated = models_json_schema(
        [(model, "validation") for model in KINDS.values()],
        by_alias=True,
        ref_template="#/definitions/{model}",
    )
    branches: list[JSON] = [
        {"if": {"properties": {"kind": {"const": kind}}}, "then": keys[model, "validation"]}
        for kind, model in KINDS.items()
    ]
    return {
        "$schema": _DIALECT,
        "title": "A document of a klutchctl fleet repository",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {"apiVersion": {"const": API_VERSION}, "kind": {"enum": list(KINDS)}},
        "allOf": branches,
        "definitions": _plain(generated["$defs"], names=True),
    }


def _plain(value: JSON, *, names: bool = False) -> JSON:
    """Return a schema without titles that repeat a key, and without null: a key has a value.

    `names`: the keys are names of people's own, not words of JSON Schema.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value if item != {"type": "null"}]
    if not isinstance(value, dict):
        return value
    plain = {
        key: _plain(item, names=key in ("properties", "definitions") and not names)
        for key, item in value.items()
        if names or not (key == "title" or (key == "default" and item is None))
    }
    only = plain.pop("anyOf", None) if len(get_list(plain, "anyOf")) == 1 else None
    return {**get_map(get(only, 0)), **plain}
