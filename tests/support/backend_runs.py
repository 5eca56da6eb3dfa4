"""Backends that come and go while a story is told, and the state that each act ends in."""

from collections.abc import Sequence
from typing import Final

from reconciler.controller.elections import Term
from reconciler.core.manifest import is_deleting, name_of, namespace_of
from reconciler.core.refs import NAMESPACE, SERVICE_ACCOUNT
from tests.support.backend import AGENT, backend
from tests.support.backend_states import end_state, found
from tests.support.backend_stories import Act, Tenant
from tests.support.clusters import Write
from tests.support.cues import AFTER
from tests.support.end_states import differences
from tests.support.eventually import eventually
from tests.support.faults import Crash, Faults, deeds, survives
from tests.support.settled import settled

State = dict[str, str]

_USUAL: Final = "default"  # what that account is called

_MANY_WRITES: Final = 60
_LONG: Final = 180.0  # seconds; namespaces go slowly


async def undisturbed(tenant: Tenant, story: Sequence[Act]) -> list[State]:
    """Tell a story with one backend that lives through it; return how each act ends."""
    ends = list[State]()
    async with backend(tenant.plane.connection, clock=tenant.clock) as made:
        for act in story:
            await act.deed(tenant)
            await eventually(lambda act=act: act.goal(tenant), within=_LONG)  # type: ignore[misc]
            ends.append(await _settled(made, tenant))
    return ends


async def comes_to(
    tenant: Tenant,
    end: State,
    told: str = "",
    *,
    faults: Faults | None = None,
    in_peace: bool = True,
) -> None:
    """Let a backend work until the tenant is in that state, and nothing is left to do.

    Where it is not left in peace, there is always something to look at. Raises SimulatedCrash
    where the faults say so.
    """
    meeting = faults or Faults()
    async with backend(tenant.plane.connection, clock=tenant.clock, faults=meeting) as made:

        async def alike() -> bool:
            meeting.still_alive()
            if in_peace and made.metrics.activity.queued():
                return False
            found = differences(end, await end_state(tenant.plane.cluster, tenant.word))
            assert not found, "\n".join((told, *found))
            return not in_peace or not made.metrics.activity.queued()

        await eventually(alike, within=_LONG)


async def dies_after_every_write(tenant: Tenant, end: State) -> int:
    """Let backends work each of which dies after its first write; return how many died."""
    for place in range(_MANY_WRITES):
        faults = Faults()
        # Others may have left what every backend tries to mend first.
        faults.add(deeds(of=tenant.word).nth(1), Crash(), at=AFTER)
        if await survives(comes_to(tenant, end, "a death after every write", faults=faults)):
            return place
    raise AssertionError(f"it has not come to its end after {_MANY_WRITES} writes")


async def writes_of_a_start(tenant: Tenant) -> list[Write]:
    """Return what a new backend writes about the tenant until it is idle, Events aside."""
    mark = tenant.plane.audit.mark()
    async with backend(tenant.plane.connection, clock=tenant.clock) as made:
        await settled(made)
    return [
        one
        for one in tenant.plane.audit.writes_since(mark)
        if one.agent == AGENT and one.resource != "events" and _concerns(one, tenant.word)
    ]


async def _settled(made: Term, tenant: Tenant) -> State:
    """Return the state once neither the backend nor others change it.

    To each new namespace, a control plane adds an account of its own.
    """
    await eventually(lambda: _all_have_accounts(tenant), within=_LONG)
    await settled(made, within=_LONG)
    return await end_state(tenant.plane.cluster, tenant.word)


async def _all_have_accounts(tenant: Tenant) -> bool:
    held = await found(tenant.plane.cluster, tenant.word)
    there = {name_of(one) for kind, one in held if kind == NAMESPACE and not is_deleting(one)}
    accounts = [one for kind, one in held if kind == SERVICE_ACCOUNT]
    return there <= {namespace_of(one) for one in accounts if name_of(one) == _USUAL}


def _concerns(write: Write, word: str) -> bool:
    """Tell whether a write is about a tenant. Of what is made without a namespace, nobody can."""
    return word in f"{write.namespace} {write.name}" or not (write.namespace or write.name)
