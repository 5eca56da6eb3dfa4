"""Defects that the tests have to notice: each is one change of one place in the product.

A mutation names the text alone, so that it survives when modules are renamed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_UNIT: Final = "tests/unit/konnector"
_SEARCHES: Final = "tests/model/test_backend_searches.py"
_TURNS: Final = "tests/unit/kube/test_turns.py"
_MODEL: Final = "tests/model/test_konnector_"
_BIND: Final = "tests/unit/bind"
_SOURCE: Final = "tests/unit/source"
_INSTANCE: Final = f"{_UNIT}/test_instance.py"
_CRD: Final = f"{_UNIT}/test_crd.py"
_CONTENT: Final = f"{_UNIT}/test_claimed_content.py"
_GUARD: Final = f"{_UNIT}/test_guard.py"
_BURSTS: Final = f"{_MODEL}bursts.py"
_ANOTHER: Final = f"{_MODEL}another_namespace.py"
_COPIED: Final = "tests/contract/trust/test_t16_lost_copies.py"
_LIVES: Final = "tests/model/test_histories.py"
_NEVER: Final = "if False:"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old` is a regular expression with one place in the package; `tests` have to fail."""

    name: str
    old: str
    breaks: str
    tests: tuple[str, ...]
    new: str = ""
    package: str = ""


def _guard(
    name: str, condition: str, breaks: str, *tests: str, then: str = "", package: str = ""
) -> Mutation:
    """Return the mutation that takes a condition away, with all that depends on it.

    `then` is what follows the condition, where there are others like it.
    """
    following = rf"(?=\s+{then})" if then else ""
    return Mutation(name, rf"if {condition}:{following}", breaks, tests, _NEVER, package)


def _blind(name: str, compared: str, answer: str, *tests: str) -> Mutation:
    """Return the mutation that does not ask whether an object is the one meant, and stays."""
    return Mutation(name, compared, "another one counts as the one meant", tests, answer)


@cache
def _product(root: Path) -> Sequence[tuple[Path, str]]:
    folders = ("bind", "klutchctl", "konnector", "reconciler")
    files = (file for folder in folders for file in sorted((root / folder).rglob("*.py")))
    return [(file, file.read_text()) for file in files]


def places(mutation: Mutation, root: Path) -> Sequence[tuple[Path, str]]:
    """Return the files with the text of a mutation, and each of them mutated."""
    return [
        (file, re.sub(mutation.old, mutation.new, text))
        for file, text in _product(root)
        if file.is_relative_to(root / mutation.package)
        for _ in re.finditer(mutation.old, text)
    ]


