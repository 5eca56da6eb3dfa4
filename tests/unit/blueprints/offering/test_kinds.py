"""What files and the running program call alike."""

import pytest

from reconciler.api.osb import GeneratedKind
from reconciler.blueprints.offering.kinds import Named


@pytest.mark.parametrize("broker", ["acme", "a" * 45])
@pytest.mark.parametrize("stem", ["Database", "S" + "a" * 40])
def test_secrets_bear_the_label_that_templates_select(broker, stem):
    named = Named(broker, "services.acme.example", stem)
    for kind in (named.instances, named.bindings):
        served = GeneratedKind(kind, broker, "id", {}, "" if kind == named.instances else "x")
        assert served.service == named.service
        assert len(named.service) <= 63
