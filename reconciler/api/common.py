"""What several wire kinds share: the base model, metadata, conditions, claims, references.

Decides how JSON and models relate: `model_validate(obj).to_manifest() == obj` for whatever an
API server accepts. Unknown fields are kept at every level. A null is what it is to an API
server, an absent field; so attributes read as their defaults, and the null is written back.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from reconciler.core.manifest import Manifest

GROUP: Final = "klutch.anynines.com"
VERSION: Final = "v1alpha1"

KlutchVersion = Literal["klutch.anynines.com/v1alpha1"]
KLUTCH_VERSION: Final = "klutch.anynines.com/v1alpha1"


class WireModel(BaseModel):
    """A JSON object of an API. Attributes are snake_case, wire names camelCase.

    An attribute that is not in the JSON has the default that the CRD gives it, else an empty
    value, else None. Raises pydantic.ValidationError, whose text does not show the input.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        extra="allow",
        frozen=True,
        hide_input_in_errors=True,
    )
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    _optional: ClassVar[frozenset[str]] = frozenset()
    _nulls: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        fields = cls.model_fields.items()
        cls._optional = frozenset(f.alias or name for name, f in fields if not f.is_required())

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Leave out what we do not know: it may be long, and it may be secret."""
        known = type(self).model_fields
        return ((name, value) for name, value in super().__repr_args__() if name in known)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Read JSON. Only wire names count: a snake_case name in JSON is an unknown field."""
        return super().model_validate(obj, **({"by_alias": True, "by_name": False} | options))

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        nulls = frozenset(name for name in cls._optional if name in data and data[name] is None)
        model = handler({name: data[name] for name in data if name not in nulls})
        model._nulls = nulls
        return model

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return dict.fromkeys(self._nulls) | written

    def model_post_init(self, context: Any, /) -> None:
        """Count apiVersion and kind as stated, so that every object says what it is."""
        self.model_fields_set.update({"api_version", "kind"} & type(self).model_fields.keys())

    def to_manifest(self) -> Manifest:
        """Return the JSON: the fields that were read or stated, and nothing else."""
        manifest: Manifest = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return manifest


class OwnerReference(WireModel):
    """The object that this one goes with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: StrictBool = False
    block_owner_deletion: StrictBool = False


class ObjectMeta(WireModel):
    """The metadata that we read; the rest is kept. Times are RFC 3339 text."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: StrictInt = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Condition(WireModel):
    """A condition of A.1.4. `severity` is "" unless the status is False."""

    type: str
    status: str
    last_transition_time: str
    severity: str = ""
    reason: str = ""
    message: str = ""


class GroupResource(WireModel):
    """A resource without its version. `group` is "" for the core API."""

    resource: str
    group: str = ""


class Matcher(WireModel):
    """A wildcard pattern for keys."""

    pattern: str = ""


class ClaimSelector(WireModel):
    """Which objects are claimed. `owner` None stands for both sides."""

    names: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    label_selectors: tuple[dict[str, str], ...] = ()
    field_selectors: tuple[str, ...] = ()
    owner: Literal["Provider", "Consumer"] | None = None


class ClaimRead(WireModel):
    """What of the objects in the app cluster goes up, beside their content."""

    labels: tuple[Matcher, ...] = ()
    labels_on_provider_owned_objects: tuple[Matcher, ...] = ()
    annotations: tuple[Matcher, ...] = ()
    override_annotations: tuple[Matcher, ...] = ()


class ClaimCreate(WireModel):
    """How the provider's objects come into the app cluster."""

    replace_existing: StrictBool = False


class ClaimOnConflict(WireModel):
    """What happens where the two sides disagree."""

    recreate_when_consumer_side_deleted: StrictBool = True


class ClaimUpdate(WireModel):
    """Which changes the provider may make in the app cluster."""

    fields: tuple[str, ...] = ()
    preserving: tuple[str, ...] = ()
    always_recreate: StrictBool = False
    labels: tuple[Matcher, ...] = ()
    labels_on_consumer_owned_objects: tuple[Matcher, ...] = ()
    annotations: tuple[Matcher, ...] = ()
    annotations_on_consumer_owned_objects: tuple[Matcher, ...] = ()


class PermissionClaim(GroupResource):
    """What a provider wants to touch in the app cluster (A.1.2)."""

    version: str
    selector: ClaimSelector = ClaimSelector()
    required: StrictBool = False
    read: ClaimRead = ClaimRead()
    create: ClaimCreate = ClaimCreate()
    auto_adopt: StrictBool = False
    auto_donate: StrictBool = False
    on_conflict: ClaimOnConflict = ClaimOnConflict()
    update: ClaimUpdate = ClaimUpdate()


class AcceptablePermissionClaim(PermissionClaim):
    """A claim with the consumer's decision."""

    state: Literal["Accepted", "Rejected"]


class LocalSecretKeyRef(WireModel):
    """A key of a Secret in the namespace of the referring object."""

    name: str
    key: Literal["kubeconfig"]


class ClusterSecretKeyRef(LocalSecretKeyRef):
    """A key of a Secret in any namespace."""

    namespace: str
