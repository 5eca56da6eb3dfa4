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

    group: base_model.Group
    resource: base_model.Plural = Field(description="Its plural, as postgresqlinstances.")


def _all_or_some(names: list[str]) -> list[str]:
    if "*" in names and len(names) > 1:
        raise base_model.refused('holds "*" beside other names; "*" is all of them')
    return names


ObjectNames: TypeAlias = Annotated[list[base_model.ObjectName], AfterValidator(_all_or_some)]


class CeilingClaim(base_model.StrictModel):
    """Objects in the app cluster that a service may read or write."""

    group: base_model.GroupOrCore = ""
    resource: base_model.Plural
    version: base_model.Version
    owner: Literal["Provider", "Consumer"] = Field(description="Whose objects these are.")
    names: ObjectNames = Field(default=["*"], min_length=1, description='Names, or "*" for all.')
    namespaces: ObjectNames = Field(
        default=["*"], description='Names, or "*" for all; [] for objects without a namespace.'
    )
    labels: Annotated[
        list[base_model.Labels],
        base_model.Shorthand(
            "object", lambda labels: [labels] if isinstance(labels, dict) else labels
        ),
    ] = Field(
        default=[], description="Labels that the objects bear; of several maps, those of one."
    )


class Claim(CeilingClaim):
    """A claim, and what becomes of it."""

    state: Literal["Accepted", "Rejected"] = "Accepted"


class TemplateSpec(base_model.StrictModel):
    """A service as this fleet offers it."""

    resources: list[Resource] = Field(min_length=1)
    claims: list[CeilingClaim] = Field(
        default=[], description="The most that may ever be accepted."
    )


class Expression(base_model.StrictModel):
    """A condition on one label."""

    key: base_model.LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[base_model.LabelValue] = Field(default=[])

    @model_validator(mode="after")
    def _values_fit(self) -> "Expression":
        wanted = self.operator in ("In", "NotIn")
        if wanted != bool(self.values):
            verb = "needs" if wanted else "has no"
            raise base_model.refused(f"{verb} values with the operator {self.operator}")
        return self


class Selector(base_model.StrictModel):
    """App clusters. Labels and expressions together select, names add, exclude takes away."""

    match_labels: base_model.Labels = Field(default={})
    match_expressions: list[Expression] = Field(default=[])
    names: list[base_model.Name] = Field(default=[])
    exclude: list[base_model.Name] = Field(default=[])
    optional: StrictBool = Field(default=False, description="It may select no cluster.")


class BindingSpec(base_model.StrictModel):
    """A service in some clusters."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["template"]}, {"required": ["resources"]}]}
    )

    template: base_model.Name | None = Field(default=None, description="Either a Template ...")
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

    templates: list[base_model.Name] = Field(min_length=1)
    clusters: Selector


class Limits(base_model.StrictModel):
    """The limits of a Policy."""

    bindings_per_cluster: StrictInt | None = Field(default=None, ge=1)


class PolicySpec(base_model.StrictModel):
    """The permissions of Bindings in some files. Where a Policy matches, all else is denied."""

    paths: list[base_model.PathPattern] = Field(min_length=1)
    allow: list[Permission] = Field(default=[])
    limits: Limits = Limits()