CLAIMS: Final = (
    _guard(
        "lost-claim-unread",
        r"not seen\.claim_gone",
        "a copy counts as an orphan because a view is behind",
        _INSTANCE,
    ),
    _guard(
        "finalizer-of-others",
        r"freed is None",
        "a claim without our finalizer is written while it goes",
        _INSTANCE,
        then="return NOTHING",
    ),
    _guard(
        "mass-deletion",
        r"seen\.delete_guard",
        "copies go with a CRD that somebody deletes",
        f"{_MODEL}instances.py",
    ),
    _guard(
        "recreation",
        r"seen\.create_guard and \(is_lost or seen\.withdrawn\)",
        "a lost service is replaced by an empty one",
        "tests/contract/trust/test_t16_lost_copies.py",
    ),
    _guard(
        "name-taken",
        r"seen\.taken",
        "a copy is made over an object of another space",
        f"{_MODEL}cluster_scoped.py",
    ),
    _guard(
        "copies-held",
        r"manifest\.is_deleting\(copy\)",
        "nothing tells a claim how the end of its copy goes",
        f"{_MODEL}instances.py",
        then=r"found = claim_status",
    ),
    Mutation(
        "status-up",
        r"_observed\(claim, copy, is_up\) if",
        "the status is not the copy's",
        (f"{_MODEL}instances.py",),
        new="_observed(claim, claim, is_up) if",
    ),
    Mutation(
        "status-nulls",
        r"elif key not in before or not are_equal",
        "a null that comes alone is not written",
        (_INSTANCE,),
        new="elif old != value and not are_equal",
    ),
    Mutation(
        "status-version",
        r'now = \{"value": self\._current_version\(ref, stated\)\}',
        "a status that follows another write of the claim meets a conflict",
        ("tests/model/test_executor.py",),
        new='now = {"value": stated}',
    ),
    Mutation(
        "unserved-claim",
        r"self\.record\(claim, note\)",
        "a claim without a service namespace has no Event",
        (f"{_MODEL}waiting.py",),
        new="pass",
    ),
    Mutation(
        "finalizers-unsaid",
        r'return \(Note\("FinalizersStay".*',
        "a claim does not say that finalizers of others do not travel",
        (_INSTANCE,),
        new="return ()",
    ),
    Mutation(
        "held-elsewhere",
        r"if not _is_of_others\(unit, facts, one\)",
        "one held claim marks all units of its cluster",
        ("tests/unit/health/test_verdict.py",),
        new="if True",
    ),
    Mutation(
        "returned-for-ever",
        r"self\._returns\.note\(.*\)",
        "a field that the provider takes away is written for ever",
        (f"{_MODEL}values.py",),
        new="pass",
    ),
    Mutation(
        "left-whatever-it-says",
        r" and digest\(stated\[key\]\) == value",
        "what a claim says anew stays below, as the provider took something else away",
        (f"{_MODEL}values.py",),
    ),
    Mutation(
        "approval-left",
        r"if approval is None else \{keys\.API_APPROVED: approval\}",
        "a CRD of a protected group comes without its approval",
        (_CRD,),
    ),
    Mutation(
        "replaced-version",
        r"replaced_version\(export, live\)\n",
        "stored claims are read in a version that does not know their fields",
        (_CRD,),
        new='""\n',
    ),
    Mutation(
        "copy-before-finalizer",
        r"steps = \(\*finalizing, decision\.Create",
        "a claim may go while its copy is made",
        (_INSTANCE,),
        new="steps = (decision.Create",
    ),
    _guard(
        "space-of-copy",
        r"not identity\.is_of_space\(copy, self\.space, .*\)",
        "an object of another space whose name begins alike counts as a copy",
        f"{_UNIT}/test_copies.py",
    ),
)
PERMISSION_CLAIMS: Final = (
    _guard(
        "provider-owned-goes-up",
        r'owner not in \("", _CONSUMER\)',
        "a copy that came down goes up again as the developer's own",
        f"{_UNIT}/test_claimed.py",
        _CONTENT,
    ),
    Mutation(
        "nobody-uses-it",
        r"        and rule\.binding in seen\.living\n",
        "credentials come to namespaces that use no service",
        (f"{_UNIT}/test_claimed.py", _CONTENT),
    ),
    Mutation(
        "own-tokens",
        r'manifest\.get_text\(origin, "type"\) in _OF_ONE_CLUSTER\n        or',
        "tokens of the app cluster go up",
        (f"{_UNIT}/test_claimed.py", _CONTENT),
    ),
    _guard(
        "copies-of-another-space",
        r"is_of_another_space\(seen, copy\)",
        "a provider overwrites what another one brought",
        _CONTENT,
        then=r"return \w+\.CONFLICT",
    ),
    Mutation(
        "place-not-free",
        r"word == _PROVIDER or replaced else Way\.CONFLICT",
        "an app's own Secret is overwritten by the provider's of its name",
        (f"{_MODEL}bursts.py",),
        new="True else Way.CONFLICT",
    ),
    Mutation(
        "mark-before-place",
        r"\(\*brought, (\*_marked\(.*?\))\)",
        "an origin is marked before its place is known to be free",
        (_CONTENT,),
        new=r"(\1, *brought)",
    ),
    _guard(
        "end-of-another",
        r"ended and identity\.of_mark\(ended, copy, keys\.ORIGIN_UID\) is not Life\.ANOTHER",
        "nothing that is revoked ever goes",
        _CONTENT,
    ),
    _guard(
        "doubts-no-view",
        r"self\.synced and \(is_former or \(self\._version and self\._stream is None\)\)",
        "a view from before an outage counts before its server is known to be the same",
        "tests/unit/kube/cache/test_informer.py",
        f"{_MODEL}losses.py",
        "tests/model/test_histories.py",
    ),
    Mutation(
        "writes-first",
        r"self\.connectivity\.is_away and request\.method",
        "the first call after an outage writes",
        (f"{_MODEL}losses.py",),
        new="False and request.method",
    ),
    _guard(
        "deletes-by-the-view",
        r"not live or uid_of\(live\) != uid_of\(claim\) or not is_deleting\(live\)",
        "a copy goes for a deletion that a restore took back",
        f"{_MODEL}losses.py",
    ),
    Mutation(
        "lost-with-its-export",
        r"self\._services\.is_losing\(self\.kind, seen\.claim_place\)",
        "credentials go with an export that somebody deletes",
        (f"{_MODEL}bursts.py",),
        new="False",
    ),
    _guard(
        "lost-with-its-namespace",
        r"_TERMINATING in str\(error\)",
        "credentials go with a service namespace that somebody deletes",
        f"{_MODEL}bursts.py",
    ),
    Mutation(
        "rules-for-ever",
        r"            self\._rules = tuple\(rules\)\n",
        "a permission claim that is narrowed or rejected is followed as before",
        (f"{_MODEL}claims_up.py",),
        new="",
    ),
    Mutation(
        "deleted-by-developer",
        r"known = seen\.deleted_at == manifest\.resource_version_of\(origin\)",
        "what a developer deleted comes back although the claim says that it does not",
        (f"{_UNIT}/test_claimed.py", _CONTENT),
        new="known = False",
    ),
    _guard(
        "orphans-go-at-once",
        r"not orphans\.is_orphan\(copy\)",
        "what is gone from the app cluster takes the provider's copy along",
        f"{_UNIT}/test_claimed.py",
        _CONTENT,
        then=r"return \w+\.ORPHAN",
    ),
)
NAMESPACES: Final = (
    _guard(
        "mapping-of-released",
        r"removal\.released",
        "data that were released go with their service namespace",
        f"{_UNIT}/test_namespace.py",
    ),
    _guard(
        "mapping-while-there",
        r"removal\.unsynced or not removal\.gone",
        "a service namespace goes because a view is behind",
        f"{_UNIT}/test_namespace.py",
    ),
    Mutation(
        "mapping-of-ending",
        r" or live is None or _is_ending\(live\):",
        "a mapping is made for a namespace that is on its way out",
        (f"{_UNIT}/test_namespace.py",),
        new=" or live is None:",
    ),
    Mutation(
        "mapping-unmarked",
        r"if not meant and not orphans\.is_orphan\(mapping\):",
        "a mapping goes unconfirmed with a namespace that nobody saw go",
        (f"{_UNIT}/test_namespace.py",),
        new=_NEVER,
    ),
    _guard(
        "two-konnectors",
        r"not before\.answered",
        "the konnector of a clone deletes the data of the original",
        f"{_UNIT}/test_active.py",
        f"{_MODEL}clones.py",
    ),
    Mutation(
        "hesitation",
        r"left if left > timedelta\(\) else None",
        "a new konnector deletes before another one can answer",
        (f"{_UNIT}/test_active.py",),
        new="None",
    ),
)
IDENTITY: Final = (
    _blind("claim-uid", r"identity\.of_mark\(.*, copy, keys\.CL.*\)", "Life.SAME", _LIVES),
    _blind("mapped-uid", r"identity\.of_mark\(uid, .*(?= is)", "Life.SAME", _GUARD),
    _blind("own-uid", r"identity\.of_mark\(.*, claim, .*\)", "Life.SAME", _INSTANCE),
    _blind("uid-let-go", r"_life\(.*\) is Life\.ANOTHER(?=:)", "False", _LIVES),
    _blind("uid-joined", r"is_ours and life is Life\.ANOTHER", "False", _INSTANCE),
    _blind("uid-marked", r"(?<=and )life is not Life\.ANOTHER", "True", _INSTANCE),
    _blind("origin-uid", r"identity\.of_mark\(ended, .*(?=:)", "True", _CONTENT),
    _blind("origin-space", r"identity\.of_mark\(seen\.sp.*", "False", _CONTENT),
    _blind("namespace-uid", r"(?<=return )life is Life\.A.*", "False", _LIVES),
    _blind("namespace-unknown", r"not _is_ending\(app_na.*", "False", _ANOTHER),
    _blind("namespace-held", r"unproven or (?=self\.link\.guards\.mismatch)", "", _LIVES),
    _blind("namespace-left", r"identity\.of_mark\(former, .*", "True", _LIVES),
    _blind("app-cluster-uid", r"identity\.recorded_app_c.* - ", "set() - ", _GUARD),
    _blind("space-uid", r"identity\.recorded_spaces - ", "set() - ", _GUARD),
    _blind("space-record", r"recorded and not confirmed", "False", _GUARD),
    _blind("space-left", r"(?<=return )recorded in identity\.lives.*", "True", _LIVES),
    _blind(
        "old-account", r"former not in lives(?= and)", "False", "tests/unit/blueprints/test_rbac.py"
    ),
    _blind("dying-origin", r" or manifest\.is_deleting\(origin\)", "", _BURSTS),
    _blind("copied-uid", r"another and self\.view\.store\.has.*", "False", _COPIED),
    _blind("copy-by-space-name", r" and space_of\(copy\) in lives", "", f"{_UNIT}/test_drain.py"),
    _blind("left-unread", r"bound \| (?=\{)", "", "tests/unit/planning/test_prune_clusters.py"),
    _blind("left-unmarked", r" or not \(is_kept or keys\.REL.*", "", f"{_UNIT}/test_drain.py"),
    _blind("copied-by-any", r"(?<=another and )self\.view\.st.*", "True", _COPIED),
)
EXPORTS: Final = (
    Mutation(
        "late-for-ever",
        r"late = self\._context\.clock\.monotonic\(\) - began > LATE",
        "nothing says that a control plane never answered",
        (f"{_MODEL}waiting.py",),
        new="late = False",
    ),
    Mutation(
        "copy-without-space",
        r"return self\.kind\.namespaced or self\.claim_of\(copy\) == claim",
        "an object of another app cluster's space counts as a copy",
        (f"{_MODEL}two_app_clusters.py",),
        new="return True",
    ),
    Mutation(
        "accepted-by-anybody",
        r"if _CONSUMER in \(rule\.owner, owner\) and not _is_kept\(seen, origin\):",
        "Secrets go up that a permission claim without an owner does not name",
        (f"{_MODEL}canaries.py",),
        new="if True:",
    ),
    Mutation(
        "deletions-of-any-life",
        r"if copy is None or _is_let_go\(seen, claim, copy\):",
        "an old deletion that a restore brings back ends what has the name by now",
        ("tests/contract/trust/test_t16_lost_copies.py",),
        new="if copy is None:",
    ),
    Mutation(
        "uids-after-others",
        r"if not is_anothers\(cluster_binding\):",
        "copies that the original wrote meanwhile count as those of another life",
        (f"{_MODEL}uids.py",),
        new="if True:",
    ),
    _guard(
        "connected-for-ever",
        r"seen\.binding is None or not seen\.syncing",
        "an export is said to be synced that nobody syncs",
        f"{_UNIT}/test_export.py",
    ),
)
GUARDS: Final = (
    Mutation(
        "confirmed-for-ever",
        r"return time is not None and -SKEW <= now - time < HONOURED",
        "a confirmation holds longer than its hour",
        (f"{_UNIT}/test_guard.py",),
        new="return time is not None",
    ),
    Mutation(
        "many-at-once",
        r"most = max\(few, \(living\(\) \+ len\(near\)\) // 2\)",
        "any number of deletions at once counts as meant",
        (f"{_UNIT}/test_guard.py",),
        new="most = len(near) + few",
    ),
    Mutation(
        "restarts-forget",
        r"or self\._written\.get\(sort\) or Counter\(\)",
        "deletions of a former process do not count",
        (f"{_MODEL}losses.py", f"{_MODEL}ending_namespaces.py"),
        new="or Counter()",
    ),
    _guard(
        "deletions-uncounted",
        r"is_uncounted and not await guards\.is_being_deleted\(self\._resource\)",
        "a copy goes before later processes can know of it",
        f"{_MODEL}losses.py",
    ),
    Mutation(
        "marks-taken-away",
        r"for part, some in lost\.items\(\):",
        "a copy is made though a webhook took the finalizer from its claim",
        ("tests/contract/test_konnector_refusals.py",),
        new="for part, some in dict[str, set[str]]().items():",
    ),
    _guard(
        "older-commit",
        r"\(mine := self\._commit\[:_SHOWN\]\) in before\[1:\]",
        "a late job of a pipeline undoes what was applied since",
        "tests/model/test_apply_lock.py",
    ),
    _guard(
        "stranger",
        r"not others or \(live and confirmed == live\)",
        "another app cluster than was recorded counts as the same",
        f"{_UNIT}/test_guard.py",
    ),
)
DRAIN: Final = (
    _guard(
        "drain-beside-sync",
        r"seen\.syncing",
        "instances are let go while they are still synced",
        f"{_UNIT}/test_drain.py",
    ),
    _guard(
        "drain-unsure",
        r"seen\.unsure",
        "a binding is let go on half a view",
        f"{_UNIT}/test_drain.py",
        package="konnector",
    ),
)
SHARED: Final = (
    Mutation(
        "preconditions",
        r'return \{"uid": m\.uid_of\(live\), "resourceVersion": m\.resource_version_of\(live\)\}',
        "patches apply to whatever is there by now",
        (f"{_UNIT}/test_instance_fields.py", "tests/unit/core"),
        new="return {}",
    ),
)
BACKEND: Final = (
    Mutation(
        "export-with-a-mark",
        r"Marks\(annotations=(\{keys\.SOURCE_SPEC_HASH: source_hash\(spec\), \*\*notes\})\)",
        "an export is made with a label that those of the original have not",
        ("tests/unit/bind/test_captures.py",),
        new=r'Marks({"a": "b"}, \1)',
    ),
    Mutation(
        "rights-with-a-mark",
        r"refs\.ROLE_BINDING, names\.BINDER, role, \(space, names\.BINDER\), namespace=namespace",
        "the rights in a service namespace have another name than the original's",
        ("tests/unit/bind/test_captures.py",),
        new='refs.ROLE_BINDING, "binder", role, (space, names.BINDER), namespace=namespace',
    ),
    Mutation(
        "networks-of-a-tenant",
        r'if get_text\(each, "name"\) not in forced',
        "a tenant's overrides say where a konnector's kubeconfig may lead",
        (
            "tests/unit/blueprints/test_konnector.py",
            f"{_BIND}/test_app_cluster_binding_konnector.py",
        ),
        new="if each",
    ),
    Mutation(
        "networks-only-of-flags",
        r"replace\(stated, beside=networks\.of_environment\(environ\)\)",
        "a konnector obeys the arguments of a tenant alone",
        ("tests/unit/konnector/test_settings.py",),
        new="stated",
    ),
    Mutation(
        "release-deletes",
        r"if _deletes\(seen\) else _rest",
        "an AppClusterBinding that is deleted takes the data along",
        ("tests/model/test_backend_app_cluster_bindings.py",),
        new="if True else _rest",
    ),
    Mutation(
        "force-is-ignored",
        r"return .*\(keys\.FORCE_CLEANUP\) == \"true\"",
        "what a dead konnector holds is held for ever",
        ("tests/model/test_backend_app_cluster_bindings.py",),
        new="return False",
    ),
    _guard(
        "taken-space-is-cleaned",
        r"standing is \w+\.TAKEN",
        "the deletion of one AppClusterBinding empties the space of another",
        _BIND,
        then=r"return _ends",
    ),
    _guard(
        "found-space-goes",
        r"(?:\w+\.)?was_found\(seen, space\) and not (?:\w+\.)?is_deleting\(namespace\)",
        "a Namespace goes that was there before it became a binding space",
        _BIND,
    ),
    Mutation(
        "rights-of-dead-spaces",
        r"if manifest\.namespace_of\(one\) in gone and",
        "the next account of a name has the rights of the former one",
        (f"{_BIND}/test_service_namespace.py", "tests/contract/trust/test_s01_former_spaces.py"),
        new="if False and",
    ),
    Mutation(
        "space-by-binding-name",
        r"(?<=    recorded = identity\.recorded\(space\.namespace, keys\.APP_CLUSTER_BINDING_UID\))"
        r"\n    if recorded in",
        "the next AppClusterBinding of a name is given the space of the former one",
        (f"{_BIND}/test_app_cluster_binding_cleanup.py",),
        new="\n    if True or recorded in",
    ),
    Mutation(
        "kinds-searched-again",
        r"self\._clean\.add\(kind\.resource\)",
        "each namespace that ends costs a call for each CRD",
        ("tests/model/test_backend.py",),
        new="pass",
    ),
    Mutation(
        "unconfirmed-exports",
        r" if one not in unconfirmed\]",
        "rights go while a konnector still syncs",
        (_BIND,),
        new="]",
    ),
    Mutation(
        "future-heartbeats",
        r"return api\.liveness\(",
        "a konnector that lies about time is waited for, for ever",
        (_BIND,),
        new="return beat is not None or api.liveness(",
    ),
    Mutation(
        "request-of-others",
        r"requests = \[one for one in space\.requests if (?:\w+\.)?is_ours\(one, seen\)\]",
        "requests go that others made",
        (_BIND,),
        new="requests = list(space.requests)",
    ),
    Mutation(
        "queue-of-all-tenants",
        r"party=partial\(_party_of, informers, name, reconciler\),",
        "many requests of one tenant delay those of all others",
        ("tests/model/test_backend_app_cluster_bindings.py",),
        new="party=lambda _: Party(),",
    ),
    _guard(
        "half-made-service-namespace",
        r"steps := \w+\(seen, live\) or \(\*_stamped\(seen, live\), \*_rights\(seen, scope\)\)",
        "a backend that dies after a service namespace leaves it without its rights",
        "tests/model/test_backend_crashes.py",
    ),
)
_PLANNING: Final = "tests/unit/planning"
PLANNING: Final = (
    Mutation(
        "notes-of-tenants",
        r"\*index\.inside\(api\.API_SERVICE_BINDING, place\)",
        "what a tenant notes in an app namespace counts for the Secret of the konnector",
        ("tests/unit/planning/test_credentials.py",),
        new="*index.all(api.API_SERVICE_BINDING)",
    ),
    Mutation(
        "notes-about-others",
        r"noted = own if namespace == beside else others",
        "what a tenant notes about a Secret elsewhere replaces what its owner says",
        ("tests/unit/planning/test_credentials.py",),
        new="noted = own",
    ),
    _guard(
        "binding-without-a-note",
        r"noted != api\.credential_note\(facts, salt\)",
        "no plan without rights on Secrets sees that a kubeconfig is out of date",
        "tests/unit/planning/test_credentials.py",
    ),
    Mutation(
        "unknown-is-none",
        r"if count == 0 or \(meant",
        "what nobody could count counts as unused",
        (_PLANNING,),
        new="if not count or (meant",
    ),
    _guard(
        "empty-fleet",
        r"not fleet\.units and not guards\.allow_empty",
        "a fleet that became empty prunes everything",
        _PLANNING,
    ),
    _guard(
        "prune-budget", r"len\(pruned\) > limit", "any number of units is pruned at once", _PLANNING
    ),
    Mutation(
        "leavers-are-deleted",
        r"else DeletionPolicy\.RELEASE\b",
        "a unit that left is deleted although nothing says so",
        (_PLANNING,),
        new="else DeletionPolicy.DELETE",
        package="reconciler/planning",
    ),
)
KUBECONFIGS: Final = (
    _guard(
        "missing-flags",
        r"missing",
        "a konnector beside the control plane starts without its flags",
        f"{_UNIT}/test_settings.py",
        then=r"raise ConfigError\(\"required when",
    ),
    _guard(
        "empty-key",
        r"not mode\.secret_key",
        "a konnector beside the control plane starts without the key of its Secret",
        f"{_UNIT}/test_settings.py",
    ),
    _guard(
        "another-space",
        r"found\.namespace != namespace",
        "a kubeconfig of another space is used for this one",
        f"{_UNIT}/test_secret.py",
    ),
    Mutation(
        "address-not-mirrored",
        r" and not is_mirrored\(target\)",
        "a new address of the control plane never reaches its app clusters",
        (f"{_UNIT}/test_cluster_binding.py",),
    ),
    Mutation(
        "address-untried",
        r"if not self\.waits_for_mirror\(change\) or self\.job\.options\.force:",
        "a new address that does not work cuts a konnector off",
        ("tests/model/test_apply_kubeconfigs.py",),
        new="if True:",
    ),
)
CRDS: Final = (
    _guard("foreign-crd", r'standing == "foreign"', "a CRD that another owns is changed", _CRD),
    _guard(
        "crd-on-its-way-out",
        r"_is_of_another_space\(live, owner\)",
        "a CRD of another space counts as this one's",
        _CRD,
    ),
    Mutation(
        "old-scope-unseen",
        r'get_text\(live, "spec", "scope"\) != "Cluster"',
        "bindings of Klutch up to 1.5.0, which are cluster-scoped, are not found",
        ("tests/model/test_konnector_bindings.py",),
        new="True",
    ),
    Mutation(
        "stored-version-goes",
        r'if one\.get\("name"\) in stored and',
        "a version goes that objects may be stored in: the app cluster refuses the whole CRD",
        ("tests/model/test_konnector_bindings.py",),
        new="if False and",
    ),
)
ACCEPTANCE: Final = (
    Mutation(
        "unaccepted",
        r'if manifest\.get_text\(claim, "state"\) != "Accepted":',
        "a permission claim that was not accepted is followed",
        (f"{_UNIT}/test_claims.py",),
        new="if False:",
    ),
    _guard(
        "named-only",
        r"self\.names is not None and place\.name not in self\.names",
        "a permission claim by name takes all names",
        f"{_UNIT}/test_claims.py",
    ),
)
_APPLY: Final = "tests/model/test_apply"
_OBSERVE: Final = "tests/model/test_observe"
APPLY: Final = (
    Mutation(
        "answer-of-a-create-lost",
        r"if error\.outcome_unknown and",
        "an object that was made without an answer counts as another's",
        (f"{_APPLY}_faults.py",),
        new="if False and",
    ),
    Mutation(
        "lost-lock-unnoticed",
        r"        fence\.lose_lock\(self\._lease\.loss\)\n",
        "a run whose lock was taken writes on",
        (f"{_APPLY}_lock.py",),
    ),
    Mutation(
        "lock-of-the-living",
        r"abs\(self\._now\(\) - renewed\) <= timedelta\(seconds=seconds\)",
        "the lock of a living run is taken",
        (f"{_APPLY}_lock.py",),
        new="False",
    ),
    _guard(
        "lock-by-the-plan",
        r"plane not in fleet\.control_planes or known\.get\(name, plane\) != plane",
        "an edited plan takes the lock of another control plane",
        f"{_APPLY}_lock.py",
    ),
    _guard(
        "silent-konnector",
        r"liveness is not api\.Liveness\.ALIVE",
        "a dead konnector is not told of",
        f"{_APPLY}_faults.py",
    ),
    _guard(
        "made-meanwhile",
        r"left := await service_objects\.count\(self\._at\(step\), await self\._brought\(step\)\)",
        "a service goes with instances that were made meanwhile",
        f"{_APPLY}_faults.py",
    ),
    Mutation(
        "more-instances",
        r"then is not None and \(now is None or now > then\)",
        "more is deleted than was approved",
        (f"{_APPLY}.py",),
        new="False",
    ),
    Mutation(
        "anothers-kind-goes",
        r" or not api\.is_from_konnector\(service\.live\)",
        "a CRD goes that no konnector brought",
        (f"{_APPLY}.py",),
    ),
    Mutation(
        "one-plane-stops-all",
        r"if len\(failed\) == len\(planes\):",
        "a control plane without lock stops what is behind others",
        (f"{_APPLY}_faults.py",),
        new="if True:",
    ),
)
OBSERVE: Final = (
    _guard(
        "seen-in-part",
        "errors",
        "a cluster counts as seen though reads of it failed",
        _OBSERVE + "_unseen.py",
        then="raise Incomplete",
    ),
    _guard(
        "unserved-is-empty",
        r"kind\.group not in _OURS",
        "a kind of others that is not served counts as empty",
        _OBSERVE + "_unseen.py",
    ),
    Mutation(
        "all-spaces-are-read",
        r"if None in found or len\(spaces\) > read_scope\.MANY_SPACES:",
        "an apply of one cluster reads what is others'",
        (_OBSERVE + "_unseen.py",),
        new="if True:",
    ),
    Mutation(
        "released-clusters-leave",
        r"\s+and keys\.RELEASED not in m\.annotations_of\(carrier\)",
        "a cluster that was released leaves again",
        ("tests/unit/observe",),
    ),
)
COMMANDS: Final = (
    Mutation(
        "silent-is-healthy",
        r"case api\.Liveness\.SILENT:",
        "`status` calls a unit healthy whose konnector is dead",
        ("tests/unit/health",),
        new="case api.Liveness.SILENT if False:",
    ),
    Mutation(
        "status-of-others",
        r"return handle\.status\(\) == psutil\.STATUS_ZOMBIE and",
        "`sandbox down` takes the status of what others wait for",
        ("tests/unit/sandbox/test_processes.py",),
        new="return handle.status() == psutil.STATUS_ZOMBIE and handle.wait(timeout=0) != -1 and",
    ),
)
_WATCH: Final = "tests/unit/watch"
WATCH: Final = (
    _guard(
        "unusable-files-count",
        r"self\._unusable is not None",
        "a watch goes on by files that are not there any more",
        _WATCH,
    ),
    _guard(
        "drift-stays",
        r"now >= agenda\.everything_at",
        "what somebody changes in a cluster is never repaired",
        _WATCH,
    ),
    Mutation(
        "guards-told-always",
        r"if done or trouble != self\._trouble:",
        "a guard that holds is reported each round",
        ("tests/unit/test_watch.py",),
        new="if done or trouble:",
    ),
    Mutation(
        "status-without-rest",
        r"before != status and not written",
        "a fleet at rest costs a write every ten seconds",
        ("tests/model/test_controller.py",),
        new="True",
    ),
    Mutation(
        "unread-suspends-nothing",
        r"UNREAD if self\._suspended is None else self\._suspended",
        "a controller that cannot see that its fleet is suspended writes to all clusters",
        ("tests/model/test_controller.py",),
        new='self._suspended or ""',
    ),
    Mutation(
        "ref-is-a-folder",
        r"if options\.ref is not None:",
        "the work tree is applied in place of the ref",
        ("tests/unit/test_watch.py",),
        new=_NEVER,
    ),
    Mutation(
        "metrics-without-a-cap",
        r"\[:SERIES\]",
        "a large fleet in trouble has more series than Prometheus bears",
        ("tests/unit/watch/test_metrics.py",),
    ),
    Mutation(
        "people-count-in-commits",
        r"self\._guarded \+= now - self\._guarded_since",
        "a guard that waits for a person breaks the objective of commits",
        ("tests/unit/watch/test_metrics.py",),
        new="self._guarded += 0.0",
    ),
    Mutation(
        "marks-count-as-syncs",
        r"carrying or freeing",
        "what comes down counts as going up, too",
        ("tests/unit/konnector/test_directions.py",),
        new="decision.steps",
    ),
    Mutation(
        "texts-in-spans",
        r"record_exception=False, set_status_on_exception=False",
        "the text of an error, which may hold values, is exported",
        ("tests/unit/controller/test_tracing.py",),
        new="record_exception=True",
    ),
    Mutation(
        "unread-is-no-unit",
        r"return \{unit: unread\(unit, message=str\(error\.errors\[0\]\)\) for unit in units\}",
        "units of a cluster that cannot be read are not there",
        ("tests/model/test_health.py",),
        new="return {}",
    ),
)
KERNEL: Final = (
    Mutation(
        "another-crd-than-the-original",
        r"versions = \[_version\(one\) for one",
        "a CRD of the original is written anew by a take-over",
        ("tests/model/test_captures.py",),
        new='versions = [{**_version(one), "deprecated": True} for one',
    ),
    Mutation(
        "other-rights-than-the-original",
        r"_rule\(group, \[plural\], _EVERYTHING\) for group",
        "a take-over changes the rights that the original gave to a space",
        ("tests/model/test_captures.py",),
        new='_rule(group, [plural], ("get", "list")) for group',
    ),
    _guard(
        "status-anew",
        r"m\.covers\(m\.get_map\(live, \"status\"\), status\)",
        "a status is written although it says all of that",
        "tests/model/test_konnector_binding_writes.py",
    ),
    Mutation(
        "fields-of-half-a-decision",
        r"fields = decision\.fields if self\.complete else \{\}",
        "a status tells what was decided though not all of it was done",
        ("tests/model/test_executor.py",),
        new="fields = decision.fields",
    ),
    Mutation(
        "version-is-not-followed",
        r"return current if stated and stated == decided_on else stated",
        "a second step on one object conflicts with the first",
        ("tests/model/test_executor.py",),
        new="return stated",
    ),
    Mutation(
        "event-made-twice",
        r"with contextlib\.suppress\(AlreadyExists\):",
        "an Event whose answer was lost counts as failed, and is made again",
        ("tests/model/test_events.py",),
        new="with contextlib.nullcontext():",
        package="reconciler/controller",
    ),
    _guard(
        "robbed-of-the-lease",
        r"holder_of\(live\) != self\.holder",
        "a process leads on whose lease another took",
        "tests/model/test_leadership.py",
    ),
    Mutation(
        "settled-before-it-is-seen",
        r"return not _precedes\(version, written\) and versions == self\.store\.versions\(\)",
        "a program is called settled while events are on their way",
        ("tests/model/test_konnector_waiting.py",),
        new="return not _precedes(version, written)",
    ),
)
_OFFERING: Final = "tests/unit/blueprints/offering"
BROKERS: Final = (
    Mutation(
        "gateway-says-gone",
        r"is_json=answer\.document is not None",
        "the 404 of a gateway counts as a broker's word that an instance is gone",
        (f"{_OFFERING}/test_answers.py",),
        new="is_json=True",
    ),
    Mutation(
        "error-without-a-time-is-unsent",
        r" if status != 503 or answer\.retry_after is not None",
        "a call that may have been done is taken for one that was not",
        (f"{_OFFERING}/test_answers.py",),
    ),
    Mutation(
        "connected-is-unsent",
        r"problem, is_sent = error\.message, error\.sent",
        "a call whose connection was cut is taken for one that was not sent",
        ("tests/contract/test_broker_lies.py",),
        new="problem, is_sent = error.message, False",
    ),
    Mutation(
        "password-to-another-host",
        r"if spec\.url and in_secret and",
        "a ServiceBroker leads the password of a Secret to another host",
        ("tests/unit/broker/test_address.py",),
        new="if False and",
    ),
    Mutation(
        "flood-of-a-space",
        r"\n\s+and self\._of_parties\[party\] < self\._per_space",
        "one space takes all turns of its owner at a broker",
        ("tests/unit/broker/test_gate.py",),
    ),
    Mutation(
        "flood-of-an-owner",
        r"\n\s+and self\._of_owners\[party\.owner\] < self\._per_owner",
        "an owner of many spaces takes all turns at a broker",
        ("tests/unit/broker/test_gate.py",),
    ),
    Mutation(
        "owners-without-turns",
        r"self\._owners\.move_to_end\(owner\)",
        "an owner with a thousand keys, or calls, goes before all others",
        (_TURNS,),
        new="pass",
    ),
    Mutation(
        "spaces-without-turns",
        r"spaces\.move_to_end\(party\)",
        "an app cluster of a fleet goes before all its sisters",
        (_TURNS,),
        new="pass",
    ),
    Mutation(
        "rate-of-nobody",
        r"self\._waiting, current_party\(\)",
        "a thousand calls for one tenant delay each call for others",
        (_TURNS,),
        new="self._waiting, NOBODY",
    ),
    Mutation(
        "searches-of-an-owner",
        r"party\.owner not in self\._searching and ",
        "an owner that ends forty app namespaces has all searches for itself",
        (_SEARCHES,),
    ),
    Mutation(
        "searches-at-once",
        r" and len\(self\._searching\) < _SEARCHES",
        "no worker is left for new app namespaces while many end",
        (_SEARCHES,),
    ),
    Mutation(
        "looks-as-often-as-reasons",
        r"is_looked = known is not None and cluster",
        "an app cluster that changes a reason each second is read each second",
        ("tests/unit/controlling/test_relooks.py",),
        new="is_looked = known is not None and known.seen == seen and cluster",
    ),
    Mutation(
        "hashes-in-the-loop",
        r"verdict = await asyncio\.to_thread\(\n\s+decide\.decide,([^)]*now\(\)),\n\s+\)",
        "webhooks of a megabyte each stop the work on a fleet",
        ("tests/contract/test_hooks.py",),
        new=r"verdict = decide.decide(\1)",
    ),
    Mutation(
        "pages-of-an-address",
        r"party = Party\(address\)",
        "one browser's pages delay those of all others",
        ("tests/unit/web/test_board_index.py",),
        new="party = Party()",
    ),
    Mutation(
        "pages-all-the-time",
        r"2 \* self\._clock\(\) - began",
        "browsers take the whole process, which works on a fleet",
        ("tests/unit/web/test_board_index.py",),
        new="began",
    ),
    Mutation(
        "owner-that-says-so",
        r" or f\"f:\{keys\.IDENTITY\}\" not in written",
        "whoever may annotate a Namespace takes the turns of whom they like",
        (f"{_BIND}/test_parties.py",),
    ),
)
SIGNATURES: Final = (
    _guard(
        "key-that-nobody-touched",
        r"not flags & _USER_PRESENT",
        "a security key signs for a program, without a person",
        f"{_SOURCE}/sshsig/test_verify.py",
    ),
    _guard(
        "signature-for-something-else",
        r"envelope\.namespace != namespace\.encode\(\)",
        "what somebody signed for another purpose is a commit",
        f"{_SOURCE}/sshsig/test_verify.py",
    ),
    _guard(
        "key-for-everybody",
        r"not matches\(principal, self\.principals\)",
        "a listed key signs in the name of anybody",
        f"{_SOURCE}/sshsig/test_verify.py",
    ),
    _guard(
        "history-rewritten",
        r"not descends",
        "a force push brings an older state back",
        f"{_SOURCE}/test_verification.py",
    ),
    _guard(
        "tag-under-another-name",
        r'"refs/tags/" \+ name != ref',
        "an old signed tag is served as a new one",
        f"{_SOURCE}/test_verification.py",
    ),
    Mutation(
        "end-of-a-key",
        r"max\(times\) > self\.valid_before",
        "a stolen key signs after its end, with an old date",
        (f"{_SOURCE}/sshsig/test_verify.py",),
        new="min(times) > self.valid_before",
    ),
)
WEBHOOKS: Final = (
    Mutation(
        "signed-webhook-of-last-year",
        r"<= _TOLERANCE",
        "a webhook that was listened to is sent again for ever",
        ("tests/unit/web/test_hooks.py",),
        new="<= 10**9",
    ),
    Mutation(
        "signing-token-in-the-clear",
        r"case Provider\.GITLAB if [^\n]+:",
        "a key that signs is taken as a password",
        ("tests/unit/web/test_hooks.py",),
        new="case Provider.GITLAB:",
    ),
    _guard(
        "webhook-secret-of-old",
        r"self\._stamp != before",
        "a secret that was taken away is good for ever",
        "tests/unit/web/test_hooks.py",
    ),
    Mutation(
        "chat-url-in-the-log",
        r"Fault\(error\.problem, again=True\)",
        "the secret URL of a chat is in the log",
        ("tests/contract/test_notify.py",),
        new="Fault(str(error), again=True)",
    ),
    _guard(
        "older-news-last",
        r"message\.commit in self\._waiting",
        "a pending commit is reported after its success",
        "tests/contract/test_notify.py",
    ),
    Mutation(
        "done-and-never-in-place",
        r"approval\.line_key\(one\.change\): one",
        "no commit is ever in place",
        ("tests/unit/watch/test_fleet_state.py",),
        new="id(one.change): one",
        package="reconciler/watch",
    ),
)
RIGHTS: Final = (
    Mutation(
        "page-decides",
        r"self\.verdict\(claim, (?=proposed)",
        "a front door says what a person has accepted",
        ("tests/unit/binding/test_consent.py",),
        new="Verdict.ACCEPT if answered and _identity(claim) in agreed else self.verdict(claim, ",
    ),
    Mutation(
        "flags-open-all",
        r"allowed and not opened",
        "a flag for a kind opens kube-system",
        ("tests/unit/binding/test_consent.py",),
        new="allowed",
    ),
    Mutation(
        "client-is-audience",
        r" if self\.accept_cli_audience else \(\)",
        "a token that another door got is good here",
        ("tests/contract/door/test_door_attacks.py",),
    ),
    Mutation(
        "unverified-email",
        r" if name != \"email\"",
        "a rule counts an address that its user made up",
        ("tests/unit/oidc/test_id_tokens.py",),
    ),
    Mutation(
        "prefix-of-names",
        r"if \"/\" in whole else \(\"/\",\)",
        "an image of another registry on the same host is deployed",
        ("tests/unit/blueprints/test_overrides.py",),
    ),
    Mutation(
        "image-of-anywhere",
        r'if value not in \("", own\) and not below',
        "an author of AppClusterBindings runs any image",
        ("tests/unit/bind/test_app_cluster_binding_konnector.py",),
        new="if False",
    ),
    Mutation(
        "space-unbounded",
        r"for kind, live, stated in made if live is None",
        "Pods of a space take and reach what they like",
        ("tests/unit/bind/test_app_cluster_binding_konnector.py",),
        new="for kind, live, stated in made if False",
    ),
    Mutation(
        "proxy-unnoticed",
        r"self\.unnamed = str\(peer\)",
        "all who come through a proxy share one limit, and nobody learns why",
        ("tests/unit/web/test_requests.py",),
        new="pass",
    ),
    Mutation(
        "rights-unbounded",
        r"if decision\.policy:",
        "a konnector has rights that no policy bounds",
        ("tests/contract/trust/test_s03_bound_rights.py",),
        new=_NEVER,
    ),
)
_OVERSIZED: Final = "tests/model/test_oversized.py"
_CACHE: Final = "tests/unit/kube/cache/test_oversized.py"
LIMITS: Final = (
    Mutation(
        "author-of-bindings",
        r"served=served,\n\s+budget=OF_CLAIMS,(?=\n\s+\)\n\s+self\.bindings)",
        "sixty AppClusterBindings fill the memory of the backend",
        (f"{_BIND}/test_parties.py",),
        new="served=served,",
    ),
    Mutation(
        "quotas-lowered",
        r"max\(least, 2 \* counts\.get\(one, 0\)\)",
        "an upgrade stops whoever has many objects",
        (f"{_BIND}/test_bounds.py",),
        new="least",
    ),
    Mutation(
        "spaces-uncounted",
        r"for one in sorted\(counted\.resources\)\} if number",
        "one space has as many objects as it likes",
        ("tests/contract/trust/test_t09_one_tenant.py",),
        new="for one in []} if number",
    ),
    Mutation(
        "finalizers-of-anybody",
        r"manifest\.finalizers_of\(live\)\[:finalizers\]",
        "the backend holds whatever finalizers a tenant makes up",
        (f"{_BIND}/test_bounds.py",),
        new="manifest.finalizers_of(live)",
    ),
    Mutation(
        "wide-work-at-once",
        r"return not self\.wide or",
        "one tenant's wide objects take all workers and all of an API server",
        (_TURNS, "tests/unit/controller/test_queue.py"),
        new="return True or",
    ),
    Mutation(
        "wide-is-what-a-view-keeps",
        r"is_stub\(manifest\) or takes\(manifest, limit=WIDE\) > WIDE",
        "what a view leaves out of an object costs others their turns",
        (_CACHE, f"{_BIND}/test_parties.py"),
        new="is_stub(manifest) or takes(kept, limit=WIDE) > WIDE",
    ),
    Mutation(
        "flooded-binding-whole",
        r", trim=bounds\.trimmed_cluster_binding",
        "the conditions of one tenant end the work on all claims",
        (f"{_BIND}/test_parties.py",),
        package="bind/osb",
    ),
    _guard(
        "decoded-whole",
        r"memory > limits\.max_memory",
        "bytes that are worth more memory than a process may have are decoded",
        "tests/unit/kube/http/test_answer_stream.py",
        _OVERSIZED,
    ),
    Mutation(
        "wide-page-for-ever",
        r"answer = _page_of\(.*\)",
        "one wide object hides all others of its kind",
        (_OVERSIZED,),
        new="raise",
    ),
    _guard(
        "held-whole",
        r"not self\._partial and \(\s+is_stub\(manifest\) or [^\n]+\s+\)",
        "views hold what developers write, however large it is",
        _CACHE,
        _OVERSIZED,
    ),
    Mutation(
        "budgets-apart",
        r"others = sum\([^\n]+\)",
        "as many views as somebody can make are full each",
        (_CACHE,),
        new="others = 0",
    ),
    Mutation(
        "listed-whole",
        r"if page\.memory > most and takes",
        "a plan holds what all tenants write",
        ("tests/unit/kube/test_lists.py",),
        new="if False and takes",
    ),
    Mutation(
        "status-whole",
        r"if takes\(status\) <= _LARGEST_STATUS:",
        "the backend holds and shows any number of conditions of a tenant",
        (f"{_BIND}/test_bounds.py",),
        new="if True:",
    ),
)
ALL: Final = (
    *RIGHTS,
    *BROKERS,
    *KERNEL,
    *COMMANDS,
    *APPLY,
    *OBSERVE,
    *CLAIMS,
    *PERMISSION_CLAIMS,
    *NAMESPACES,
    *IDENTITY,
    *EXPORTS,
    *GUARDS,
    *DRAIN,
    *SHARED,
    *BACKEND,
    *PLANNING,
    *KUBECONFIGS,
    *CRDS,
    *ACCEPTANCE,
    *WATCH,
    *SIGNATURES,
    *WEBHOOKS,
    *LIMITS,
)
