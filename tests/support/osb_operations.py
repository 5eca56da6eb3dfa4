"""The operations of a scripted broker: how they go on, end, and whom they keep waiting."""

import secrets
from collections.abc import Callable, Iterator

from tests.support.osb_inventory import Inventory, Modes, Operation, Place, dashboard
from tests.support.osb_wire import MUTATING, Asked, Members, Said, failure, said

_STATES = {"provision": "creating", "bind": "creating", "update": "updating"}
_ENDS = {"deprovision": True, "unbind": True}


class Operations:
    """The last operation of each instance and binding."""

    def __init__(
        self, inventory: Inventory, modes: Callable[[], Modes], now: Callable[[], float]
    ) -> None:
        self._inventory, self._modes, self._now = inventory, modes, now
        self._last: dict[Place, Operation] = {}
        self._heard: set[Place] = set()  # of which the platform knows that they are in progress

    def of(self, place: Place) -> Operation | None:
        return self._last.get(place)

    def is_busy(self, instance: str) -> bool:
        """Return whether anything is in progress on an instance, its bindings included."""
        return any(
            one.state == "in progress" and place[0] == instance and self._inventory.get(place)
            for place, one in self._last.items()
        )

    def breaches(self, asked: Asked) -> Iterator[str]:
        """Yield what is wrong with a request, as the platform knows what is in progress."""
        last = self.of(asked.place)
        if asked.verb in ("poll", "poll-binding"):
            stated = asked.query.get("operation", "")
            is_known = bool(stated) or asked.place in self._heard
            if last is not None and is_known and stated != last.key:
                yield "last_operation with another operation than was given"
            return
        if asked.verb not in MUTATING or asked.method == "DELETE":
            return  # a delete may end what is being made
        held = self._inventory.get
        others = [place for place in self._heard if place[0] == asked.instance and held(place)]
        is_repeat = (
            last is not None and last.verb == asked.verb and others == [asked.place]
        ) and last.body == asked.members
        if others and not is_repeat:
            yield "a second operation while one is in progress"

    def hear(self, asked: Asked, status: int) -> None:
        """Note that the platform knows of an operation, or that there is none any more.

        A GET answers 404 or 422 until what makes or changes it has ended.
        """
        last = self.of(asked.place)
        goes_on = asked.verb not in MUTATING and last is not None and last.state == "in progress"
        if status == 202:
            self._heard.add(asked.place)
        elif status in (200, 201) and not goes_on:
            self._heard.discard(asked.place)

    def unhear(self, place: Place) -> None:
        """Note that the platform died with the last answer about a place."""
        self._heard.discard(place)

    def begin(self, asked: Asked) -> Said | None:
        """Begin an operation; None says that it is done within its request."""
        modes = self._modes()
        fails = modes.failing[asked.verb] > 0
        modes.failing[asked.verb] -= fails
        if asked.verb not in modes.asynchronous or "accepts_incomplete" not in asked.query:
            self._last.pop(asked.place, None)
            self._heard.discard(asked.place)
            return self._failed_at_once(asked) if fails else None
        operation = self._new(asked, polls=modes.polls, fails=fails)
        self._inventory.change(asked.place, state=_STATES.get(asked.verb, "deleting"))
        return self.accepted(operation)

    def _new(self, asked: Asked, *, polls: int, fails: bool = False) -> Operation:
        modes = self._modes()
        key = f"task:{secrets.token_hex(4)}/ä&=" if modes.gives_operation else ""
        fixed = (asked.verb, asked.members, key, self._now(), polls, modes.takes, fails)
        made = Operation(*fixed, dashboard=dashboard(asked.instance))
        self._last[asked.place] = made
        self._heard.discard(asked.place)
        return made

    def _failed_at_once(self, asked: Asked) -> Said:
        if asked.verb in ("provision", "bind"):
            self._inventory.change(asked.place, state="failed")
        return failure(500, "", f"the {asked.verb} has failed", **self._hints(asked.verb))

    def again(self, asked: Asked) -> Said:
        """Answer 202 to what is done: a broker that looks at it anew."""
        return self.accepted(self._new(asked, polls=0))

    def accepted(self, operation: Operation) -> Said:
        """Return the 202 of an operation."""
        members = {"operation": operation.key} if operation.key else {}
        if operation.verb == "provision":  # else it would never be said
            members["dashboard_url"] = operation.dashboard
        return said(202, members)

    def busy(self, instance: str) -> Said:
        """Return the refusal of a second operation; the first goes on, who ever asks."""
        for place, one in self._last.items():
            if place[0] == instance:
                one.polls = max(one.polls - 1, 0)
        return failure(422, "ConcurrencyError", "another operation is in progress")

    def settle(self) -> None:
        """Let all end whose time has come."""
        now = self._now()
        for place, one in list(self._last.items()):
            if one.state == "in progress" and not one.polls and now >= one.since + one.takes:
                self._end(place, one)

    def _end(self, place: Place, operation: Operation) -> None:
        operation.state = "failed" if operation.fails else "succeeded"
        is_new = operation.verb in ("provision", "bind")
        if operation.fails:
            self._inventory.change(place, state="failed" if is_new else "present")
        elif operation.verb in _ENDS:
            self._inventory.lose(place)
        elif operation.verb == "update":
            self.apply_update(place, operation.body)
        else:
            self._inventory.change(place, state="present")

    def apply_update(self, place: Place, stated: Members) -> None:
        """Change an instance as an update said."""
        known = self._inventory.get(place) or {}
        named = ("plan_id", "maintenance_info", "context")
        changed = {name: stated[name] for name in named if name in stated}
        if "parameters" in stated:
            merged = {**known.get("parameters", {}), **stated["parameters"]}
            given = {key: value for key, value in merged.items() if value is not None}
            changed["parameters"] = given
        self._inventory.change(place, **changed, state="present")

    def poll(self, asked: Asked) -> Said:
        modes, operation = self._modes(), self.of(asked.place)
        if operation is None:
            known = self._inventory.get(asked.place)
            if known is None:
                return failure(modes.unknown_poll, "", "there is no such thing")
            state = {"present": "succeeded"}.get(known["state"], known["state"])
            return said(200, {"state": state})
        if operation.state == "in progress":
            operation.polls = max(operation.polls - 1, 0)
            headers = {} if modes.retry_after is None else {"Retry-After": str(modes.retry_after)}
            return Said(200, b'{"state":"in progress","description":"at work"}', headers)
        self._heard.discard(asked.place)
        if operation.verb in _ENDS and operation.state == "succeeded" and modes.gone_poll != 200:
            return said(modes.gone_poll)
        hints = self._hints(operation.verb) if operation.state == "failed" else {}
        return said(200, {"state": operation.state, "description": operation.state, **hints})

    def _hints(self, verb: str) -> Members:
        modes = self._modes()
        hints = {
            "instance_usable": modes.instance_usable,
            "update_repeatable": modes.update_repeatable,
        }
        is_update = verb == "update"
        return {key: value for key, value in hints.items() if is_update and value is not None}
