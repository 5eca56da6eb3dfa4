"""The documents of a fleet repository, as people write them: one model per kind.

These are also the source of schemas/fleet.schema.json, so descriptions are for people with an
editor. A model is only the form of one document; what documents say about each other is decided
in the modules that build `fleet.values`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from reconciler.fleet.formats import (
    DnsLabel,
    FilePath,
    Group,
    GroupOrCore,
    Image,
    LabelKey,
    Labels,
    LabelValue,
    Line,
    Name,
    ObjectName,
    PathPattern,
    Plural,
    SecretKey,
    Subdomain,
    Uid,
    Url,
    Version,
    refused,
)
from reconciler.fleet.strict import LabelledMetadata, Metadata, Shorthand, Strict

API_VERSION: Final = "fleet.klutchctl.dev/v1alpha1"


def _glob_alone(value: Any) -> Any:
    if isinstance(value, str):
        return {"glob": value}
    if not isinstance(value, dict):
        raise refused("must be text or a mapping", code="wrong-type")
    return value


class Include(Strict):
    """Files of the repository that belong to the fleet."""

    glob: PathPattern = Field(description="As *.yaml or folder/**/*.yaml.")
    optional: StrictBool = Field(default=False, description="It may match no file.")


class KonnectorDefaults(Strict):
    """The konnector, where a Cluster does not say otherwise."""

    image: Image | None = Field(default=None, description="There is no built-in image.")
    rbac: Literal["Minimal", "Full"] | None = Field(
        default=None, description="Its rights in the app cluster. Full is everything."
    )
    overrides: dict[StrictStr, JsonValue] = Field(
        default={}, description="Fields of its container (core/v1 Container)."
    )


class Konnector(KonnectorDefaults):
    """The konnector of one cluster."""

    deploy: StrictBool = Field(default=False, description="Deploy it, and keep it as described.")


class Prune(Strict):
    """What may happen to what left the files."""

    # YAML reads `off` without quotes as false.
    mode: Annotated[
        Literal["off", "report", "auto"],
        BeforeValidator(lambda mode: "off" if mode is False else mode),
    ] = Field(
        default="auto", description="off: not looked at. report: shown, not done. auto: done."
    )
    max_deletes: StrictInt = Field(
        default=10, ge=0, description="More than this in a run: none of them."
    )
    max_delete_percent: StrictInt = Field(
        default=5, ge=0, le=100, description="The smaller limit wins."
    )
    allow_empty: StrictBool = Field(
        default=False, description="An empty fleet may release everything."
    )
    keep_if_in_use: StrictBool = Field(
        default=True, description="No replace and no delete while service instances exist."
    )
    on_cluster_leave: Literal["Release", "Delete", "Block"] = "Release"


class PolicyDefault(Strict):
    """What holds for Bindings in files that no Policy is about."""

    default: Literal["Deny", "Allow"] = Field(
        description="Deny: they may bind nothing. Allow: they may bind anything."
    )


class FleetSpec(Strict):
    """Which files belong to the fleet, and what holds for all of it."""

    include: list[
        Annotated[
            Include,
            Shorthand("string", _glob_alone),
        ]
    ] = Field(default=[])
    vars: dict[StrictStr, StrictStr] = Field(default={}, description="Texts for ${vars.NAME}.")
    konnector: KonnectorDefaults = KonnectorDefaults()
    prune: Prune = Prune()
    policies: PolicyDefault | None = Field(
        default=None, description="Absent: Allow, with a warning."
    )


class SecretRef(Strict):
    """A kubeconfig in a Secret; its namespace is always klutch-bind."""

    name: Subdomain
    key: SecretKey


class Access(Strict):
    """How klutchctl reaches a cluster: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    kubeconfig_context: Line | None = None
    secret_ref: SecretRef | None = None
    in_cluster: Literal[True] | None = None

    @model_validator(mode="after")
    def _one(self) -> "Access":
        if len(self.model_fields_set) != 1:
            raise refused("must have exactly one of kubeconfigContext, secretRef, inCluster")
        return self


class ControlPlaneSpec(Strict):
    """A cluster on which services run."""

    access: Access
    mode: Literal["Direct", "AppClusterBinding"] = Field(
        default="Direct", description="Who creates the binding spaces: klutchctl, or the backend."
    )
    endpoint: Url | None = Field(
        default=None, description="Where app clusters reach it, if elsewhere."
    )
    ca_file: FilePath | None = Field(
        default=None, description="Its CA certificates, in the repository."
    )
    namespace: DnsLabel = Field(
        default="klutch-fleet", description="Where AppClusterBindings live."
    )
    pretty_name: Line | None = Field(default=None, description="The provider's name for people.")
    template_namespaces: list[DnsLabel] = Field(
        default=[],
        description="Only APIServiceExportTemplates in these say what it offers. []: all do.",
    )


class Suspend(Strict):
    """Present: the cluster is left alone."""

    reason: Line


class AppClusterBindingName(Strict):
    """The AppClusterBinding of a cluster, where it has one already."""

    namespace: DnsLabel | None = None
    name: DnsLabel | None = None


class Adopt(Strict):
    """What the files give to a cluster that nothing else proves to be its own."""

    space: DnsLabel = Field(description="A binding space that exists on the control plane.")


