"""How a ServiceBinding is served: a login of its own, and a Secret that tells it. Pure.

A password is in its Secret only, and made anew wherever the Secret and the server do not agree:
after a rotation, a lost Secret, an edit by hand, a crash between the two writes.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from postgresql_operator.instance import RESYNC, is_ready
from postgresql_operator.outcome import (
    PENDING,
    READY,
    Outcome,
    Work,
    hold,
    holds,
    release,
    reported,
    waiting,
)
from postgresql_operator.wire import (
    BINDING,
    CREDENTIALS,
    ROTATE,
    SERVICE,
    database_of,
    login_of,
    phase_of,
    secret_of,
)
from postgresql_server import scram
from postgresql_server.works import LetIn, Place, Role, ShutOut, credentials
from reconciler.core.conditions import ERROR, Cause, false, true
from reconciler.core.decision import Apply, Create, Decision, Note, Task, deletion
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    covers,
    get_maps,
    get_text,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret

BOUND: Final = "Bound"
_SOON: Final = timedelta(seconds=30)  # nothing tells when a Secret of somebody else goes


@dataclass(frozen=True, slots=True)
class Seen:
    """`role` and `secret` are what is there under the names that belong to the binding.

    `fresh` is a new password, for the case that one is needed.
    """

    cluster: str
    binding: Manifest = field(repr=False)
    instance: Manifest | None = field(repr=False)
    place: Place
    role: Role | None
    secret: Manifest | None = field(repr=False)
    fresh: Secret


def decide(seen: Seen) -> Outcome:
    """Return what is to be done for the object as it is now."""
    binding, instance = seen.binding, seen.instance
    if is_deleting(binding):
        return _leaves(seen) if holds(binding) else Outcome()
    if instance is None or not is_ready(instance):
        # What is bound stays as it is, as far as the instance allows.
        return _waits(seen, "InstanceNotReady", "is not there or not ready")
    if is_deleting(instance) and not _is_member(seen, database_of(instance)):
        return _waits(seen, "InstanceDeleting", "is being deleted")
    if not holds(binding):
        return hold(seen.cluster, BINDING, binding)
    if seen.secret is not None and not _is_ours(seen.secret, binding):
        why = f"there is a Secret {secret_of(binding)} that is not of this ServiceBinding"
        taken = false(Cause(BOUND, ERROR, "SecretTaken"), why)
        return Outcome(decision=Decision(conditions=(taken,), again=_SOON))
    return _serves(seen, database_of(instance))


def _serves(seen: Seen, database: str) -> Outcome:
    kept = _kept(seen, database)
    password = kept or seen.fresh
    role = login_of(seen.binding)
    works = list[Work]()
    if seen.role is not None and not _is_member(seen, database):
        works.append(ShutOut(role))  # of an instance that had the same name
    if kept is None:
        works.append(LetIn(role, database, password))
    news = Note("Bound", f"the credentials are in Secret {secret_of(seen.binding)}")
    rotated = Note("Rotated", f"there is a new password in Secret {secret_of(seen.binding)}")
    fresh = phase_of(seen.binding) != READY
    return Outcome(
        works=tuple(works),
        decision=Decision(
            tasks=_secret_tasks(seen, database, password),
            conditions=(true(BOUND),),
            fields={"phase": READY, "secretName": secret_of(seen.binding)},
            notes=(news,) if fresh else (rotated,) if kept is None else (),
            again=RESYNC,
        ),
    )


def _kept(seen: Seen, database: str) -> Secret | None:
    """Return the password that stays, None where there has to be a new one."""
    if seen.secret is None or seen.role is None or not _is_member(seen, database):
        return None
    asked = annotations_of(seen.binding).get(ROTATE)
    if asked is not None and asked != annotations_of(seen.secret).get(ROTATE):
        return None
    password = _password(seen.secret)
    return password if password and scram.fits(seen.role.verifier, password) else None


def _password(secret: Manifest) -> Secret:
    try:
        return Secret(base64.b64decode(get_text(secret, "data", "password")).decode())
    except ValueError:
        return Secret("")


def _secret_tasks(seen: Seen, database: str, password: Secret) -> tuple[Task, ...]:
    binding, secret = seen.binding, seen.secret
    wanted = _manifest(seen, database, password)
    failure = Cause(BOUND, ERROR, "SecretNotWritten")
    if secret is None:
        return (Task((Create(SECRET, wanted),), failure),)
    if covers(secret, wanted):
        return ()
    # Only as it was looked at: one that went meanwhile, or changed, is looked at again.
    metadata = {"uid": uid_of(secret), "resourceVersion": resource_version_of(secret)}
    stated: Manifest = {**wanted, "metadata": {**_metadata(binding), **metadata}}
    return (Task((Apply(SECRET, stated),), failure),)


def _manifest(seen: Seen, database: str, password: Secret) -> dict[str, JSON]:
    values = credentials(seen.place, LetIn(login_of(seen.binding), database, password))
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "type": "Opaque",
        "metadata": _metadata(seen.binding),
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()},
    }


def _metadata(binding: Manifest) -> Mapping[str, JSON]:
    owner = {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "name": name_of(binding),
        "uid": uid_of(binding),
    }
    asked = annotations_of(binding).get(ROTATE)
    service = {key: text for key, text in labels_of(binding).items() if key == SERVICE}
    return {
        "name": secret_of(binding),
        "namespace": namespace_of(binding),
        "labels": {CREDENTIALS: "true", **service},
        "ownerReferences": [owner],
        **({} if asked is None else {"annotations": {ROTATE: asked}}),
    }


def _waits(seen: Seen, reason: str, why: str) -> Outcome:
    wanted = get_text(seen.binding, "spec", "instanceRef")
    condition = waiting(BOUND, reason, f"Postgresql {wanted} {why}")
    return reported(condition, {} if phase_of(seen.binding) == READY else {"phase": PENDING})


def _leaves(seen: Seen) -> Outcome:
    """Return the end: first nobody gets in, then the Secret goes, then the object."""
    ending = [release(seen.cluster, BINDING, seen.binding)]
    if seen.secret is not None and _is_ours(seen.secret, seen.binding):
        steps = (deletion(seen.cluster, SECRET, seen.secret), *ending[0].steps)
        ending = [Task(steps)]
    return Outcome((ShutOut(login_of(seen.binding)),), Decision(tuple(ending)))


def _is_member(seen: Seen, database: str) -> bool:
    return seen.role is not None and seen.role.member_of == {database}


def _is_ours(secret: Manifest, binding: Manifest) -> bool:
    owners = get_maps(secret, "metadata", "ownerReferences")
    return any(get_text(one, "uid") == uid_of(binding) for one in owners)
