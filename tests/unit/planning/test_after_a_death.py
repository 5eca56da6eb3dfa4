"""What a plan finds where whoever applied the last one died between two writes."""

from dataclasses import replace

import pytest

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT_REQUEST
from reconciler.core.manifest import put, uid_of
from reconciler.core.refs import CRD
from reconciler.observe.objects import observed
from reconciler.planning import planner
from reconciler.planning.changes import Action, Verb
from tests.support import scenes
from tests.support.worlds import POSTGRES, crd


def reference(uid):
    binding = API_SERVICE_BINDING
    return {"apiVersion": binding.api_version, "kind": binding.kind, "name": POSTGRES, "uid": uid}


ELSEWHERE = reference("of-one-that-is-gone")
OTHER_KIND = {"kind": "Service", "name": "x", "uid": "u"}
PARAMETERS = ", parameters: {size: large}"


def bound(mode="Direct"):
    here = scenes.applied(mode=mode)
    place = "shop" if mode == "Direct" else scenes.PLANE
    live = next(one for one in here.objects(place) if one["kind"] == API_SERVICE_BINDING.kind)
    return here, live


def install(here, *owners, manager="konnector"):
    """Put the CRD of the service into the app cluster, as a plan sees it."""
    made = put(crd(POSTGRES), "crd-uid", "metadata", "uid")
    made = put(made, list(owners), "metadata", "ownerReferences")
    made = put(made, [{"manager": manager, "operation": "Update"}], "metadata", "managedFields")
    here.clusters["shop"].append(observed(CRD, made))


def request_says(here, parameters):
    place, kind = scenes.PLANE, API_SERVICE_EXPORT_REQUEST
    scenes.change(here, place, kind, POSTGRES, parameters, "spec", "parameters")


def planned(here, mode="Direct", more=""):
    return scenes.acting(here.plan(scenes.shop(scenes.binding(more=more), mode=mode)))


@pytest.mark.parametrize("mode", scenes.MODES)
@pytest.mark.parametrize("owners", [[], [ELSEWHERE], [OTHER_KIND]], ids=["no", "old", "other"])
def test_a_crd_whose_binding_was_made_again_gets_it_as_its_owner(mode, owners):
    here, _ = bound(mode)
    install(here, *owners)
    (line,) = planned(here, mode)
    assert (line.action, line.ref.kind, line.ref.cluster) == (Action.UPDATE, CRD, "shop")
    assert [step.verb for step in line.steps] == [Verb.OWN]
    assert (line.uid, line.before != "") == ("crd-uid", True)


@pytest.mark.parametrize("mode", scenes.MODES)
def test_a_crd_of_the_live_binding_is_in_sync(mode):
    here, live = bound(mode)
    install(here, OTHER_KIND, reference(uid_of(live)))
    assert planned(here, mode) == []


def test_a_crd_of_another_live_binding_is_left_alone():
    here, live = bound()
    other = put(put(live, "another", "metadata", "uid"), "elsewhere", "metadata", "namespace")
    here.control_plane.append(other)
    install(here, {**ELSEWHERE, "uid": "another"})
    assert planned(here) == []


def test_a_crd_gets_no_owner_where_the_garbage_collector_would_not_find_it():
    here, _ = bound(scenes.ACB)
    install(here, ELSEWHERE)
    wanted = scenes.shop(mode=scenes.ACB)
    live = here.live(wanted)
    app = replace(live.clusters["shop"], bindings_cluster_scoped=True)
    plan = planner.plan(wanted, replace(live, clusters={"shop": app}))
    assert not scenes.acting(plan)


def test_a_binding_that_is_adopted_leaves_its_crd_as_it_is():
    here, live = bound()
    here.clusters["shop"].remove(live)
    here.clusters["shop"].append(put(live, {}, "metadata", "labels"))
    install(here, ELSEWHERE)
    assert [one.action for one in planned(here)] == [Action.ADOPT]


def test_parameters_that_were_asked_for_and_are_not_wanted_any_more_are_asked_for_anew():
    here, _ = bound()
    request_says(here, {"size": "large"})
    (line,) = planned(here)
    assert (line.action, line.ref.kind) == (Action.REPLACE, API_SERVICE_EXPORT_REQUEST)


def test_a_request_of_others_does_not_show_what_was_asked_for():
    here, _ = bound()
    request_says(here, {"size": "large"})
    scenes.change(
        here, scenes.PLANE, API_SERVICE_EXPORT_REQUEST, POSTGRES, {}, "metadata", "labels"
    )
    assert Action.REPLACE not in {one.action for one in planned(here)}


@pytest.mark.parametrize("mode", scenes.MODES)
def test_a_cluster_that_is_to_be_deleted_is_not_marked_as_released_before(mode):
    """What is marked is not looked at again: who dies after the mark would leave it for ever."""
    here, _ = bound(mode)
    here.in_use["shop"] = {POSTGRES: 0}
    left = here.plan(
        scenes.fleet(scenes.plane(mode=mode), prune="allowEmpty: true, onClusterLeave: Delete")
    )
    (whole,) = [one for one in left.changes if one.subject == "cluster"]
    assert whole.action is Action.DELETE
    assert Verb.RETIRE not in {step.verb for step in whole.steps}
    assert whole.steps[-1].verb is Verb.DELETE_EMPTY
