"""Models the specs of Template, Binding and Policy."""

from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from reconciler.fleet import base_model


class Resource(base_model.StrictModel):
    """A kind of object that a service offers."""

    group: base_model.Group = Field(description="The API group of the kind.")
    resource: base_model.Plural = Field(description="Its plural, such as postgresqlinstances.")


def _all_or_some(names: list[str]) -> list[str]:
    if "*" in names and len(names) > 1:
        raise base_model.refused('contains "*" beside other names; "*" is all of them')
    return names


ObjectNames: TypeAlias = Annotated[list[base_model.ObjectName], AfterValidator(_all_or_some)]


class CeilingClaim(base_model.StrictModel):
    """Objects in the app cluster that a service may read or write."""

    group: base_model.GroupOrCore = Field(default="", description="API group; empty for Secrets.")
    resource: base_model.Plural = Field(description="Its plural, such as secrets.")
    version: base_model.Version = Field(description="Its API version, such as v1.")
    owner: Literal["Provider", "Consumer"] = Field(description="Provider: copied down. Else: up.")
    names: ObjectNames = Field(default=["*"], min_length=1, description='Names, or "*" for all.')
    namespaces: ObjectNames = Field(
        default=["*"], description='Names, or "*" for all; [] for objects without a namespace.'
    )
    labels: Annotated[
        list[base_model.Labels],
        base_model.Shorthand(
            "object", lambda labels: [labels] if isinstance(labels, dict) else labels
        ),
    ] = Field(default=[], description="Labels of the objects. Of several maps, one must match.")


class Claim(CeilingClaim):
    """A permission claim, and your decision."""

    state: Literal["Accepted", "Rejected"] = Field(default="Accepted", description="Your decision.")


class TemplateSpec(base_model.StrictModel):
    """A service as this fleet offers it."""

    resources: list[Resource] = Field(min_length=1, description="The kinds of the service.")
    claims: list[CeilingClaim] = Field(
        default=[], description="The most that a Binding may accept."
    )


class Expression(base_model.StrictModel):
    """A condition on one label."""

    key: base_model.LabelKey = Field(description="A label of Clusters.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="The test.")
    values: list[base_model.LabelValue] = Field(default=[], description="For In and NotIn.")

    @model_validator(mode="after")
    def _values_fit(self) -> "Expression":
        wanted = self.operator in ("In", "NotIn")
        if wanted != bool(self.values):
            verb = "needs" if wanted else "has no"
            raise base_model.refused(f"{verb} values with the operator {self.operator}")
        return self


class Selector(base_model.StrictModel):
    """App clusters. Labels and expressions together select, names add, exclude takes away."""

    match_labels: base_model.Labels = Field(default={}, description="Clusters have all of these.")
    match_expressions: list[Expression] = Field(default=[], description="And pass all of these.")
    names: list[base_model.Name] = Field(default=[], description="These Clusters, too.")
    exclude: list[base_model.Name] = Field(default=[], description="But not these Clusters.")
    optional: StrictBool = Field(default=False, description="It may select no cluster.")


class BindingSpec(base_model.StrictModel):
    """A service in some clusters."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["template"]}, {"required": ["resources"]}]}
    )

    template: base_model.Name | None = Field(default=None, description="A Template, or resources.")
    resources: list[Resource] | None = Field(
        default=None, min_length=1, description="Kinds, without a Template."
    )
    clusters: Selector
    parameters: dict[StrictStr, JsonValue] = Field(
        default={}, description="Values for the provider. They cannot change."
    )
    claims: list[Claim] | None = Field(
        default=None, description="Absent: those of the Template. []: none."
    )
    deletion_policy: Literal["Release", "Delete", "Block"] = Field(
        default="Release", description="For units that leave the files."
    )
    depends_on: list[base_model.Name] = Field(
        default=[], description="Bindings that must be Ready first."
    )

    @model_validator(mode="after")
    def _one(self) -> "BindingSpec":
        if (self.template is None) == (self.resources is None):
            raise base_model.refused("must have exactly one of template, resources")
        return self


class Permission(base_model.StrictModel):
    """Templates that may be bound in some clusters."""

    templates: list[base_model.Name] = Field(min_length=1, description="Allowed Templates.")
    clusters: Selector


class Limits(base_model.StrictModel):
    """The limits of a Policy."""

    bindings_per_cluster: StrictInt | None = Field(
        default=None, ge=1, description="The most Bindings for each Cluster."
    )


class PolicySpec(base_model.StrictModel):
    """The permissions of Bindings in some files. Where a Policy matches, all else is denied."""

    paths: list[base_model.PathPattern] = Field(min_length=1, description="Globs of files.")
    allow: list[Permission] = Field(default=[], description="One of these has to match.")
    limits: Limits = Limits()
