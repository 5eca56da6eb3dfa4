"""What a ServiceBroker says of its broker, sentence by sentence."""

from dataclasses import replace

import pytest

from bind.osb.decisions import causes, record
from bind.osb.decisions.causes import BrokerState
from reconciler.api.osb import BrokerSpec, OfferingChoice
from reconciler.blueprints.offering.catalogue import Catalogue, Offering
from reconciler.core import conditions
from tests.support.osb_views import CATALOGUE, KIND, UID, held, sent

WELL = BrokerState(BrokerSpec("acme"), catalogue=CATALOGUE, kinds=(KIND,))
THERE = record.created(held(record.PRESENT, sent=sent()), "klutch-osb").manifest
ORPHAN = record.created(held(record.ORPHANED), "klutch-osb").manifest
ANOTHER = Offering("service-2", "cache")


def of(state, name):
    found = conditions.find(causes.decide(state).conditions, name)
    assert found is not None
    return found


def test_a_broker_that_is_well_says_so():
    stated = causes.decide(replace(WELL, records=(THERE,))).conditions
    assert {one.type for one in stated} == {
        "Reachable",
        "CatalogInSync",
        "KindsServed",
        "NoOrphans",
    }
    assert {one.status for one in stated} == {"True"}


@pytest.mark.parametrize(
    ("state", "name", "reason", "words"),
    [
        (replace(WELL, fault="it does not answer"), "Reachable", "Unreachable", "not answer"),
        (replace(WELL, catalogue=None, problem="HTTP 500"), "Reachable", "Unreachable", "HTTP 500"),
        (replace(WELL, catalogue=None), "CatalogInSync", "NotRead", "not read yet"),
        (replace(WELL, problem="it offers nothing"), "CatalogInSync", "NotRead", "last good one"),
        (
            replace(WELL, catalogue=Catalogue((ANOTHER,), "other")),
            "CatalogInSync",
            "Differs",
            "gone from the catalogue: offering service-1 of DatabaseInstance",
        ),
        (
            replace(WELL, kinds=(replace(KIND, plans={"tiny": "plan-t"}),)),
            "CatalogInSync",
            "Differs",
            "gone from the catalogue: plan tiny of database",
        ),
        (
            replace(WELL, catalogue=Catalogue((*CATALOGUE.offerings, ANOTHER), "more")),
            "CatalogInSync",
            "Differs",
            "not generated yet: cache",
        ),
        (
            replace(WELL, troubles=("list DatabaseBinding: forbidden",)),
            "KindsServed",
            "ClaimsNotRead",
            "forbidden",
        ),
        (replace(WELL, records=(ORPHAN,)), "NoOrphans", "Orphans", UID),
    ],
)
def test_a_trouble_is_named_with_its_cause(state, name, reason, words):
    found = of(state, name)
    assert (found.status, found.reason) == ("False", reason)
    assert words in found.message


def test_an_offering_that_was_not_chosen_is_not_missed():
    chosen = BrokerSpec("acme", offerings=(OfferingChoice("database"),))
    state = replace(WELL, spec=chosen, catalogue=Catalogue((*CATALOGUE.offerings, ANOTHER), "more"))
    assert of(state, "CatalogInSync").status == "True"
