"""What each page shows, as values.

Texts of templates and CRDs are a provider's, those of bindings an app cluster's: all are hostile,
and shown as text alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bind.door.catalogue import Offer

# The shape beside a word: a disc, a ring, a triangle, a square.
Shape: TypeAlias = Literal["good", "waiting", "bad", "silent"]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a page.

    `here` is the part of the site that the page belongs to; `csrf` is what the form of sign-out
    carries. Without `ui` nothing leads to pages of `/ui/`, nor to the stylesheet.
    """

    provider: str = ""
    user: str = ""
    csrf: str = ""
    here: Literal["", "catalogue", "bindings"] = ""
    ui: bool = True


NO_FRAME = Frame()


@dataclass(frozen=True, slots=True)
class Card:
    """A service that may be bound with one link."""

    singular: str
    group: str
    scope: str
    plural: str
    href: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class ResourcesView:
    """What a CLI's sign-in leads to: services to choose from, and who gets the credentials."""

    cards: Sequence[Card]
    cid: str
    target: str
    signed_in: bool
    sign_in_hint: str = ""
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class ClaimSentence:
    """A permission claim in words; `index` is its place among the claims of the offer."""

    index: int
    text: str
    required: bool


@dataclass(frozen=True, slots=True)
class ConsentView:
    """What a person agrees to before a CLI gets an answer.

    `chosen` are the places of claims that were checked before, when a `problem` is shown.
    """

    offer: Offer
    sentences: Sequence[ClaimSentence]
    csrf: str
    action: str
    target: str
    problem: str = ""
    cid: str = ""
    chosen: Collection[int] = ()
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class Result:
    """How an offer is bound with the choices that were made."""

    command: str
    fleet: str
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class OfferView:
    """An offer, and how to bind it. `may_bind` is None where nobody signed in."""

    offer: Offer
    sentences: Sequence[ClaimSentence]
    csrf: str
    action: str
    may_bind: bool | None = None
    problem: str = ""
    chosen: Collection[int] = ()
    result: Result | None = None
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class OfferRow:
    """An offer in the catalogue; `asks` names the kinds of its permission claims."""

    title: str
    kind: str
    resource: str
    scope: str
    asks: Sequence[str]
    may_bind: bool | None
    href: str


@dataclass(frozen=True, slots=True)
class CatalogueView:
    """The offers that a search left, of `total`."""

    rows: Sequence[OfferRow]
    total: int
    query: str = ""
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """A condition of a binding space."""

    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A binding space: an app cluster, and what it bound."""

    space: str
    cid: str
    owner: str
    services: Sequence[str]
    word: str
    shape: Shape
    heartbeat: str
    href: str
    conditions: Sequence[ConditionRow] = ()


@dataclass(frozen=True, slots=True)
class BindingsView:
    """The bindings of a person, or of everybody."""

    rows: Sequence[BindingRow]
    everybody: bool = False
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class BindingView:
    """One binding space, and how it ends."""

    row: BindingRow
    unbind: Sequence[str]
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class HomeView:
    """Where people begin; `sign_in` is "" for those that are signed in."""

    sign_in: str
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class ErrorView:
    """Why there is no page, and what to do."""

    status: int
    title: str
    sentence: str
    advice: str
    request_id: str
    frame: Frame = NO_FRAME
