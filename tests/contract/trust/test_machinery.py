"""Crossplane's machinery is out of reach: from an app cluster, and with a space's own token.

One table of attempts for both. What a konnector carried before an export left it out stays.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reconciler.blueprints import policies
from reconciler.core import field_set, keys, names
from reconciler.core.errors import Rejected
from reconciler.core.manifest import uid_of
from tests.support import composed
from tests.support.bound_scenes import Scene, conditions, until
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector_crds import crd_of
from tests.support.konnector_scenes import Story, story
from tests.support.policed import REFUSED, Attempt, answers, applied, enforced, merged, user_of
from tests.support.settled import settled

READS = ("get", "list", "watch")
OWN: Any = {"apiVersion": "x.example/v1", "kind": "X", "name": "own"}
LINES = pytest.mark.parametrize("second", [False, True], ids=["1.20", "2.x"])


async def exported(scene: Scene) -> bool:
    version = (await crd_of(scene.app, scene) or {}).get("spec", {}).get("versions", [{}])[0]
    return [one["name"] for one in version.get("additionalPrinterColumns", ())] == ["C"]


@LINES
async def test_neither_an_app_cluster_nor_a_token_reaches_what_is_anothers(
    scene: Scene, second: bool
) -> None:
    await composed.compose(scene, second=second)
    await composed.note_template(scene, {keys.COMPOSITIONS: "small, large"})
    async with story(scene) as account:
        crd: Any = await crd_of(scene.app, scene)
        place = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        place = place["properties"]["crossplane"] if second else place
        assert {*place["properties"]} - {"size"} == {"compositionRef"}
        assert place["required"] == ["compositionRef"]
        assert place["x-kubernetes-validations"] == [{"rule": "has(self.compositionRef)"}]
        assert await exported(scene)
        said = conditions(await scene.export())["ProviderInSync"]["message"]
        for word in ("selectableFields", "compositionUpdatePolicy", "resourceRef"):
            assert word in said

        # What a developer says is pruned, or refused; all of it at once, and one by one.
        spec = partial(composed.placed, second=second)
        table = composed.attempts(second=second)
        with pytest.raises(Rejected):
            await account.here.make(spec=spec({"compositionRef": {"name": "admins"}}))
        with pytest.raises(Rejected):
            await account.here.make(spec=spec(table))
        await account.settle(spec=spec({**table, **composed.SMALL}), manager="developer")
        await settled(account.made)
        filled = {"compositionUpdatePolicy": "Automatic"}
        filled |= {} if second else {"compositeDeletePolicy": "Foreground"}
        assert await account.here.spec() == spec(composed.SMALL)
        assert await account.there.spec() == spec({**composed.SMALL, **filled})

        await with_a_token(scene, account, second=second)


async def with_a_token(scene: Scene, account: Story, *, second: bool) -> None:
    spec = partial(composed.placed, second=second)
    kind = scene.offer.kind
    typed = {"apiVersion": kind.api_version, "kind": kind.kind}
    path = f"/apis/{kind.api_version}/namespaces/{scene.service_namespace}/{kind.plural}"
    anew = {**typed, "metadata": {"name": "anew"}}
    old = {**typed, "metadata": {"name": "orders"}}
    tries: dict[str, Attempt] = {"the whole": merged(f"{path}/orders", spec=None)}
    for name, value in composed.attempts(second=second).items():
        wanted = spec({**composed.SMALL, name: value})
        tries[f"{name}, changed"] = merged(f"{path}/orders", spec=wanted)
        tries[f"{name}, applied"] = applied(path, "orders", **old, spec=wanted)
        if name not in ("compositionUpdatePolicy", "compositeDeletePolicy"):
            tries[f"{name}, anew"] = Attempt("POST", path, {**anew, "spec": wanted})
    for name, one in composed.MARKS:
        marked = {name: {f"crossplane.io/{one}": "theirs"}}
        tries[f"{name} {one}, changed"] = merged(f"{path}/orders", metadata=marked)
        tries[f"{name} {one}, applied"] = applied(
            path, "orders", **{**old, "metadata": {"name": "orders", **marked}}
        )
        new = {**anew, "metadata": {"name": "anew", **marked}, "spec": spec(composed.SMALL)}
        tries[f"{name} {one}, anew"] = Attempt("POST", path, new)
    await account.there.patch({"metadata": {"labels": {"crossplane.io/composite": "own"}}})
    gone = {"labels": {"crossplane.io/composite": None}}
    tries["a label, gone"] = merged(f"{path}/orders", metadata=gone)
    held = "resourceRefs" if second else "resourceRef"
    tries[f"{held}, gone"] = merged(f"{path}/orders", spec=spec({held: None}))
    await account.there.patch({"spec": spec({held: [OWN] if second else OWN})})
    allowed = {
        "a size": merged(f"{path}/orders", spec={"size": "9Gi"}),
        "a label": merged(f"{path}/orders", metadata={"labels": {"team": "red"}}),
        "a composition": merged(f"{path}/orders", spec=spec({"compositionRef": {"name": "large"}})),
        "a new one": Attempt("POST", path, {**anew, "spec": spec(composed.SMALL)}),
    }
    token, shipped = await scene.token(), policies.binder()
    user = user_of(scene.space, names.BINDER)
    policy = replace(shipped, name=scene.space, accounts=f"request.userInfo.username == '{user}'")
    plane = scene.plane
    async with enforced(plane.cluster, plane.connection, policy.manifests(), user):
        mark = plane.audit.mark()
        found = await answers(plane.connection, token, [*tries.values(), *allowed.values()])
        logged = await eventually(partial(answered_to, plane, user, mark, len(found)))
    refused = [
        (name, one)
        for name, one in zip(tries, found, strict=False)
        if one[0] != 403 or REFUSED not in one[1]
    ]
    assert refused == []
    assert Counter(code < 300 for code in logged) == {False: len(tries), True: len(allowed)}
    assert [one for one in found[len(tries) :] if one[0] >= 300] == []


async def answered_to(plane: LiveCluster, user: str, mark: int, number: int) -> list[int]:
    """Return the codes of a user's writes as the audit log has them, once it has them all."""
    events = [one for one in plane.audit.events_since(mark) if one["user"]["username"] == user]
    ended = [one for one in events if one["stage"] == "ResponseComplete"]
    codes = [one["responseStatus"]["code"] for one in ended if one["verb"] not in READS]
    assert len(codes) == number
    return codes


