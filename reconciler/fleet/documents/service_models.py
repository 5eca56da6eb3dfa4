"""The specs of Template, Binding and Policy: what is offered, bound and allowed."""

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

from reconciler.fleet.documents.base_model import (
    Group,
    GroupOrCore,
    LabelKey,
    Labels,
    LabelValue,
    Name,
    ObjectName,
    PathPattern,
    Plural,
    Shorthand,
    StrictModel,
    Version,
    refused,
)


class Resource(StrictModel):
    """A kind of object that a service offers."""

    group: Group
    resource: Plural = Field(description="Its plural, as postgresqlinstances.")


def _all_or_some(names: list[str]) -> list[str]:
    if "*" in names and len(names) > 1:
        raise refused('holds "*" beside other names; "*" is all of them')
    return names


ObjectNames: TypeAlias = Annotated[list[ObjectName], AfterValidator(_all_or_some)]


class CeilingClaim(StrictModel):
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
        Shorthand("object", lambda labels: [labels] if isinstance(labels, dict) else labels),
    ] = Field(
        default=[], description="Labels that the objects bear; of several maps, those of one."
    )


class Claim(CeilingClaim):
    """A claim, and what becomes of it."""

    state: Literal["Accepted", "Rejected"] = "Accepted"


class TemplateSpec(StrictModel):
    """A service as this fleet offers it."""

    resources: list[Resource] = Field(min_length=1)
    claims: list[CeilingClaim] = Field(
        default=[], description="The most that may ever be accepted."
    )


class Expression(StrictModel):
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


class Selector(StrictModel):
    """App clusters. Labels and expressions together select, names add, exclude takes away."""

    match_labels: Labels = Field(default={})
    match_expressions: list[Expression] = Field(default=[])
    names: list[Name] = Field(default=[])
    exclude: list[Name] = Field(default=[])
    optional: StrictBool = Field(default=False, description="It may select no cluster.")


class BindingSpec(StrictModel):
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


class Permission(StrictModel):
    """Templates that may be bound in some clusters."""

    templates: list[Name] = Field(min_length=1)
    clusters: Selector


class Limits(StrictModel):
    """How much may be bound."""

    bindings_per_cluster: StrictInt | None = Field(default=None, ge=1)


class PolicySpec(StrictModel):
    """What Bindings in some files may do. Where a Policy matches, all else is denied."""

    paths: list[PathPattern] = Field(min_length=1)
    allow: list[Permission] = Field(default=[])
    limits: Limits = Limits()