class ClusterSpec(Strict):
    """An app cluster."""

    access: Access
    control_plane: Name
    identity: Uid | None = Field(
        default=None, description="uid of its namespace kube-system: refuses a swapped kubeconfig."
    )
    adopt: Adopt | None = Field(
        default=None, description="The binding space to give it: after a rename, or a release."
    )
    endpoint: Url | None = Field(default=None, description="Where the control plane reaches it.")
    ca_file: FilePath | None = Field(
        default=None, description="Its CA certificates, in the repository."
    )
    konnector: Konnector = Konnector()
    suspend: Suspend | None = None
    app_cluster_binding: AppClusterBindingName = AppClusterBindingName()


class Resource(Strict):
    """A kind of object that a service offers."""

    group: Group
    resource: Plural = Field(description="Its plural, as postgresqlinstances.")


def _all_or_some(names: list[str]) -> list[str]:
    if "*" in names and len(names) > 1:
        raise refused('holds "*" beside other names; "*" is all of them')
    return names


ObjectNames: TypeAlias = Annotated[list[ObjectName], AfterValidator(_all_or_some)]


class CeilingClaim(Strict):
    """Objects in the app cluster that a service may read or write."""

    group: GroupOrCore = ""
    resource: Plural
    version: Version
    owner: Literal["Provider", "Consumer"] = Field(description="Whose objects these are.")
    names: ObjectNames = Field(default=["*"], min_length=1, description='Names, or "*" for all.')
    namespaces: ObjectNames = Field(
        default=["*"], description='Names, or "*" for all; [] for objects without a namespace.'
    )
    labels: Annotated[
        list[Labels],
        Shorthand("object", lambda one: [one] if isinstance(one, dict) else one),
    ] = Field(
        default=[], description="Labels that the objects bear; of several maps, those of one."
    )


class Claim(CeilingClaim):
    """A claim, and what becomes of it."""

    state: Literal["Accepted", "Rejected"] = "Accepted"


class TemplateSpec(Strict):
    """A service as this fleet offers it."""

    resources: list[Resource] = Field(min_length=1)
    claims: list[CeilingClaim] = Field(
        default=[], description="The most that may ever be accepted."
    )


class Expression(Strict):
    """A condition on one label."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[LabelValue] = Field(default=[])

    @model_validator(mode="after")
    def _values_fit(self) -> "Expression":
        wanted = self.operator in ("In", "NotIn")
        if wanted != bool(self.values):
            verb = "needs" if wanted else "has no"
            raise refused(f"{verb} values with the operator {self.operator}")
        return self


class Selector(Strict):
    """App clusters. Labels and expressions together select, names add, exclude takes away."""

    match_labels: Labels = Field(default={})
    match_expressions: list[Expression] = Field(default=[])
    names: list[Name] = Field(default=[])
    exclude: list[Name] = Field(default=[])
    optional: StrictBool = Field(default=False, description="It may select no cluster.")


class BindingSpec(Strict):
    """A service in some clusters."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["template"]}, {"required": ["resources"]}]}
    )

    template: Name | None = Field(default=None, description="Either a Template ...")
    resources: list[Resource] | None = Field(
        default=None, min_length=1, description="... or resources."
    )
    clusters: Selector
    parameters: dict[StrictStr, JsonValue] = Field(
        default={}, description="For the service; immutable."
    )
    claims: list[Claim] | None = Field(
        default=None, description="Absent: those of the Template. []: none."
    )
    deletion_policy: Literal["Release", "Delete", "Block"] = "Release"
    depends_on: list[Name] = Field(default=[], description="Bindings that must be Ready first.")

    @model_validator(mode="after")
    def _one(self) -> "BindingSpec":
        if (self.template is None) == (self.resources is None):
            raise refused("must have exactly one of template, resources")
        return self


class Permission(Strict):
    """Templates that may be bound in some clusters."""

    templates: list[Name] = Field(min_length=1)
    clusters: Selector


class Limits(Strict):
    """How much may be bound."""

    bindings_per_cluster: StrictInt | None = Field(default=None, ge=1)


class PolicySpec(Strict):
    """What Bindings in some files may do. Where a Policy matches, all else is denied."""

    paths: list[PathPattern] = Field(min_length=1)
    allow: list[Permission] = Field(default=[])
    limits: Limits = Limits()


class FleetDocument(Strict):
    """The fleet: one per repository, in the file that is read first."""

    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: Literal["Fleet"]
    metadata: Metadata
    spec: FleetSpec = FleetSpec()


class ControlPlaneDocument(Strict):
    """A control plane."""

    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: Literal["ControlPlane"]
    metadata: Metadata
    spec: ControlPlaneSpec


class ClusterDocument(Strict):
    """An app cluster."""

    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: Literal["Cluster"]
    metadata: LabelledMetadata
    spec: ClusterSpec


class TemplateDocument(Strict):
    """A service, and the ceiling of its claims."""

    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: Literal["Template"]
    metadata: Metadata
    spec: TemplateSpec


class BindingDocument(Strict):
    """A service in some clusters."""

    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: Literal["Binding"]
    metadata: LabelledMetadata
    spec: BindingSpec


class PolicyDocument(Strict):
    """Who may bind what."""

    api_version: Literal["fleet.klutchctl.dev/v1alpha1"]
    kind: Literal["Policy"]
    metadata: Metadata
    spec: PolicySpec


KINDS: Final[dict[str, type[Strict]]] = {
    "Fleet": FleetDocument,
    "ControlPlane": ControlPlaneDocument,
    "Cluster": ClusterDocument,
    "Template": TemplateDocument,
    "Binding": BindingDocument,
    "Policy": PolicyDocument,
}