async def test_what_was_carried_before_stays_on_copies(scene: Scene) -> None:
    """As claims have it that were adopted before: of some fields a konnector is the one writer."""
    await composed.compose(scene)
    every = ",".join({*composed.attempts(second=False)} - {"compositionRef"})
    await composed.note_template(scene, {keys.OPEN_MACHINERY: every})
    machinery = {"resourceRef": OWN, "compositionRevisionRef": {"name": "r1"}}
    spec = {**composed.placed(machinery, second=False), **composed.SMALL}
    async with story(scene) as account:
        await account.settle("made", spec=spec, manager="developer")
        await account.there.make("born", spec=spec)
        await until(lambda: account.here.read("born"))
        await account.here.patch({"spec": {"size": "2Gi"}}, "born")
        await until(partial(has_size, account, "born", "2Gi"))
        assert (await account.here.spec("born"))["resourceRef"] == OWN
        before = {name: uid_of(await account.there.read(name)) for name in ("made", "born")}
        assert await owned(account, "made") == await owned(account, "born") == {*machinery}

        await composed.note_template(scene, {keys.OPEN_MACHINERY: None})
        for name, uid in before.items():
            await until(partial(is_let_be, account, name))
            await account.here.patch({"spec": {"size": "3Gi"}}, name)
            await until(partial(has_size, account, name, "3Gi"))
            live = await account.there.read(name)
            assert uid_of(live) == uid
            assert {**live["spec"], **spec, "size": "3Gi"} == live["spec"]


async def has_size(account: Story, name: str, size: str) -> bool:
    return bool((await account.there.spec(name))["size"] == size)


async def owned(account: Story, name: str) -> set[str]:
    """Return the machinery of a copy that konnectors wrote."""
    fields = field_set.owned(await account.there.read(name), keys.MANAGER_KONNECTOR)
    return {*field_set.names_at(fields, "spec")} & {"resourceRef", "compositionRevisionRef"}


async def is_let_be(account: Story, name: str) -> bool:
    spec = await account.here.spec(name)
    return "resourceRef" not in spec and await owned(account, name) == set()
