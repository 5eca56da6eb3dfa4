"""Defects that the tests have to notice: each is one change of one place in the product.

A mutation names its package and the text, so that it survives when modules are renamed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNIT: Final = "tests/unit/konnector"
_SEARCHES: Final = "tests/model/test_backend_searches.py"
_TURNS: Final = "tests/unit/kube/test_turns.py"
_MODEL: Final = "tests/model/test_konnector_"
_BIND: Final = "tests/unit/bind"
_SOURCE: Final = "tests/unit/source"
_INSTANCE: Final = f"{_UNIT}/test_instance.py"
_CONTENT: Final = f"{_UNIT}/test_claimed_content.py"
_GUARD: Final = f"{_UNIT}/test_guard.py"
_BURSTS: Final = f"{_MODEL}bursts.py"
_ANOTHER: Final = f"{_MODEL}another_namespace.py"
_COPIED: Final = "tests/contract/trust/test_s28_copied_marks.py"
_SPACES: Final = (
    f"{_BIND}/test_service_namespace.py", "tests/contract/trust/test_s01_former_spaces.py",
)  # fmt: skip
_NEVER: Final = "if False:"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old` is a regular expression with one place in the package; `tests` have to fail."""

    name: str
    package: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]


def _guard(
    name: str, package: str, condition: str, breaks: str, *tests: str, then: str = ""
) -> Mutation:
    """Return the mutation that takes a condition away, with all that depends on it.

    `then` is what follows the condition, where there are others like it.
    """
    following = rf"(?=\s+{then})" if then else ""
    return Mutation(name, package, rf"if {condition}:{following}", _NEVER, breaks, tests)


def _blind(name: str, package: str, compared: str, answer: str, *tests: str) -> Mutation:
    """Return the mutation that does not ask whether an object is the one meant, and stays."""
    return Mutation(name, package, compared, answer, "another one counts as the one meant", tests)


def places(mutation: Mutation, root: Path) -> Sequence[tuple[Path, str]]:
    """Return the files with the text of a mutation, and each of them mutated."""
    return [
        (file, re.sub(mutation.old, mutation.new, text))
        for file in sorted((root / mutation.package).rglob("*.py"))
        for text in [file.read_text()]
        for _ in re.finditer(mutation.old, text)
    ]


CLAIMS: Final = (
    _guard(
        "lost-claim-unread",
        "konnector",
        r"not seen\.claim_gone",
        "a copy counts as an orphan because a view is behind",
        f"{_UNIT}/test_instance.py",
    ),
    _guard(
        "finalizer-of-others",
        "konnector",
        r"freed is None",
        "a claim without our finalizer is written while it goes",
        f"{_UNIT}/test_instance.py",
        then="return NOTHING",
    ),
    _guard(
        "mass-deletion",
        "konnector",
        r"seen\.deletes_held",
        "copies go with a CRD that somebody deletes",
        f"{_MODEL}instances.py",
    ),
    _guard(
        "recreation",
        "konnector",
        r"seen\.creates_held and \(is_lost or seen\.withdrawn\)",
        "a lost service is replaced by an empty one",
        "tests/contract/trust/test_s06_lost_kinds.py",
    ),
    _guard(
        "name-taken",
        "konnector",
        r"seen\.taken",
        "a copy is made over an object of another space",
        f"{_MODEL}cluster_scoped.py",
    ),
    _guard(
        "copies-held",
        "konnector",
        r"manifest\.is_deleting\(copy\)",
        "nothing tells a claim how the end of its copy goes",
        f"{_MODEL}instances.py",
        then=r"note = claim_status",
    ),
    Mutation(
        "status-up",
        "konnector",
        r"_observed\(claim, copy, is_up\) if",
        "_observed(claim, claim, is_up) if",
        "the status is not the copy's",
        (f"{_MODEL}instances.py",),
    ),
    Mutation(
        "status-nulls",
        "reconciler/core",
        r"elif key not in before or not are_equal",
        "elif held != value and not are_equal",
        "a null that comes alone is not written",
        (f"{_UNIT}/test_instance.py",),
    ),
    Mutation(
        "status-version",
        "reconciler/controller",
        r'now = \{"value": self\._current_version\(ref, stated\)\}',
        'now = {"value": stated}',
        "a status that follows another write of the claim meets a conflict",
        ("tests/model/test_executor.py",),
    ),
    Mutation(
        "unserved-claim",
        "konnector",
        r'self\.record\(claim, Note\("NotServed".*',
        "pass",
        "a claim without a service namespace has no Event",
        (f"{_MODEL}waiting.py",),
    ),
    Mutation(
        "finalizers-unsaid",
        "konnector",
        r'return \(Note\("FinalizersStay".*',
        "return ()",
        "a claim does not say that finalizers of others do not travel",
        (f"{_UNIT}/test_instance.py",),
    ),
    Mutation(
        "held-elsewhere",
        "reconciler/health",
        r"if not _names_only\(others, unit, one\.message\)",
        "if True",
        "one held claim marks all units of its cluster",
        ("tests/unit/health/test_verdict.py",),
    ),
    Mutation(
        "returned-for-ever",
        "konnector",
        r"self\._returns\.note\(.*\)",
        "pass",
        "a field that the provider takes away is written for ever",
        (f"{_MODEL}values.py",),
    ),
    Mutation(
        "left-whatever-it-says",
        "konnector",
        r" and digest\(said\[key\]\) == value",
        "",
        "what a claim says anew stays below, as the provider took something else away",
        (f"{_MODEL}values.py",),
    ),
    Mutation(
        "approval-left",
        "konnector",
        r"if approval is None else \{keys\.API_APPROVED: approval\}",
        "",
        "a CRD of a protected group comes without its approval",
        (f"{_UNIT}/test_crd.py",),
    ),
    Mutation(
        "replaced-version",
        "konnector",
        r"replaced_version\(export, live\)\n",
        '""\n',
        "stored claims are read in a version that does not know their fields",
        (f"{_UNIT}/test_crd.py",),
    ),
    Mutation(
        "copy-before-finalizer",
        "konnector",
        r"steps = \(\*held, decision\.Create",
        "steps = (decision.Create",
        "a claim may go while its copy is made",
        (f"{_UNIT}/test_instance.py",),
    ),
    _guard(
        "space-of-copy",
        "konnector",
        r"manifest\.annotations_of\(copy\)\.get\(keys\.CLUSTER_NAMESPACE\) != self\.space",
        "an object of another space whose name begins alike counts as a copy",
        f"{_UNIT}/test_copies.py",
    ),
)
PERMISSION_CLAIMS: Final = (
    _guard(
        "provider-owned-goes-up",
        "konnector",
        r'owner not in \("", _CONSUMER\)',
        "a copy that came down goes up again as the developer's own",
        f"{_UNIT}/test_claimed.py",
        f"{_UNIT}/test_claimed_content.py",
    ),
    Mutation(
        "nobody-uses-it",
        "konnector",
        r"        and rule\.binding in seen\.living\n",
        "",
        "credentials come to namespaces that use no service",
        (
            f"{_UNIT}/test_claimed.py",
            f"{_UNIT}/test_claimed_content.py",
        ),
    ),
    Mutation(
        "own-tokens",
        "konnector",
        r'manifest\.get_text\(origin, "type"\) in _OF_ONE_CLUSTER\n        or',
        "",
        "tokens of the app cluster go up",
        (
            f"{_UNIT}/test_claimed.py",
            f"{_UNIT}/test_claimed_content.py",
        ),
    ),
    _guard(
        "copies-of-another-space",
        "konnector",
        r"is_of_another_space\(seen, copy\)",
        "a provider overwrites what another one brought",
        f"{_UNIT}/test_claimed_content.py",
        then=r"return \w+\.CONFLICT",
    ),
    Mutation(
        "place-not-free",
        "konnector",
        r"word == _PROVIDER or replaced else Way\.CONFLICT",
        "True else Way.CONFLICT",
        "an app's own Secret is overwritten by the provider's of its name",
        (f"{_MODEL}bursts.py",),
    ),
    Mutation(
        "mark-before-place",
        "konnector",
        r"\(\*brought, (\*_marked\(.*?\))\)",
        r"(\1, *brought)",
        "an origin is marked before its place is known to be free",
        (f"{_UNIT}/test_claimed_content.py",),
    ),
    _guard(
        "end-of-another",
        "konnector",
        r"ended and identity\.of_mark\(ended, copy, keys\.ORIGIN_UID\) is not Life\.ANOTHER",
        "nothing that is revoked ever goes",
        f"{_UNIT}/test_claimed_content.py",
    ),
    _guard(
        "lost-with-its-export",
        "konnector",
        r"self\._services\.is_losing\(self\.kind, seen\.claim_place\)",
        "credentials go with an export that somebody deletes",
        f"{_MODEL}bursts.py",
    ),
    Mutation(
        "lost-with-its-namespace",
        "konnector",
        r"return _TERMINATING in str\(error\)",
        "return False",
        "credentials go with a service namespace that somebody deletes",
        (f"{_MODEL}bursts.py",),
    ),
    Mutation(
        "rules-for-ever",
        "konnector",
        r"            self\._rules = tuple\(rules\)\n            self\.enqueue",
        "            self.enqueue",
        "a permission claim that is narrowed or rejected is followed as before",
        (f"{_MODEL}claims_up.py",),
    ),
    Mutation(
        "deleted-by-developer",
        "konnector",
        r"known = seen\.deleted_at == manifest\.resource_version_of\(origin\)",
        "known = False",
        "what a developer deleted comes back although the claim says that it does not",
        (
            f"{_UNIT}/test_claimed.py",
            f"{_UNIT}/test_claimed_content.py",
        ),
    ),
    _guard(
        "orphans-go-at-once",
        "konnector",
        r"not orphans\.is_orphan\(copy\)",
        "what is gone from the app cluster takes the provider's copy along",
        f"{_UNIT}/test_claimed.py",
        f"{_UNIT}/test_claimed_content.py",
        then=r"return \w+\.ORPHAN",
    ),
)
NAMESPACES: Final = (
    _guard(
        "mapping-of-released",
        "konnector",
        r"removal\.released",
        "data that were released go with their service namespace",
        f"{_UNIT}/test_namespace.py",
    ),
    _guard(
        "mapping-while-there",
        "konnector",
        r"removal\.unsynced or not removal\.gone",
        "a service namespace goes because a view is behind",
        f"{_UNIT}/test_namespace.py",
    ),
    Mutation(
        "mapping-of-ending",
        "konnector",
        r" or live is None or _is_ending\(live\):",
        " or live is None:",
        "a mapping is made for a namespace that is on its way out",
        (f"{_UNIT}/test_namespace.py",),
    ),
    Mutation(
        "mapping-unmarked",
        "konnector",
        r"if not meant and not orphans\.is_orphan\(mapping\):",
        _NEVER,
        "a mapping goes unconfirmed with a namespace that nobody saw go",
        (f"{_UNIT}/test_namespace.py",),
    ),
    _guard(
        "two-konnectors",
        "konnector",
        r"not before\.answered",
        "the konnector of a clone deletes the data of the original",
        f"{_UNIT}/test_active.py",
        f"{_MODEL}clones.py",
    ),
    Mutation(
        "hesitation",
        "konnector",
        r"left if left > timedelta\(\) else None",
        "None",
        "a new konnector deletes before another one can answer",
        (f"{_UNIT}/test_active.py",),
    ),
)
IDENTITY: Final = (
    _blind("claim-uid", "konnector", r"identity\.of_mark\(uid, .*\)", "Life.SAME", _INSTANCE),
    _blind("own-uid", "konnector", r"identity\.of_mark\(manifest\..*\)", "Life.SAME", _INSTANCE),
    _blind("uid-let-go", "konnector", r"_life\(.*\) is Life\.ANOTHER(?=:)", "False", _INSTANCE),
    _blind("uid-joined", "konnector", r"is_ours and life is Life\.ANOTHER", "False", _INSTANCE),
    _blind("uid-marked", "konnector", r"(?<=and )life is not Life\.ANOTHER", "True", _INSTANCE),
    _blind("origin-uid", "konnector", r"identity\.of_mark\(ended, .*(?=:)", "True", _CONTENT),
    _blind("origin-space", "konnector", r"identity\.of_mark\(seen\.sp.*", "False", _CONTENT),
    _blind("namespace-uid", "konnector", r"(?<=return )life is Life\.A.*", "False", _ANOTHER),
    _blind("namespace-unknown", "konnector", r"not _is_ending\(app_na.*", "False", _ANOTHER),
    _blind("namespace-held", "konnector", r" or self\.link\.homes\.is_held\(.*(?=:)", "", _ANOTHER),
    _blind("namespace-left", "bind", r"identity\.of_mark\(former, .*", "True", _ANOTHER),
    _blind("app-cluster-uid", "konnector", r"identity\.recorded_app_c.* - ", "set() - ", _GUARD),
    _blind("space-uid", "konnector", r"identity\.recorded_spaces - ", "set() - ", _GUARD),
    _blind("space-record", "konnector", r"held and not confirmed", "False", _GUARD),
    _blind("space-left", "bind", r"(?<=return )recorded in identity\.lives.*", "True", *_SPACES),
    _blind(
        "account-left",
        "reconciler",
        r"former not in lives(?= and)",
        "False",
        "tests/unit/blueprints/test_rbac.py",
    ),
    _blind("dying-origin", "konnector", r" or manifest\.is_deleting\(origin\)", "", _BURSTS),
    _blind("copied-uid", "konnector", r"another and self\.view\.store\.has.*", "False", _COPIED),
    _blind("copied-by-any", "konnector", r"(?<=another and )self\.view\.st.*", "True", _COPIED),
)
EXPORTS: Final = (
    Mutation(
        "late-for-ever",
        "konnector",
        r"late = self\._context\.clock\.monotonic\(\) - began > LATE",
        "late = False",
        "nothing says that a control plane never answered",
        (f"{_MODEL}waiting.py",),
    ),
    Mutation(
        "copy-without-space",
        "konnector",
        r"return self\.kind\.namespaced or self\.claim_of\(copy\) == claim",
        "return True",
        "an object of another app cluster's space counts as a copy",
        (f"{_MODEL}two_app_clusters.py",),
    ),
    Mutation(
        "accepted-by-anybody",
        "konnector",
        r"if _CONSUMER in \(rule\.owner, owner\) and not _is_kept\(seen, origin\):",
        "if True:",
        "Secrets go up that a permission claim without an owner does not name",
        (f"{_MODEL}canaries.py",),
    ),
    Mutation(
        "deletions-of-any-life",
        "konnector",
        r"if copy is None or _is_let_go\(seen, claim, copy\):",
        "if copy is None:",
        "an old deletion that a restore brings back ends what has the name by now",
        ("tests/contract/trust/test_s07_old_deletions.py",),
    ),
    Mutation(
        "uids-after-others",
        "konnector",
        r"if not is_anothers\(cluster_binding\):",
        "if True:",
        "copies that the original wrote meanwhile count as those of another life",
        (f"{_MODEL}uids.py",),
    ),
    _guard(
        "connected-for-ever",
        "konnector",
        r"seen\.binding is None or not seen\.syncing",
        "an export is said to be synced that nobody syncs",
        f"{_UNIT}/test_export.py",
    ),
)
GUARDS: Final = (
    Mutation(
        "confirmed-for-ever",
        "konnector",
        r"return time is not None and -SKEW <= now - time < HONOURED",
        "return time is not None",
        "a confirmation holds longer than its hour",
        (f"{_UNIT}/test_guard.py",),
    ),
    Mutation(
        "many-at-once",
        "konnector",
        r"most = max\(few, \(living\(\) \+ len\(near\)\) // 2\)",
        "most = len(near) + few",
        "any number of deletions at once counts as meant",
        (f"{_UNIT}/test_guard.py",),
    ),
    _guard(
        "stranger",
        "konnector",
        r"not others or \(live and confirmed == live\)",
        "another app cluster than was recorded counts as the same",
        f"{_UNIT}/test_guard.py",
    ),
)
DRAIN: Final = (
    _guard(
        "drain-beside-sync",
        "konnector",
        r"seen\.syncing",
        "instances are let go while they are still synced",
        f"{_UNIT}/test_drain.py",
    ),
    _guard(
        "drain-unsure",
        "konnector",
        r"seen\.unsure",
        "a binding is let go on half a view",
        f"{_UNIT}/test_drain.py",
    ),
)
SHARED: Final = (
    Mutation(
        "preconditions",
        "reconciler/core",
        r'return \{"uid": uid_of\(live\), "resourceVersion": resource_version_of\(live\)\}',
        "return {}",
        "patches apply to whatever is there by now",
        (f"{_UNIT}/test_instance_fields.py", "tests/unit/core"),
    ),
)
BACKEND: Final = (
    Mutation(
        "export-with-a-mark",
        "reconciler/blueprints",
        r"Marks\(annotations=(\{keys\.SOURCE_SPEC_HASH: source_hash\(spec\), \*\*notes\})\)",
        r'Marks({"a": "b"}, \1)',
        "an export is made with a label that those of the original have not",
        ("tests/unit/bind/test_captures.py",),
    ),
    Mutation(
        "rights-with-a-mark",
        "reconciler/blueprints",
        r"refs\.ROLE_BINDING, names\.BINDER, role, \(space, names\.BINDER\), namespace=namespace",
        'refs.ROLE_BINDING, "binder", role, (space, names.BINDER), namespace=namespace',
        "the rights in a service namespace have another name than the original's",
        ("tests/unit/bind/test_captures.py",),
    ),
    Mutation(
        "networks-of-a-tenant",
        "reconciler/blueprints",
        r'if get_text\(each, "name"\) not in forced',
        "if each",
        "a tenant's overrides say where a konnector's kubeconfig may lead",
        (
            "tests/unit/blueprints/test_konnector.py",
            f"{_BIND}/test_app_cluster_binding_konnector.py",
        ),
    ),
    Mutation(
        "networks-only-of-flags",
        "konnector",
        r"replace\(said, beside=networks\.of_environment\(environ\)\)",
        "said",
        "a konnector obeys the arguments of a tenant alone",
        ("tests/unit/konnector/test_settings.py",),
    ),
    Mutation(
        "release-deletes",
        "bind",
        r"if _deletes\(seen\) else _rest",
        "if True else _rest",
        "an AppClusterBinding that is deleted takes the data along",
        ("tests/model/test_backend_app_cluster_bindings.py",),
    ),
    Mutation(
        "force-is-ignored",
        "bind",
        r"return .*\(keys\.FORCE_CLEANUP\) == \"true\"",
        "return False",
        "what a dead konnector holds is held for ever",
        ("tests/model/test_backend_app_cluster_bindings.py",),
    ),
    _guard(
        "taken-space-is-cleaned",
        "bind",
        r"standing is \w+\.TAKEN",
        "the deletion of one AppClusterBinding empties the space of another",
        _BIND,
        then=r"return _ends",
    ),
    _guard(
        "found-space-goes",
        "bind",
        r"\w+\.was_found\(seen, space\) and not (?:\w+\.)?is_deleting\(namespace\)",
        "a Namespace goes that was there before it became a binding space",
        _BIND,
    ),
    Mutation(
        "rights-of-dead-spaces",
        "bind",
        r"if manifest\.namespace_of\(one\) in gone and",
        "if False and",
        "the next account of a name has the rights of the former one",
        (f"{_BIND}/test_service_namespace.py", "tests/contract/trust/test_s01_former_spaces.py"),
    ),
    Mutation(
        "space-by-binding-name",
        "bind",
        r"(?<=    recorded = identity\.recorded\(space\.namespace, keys\.APP_CLUSTER_BINDING_UID\))"
        r"\n    if recorded in",
        "\n    if True or recorded in",
        "the next AppClusterBinding of a name is given the space of the former one",
        (f"{_BIND}/test_app_cluster_binding_cleanup.py",),
    ),
    Mutation(
        "kinds-searched-again",
        "bind",
        r"self\._clean\.add\(kind\.resource\)",
        "pass",
        "each namespace that ends costs a call for each CRD",
        ("tests/model/test_backend.py",),
    ),
    Mutation(
        "unconfirmed-exports",
        "bind",
        r" if one not in unconfirmed\]",
        "]",
        "rights go while a konnector still syncs",
        (_BIND,),
    ),
    Mutation(
        "future-heartbeats",
        "bind",
        r"return api\.liveness\(",
        "return beat is not None or api.liveness(",
        "a konnector that lies about time is waited for, for ever",
        (_BIND,),
    ),
    Mutation(
        "request-of-others",
        "bind",
        r"requests = \[one for one in space\.requests if \w+\.is_ours\(one, seen\)\]",
        "requests = list(space.requests)",
        "requests go that others made",
        (_BIND,),
    ),
    Mutation(
        "queue-of-all-tenants",
        "bind",
        r"party=partial\(_party_of, informers, name, reconciler\),",
        "party=lambda _: Party(),",
        "many requests of one tenant delay those of all others",
        ("tests/model/test_backend_app_cluster_bindings.py",),
    ),
    _guard(
        "half-made-service-namespace",
        "bind",
        r"steps := _held\(seen, live\) or \(\*_stamped\(seen, live\), \*_rights\(seen, scope\)\)",
        "a backend that dies after a service namespace leaves it without its rights",
        "tests/model/test_backend_crashes.py",
    ),
)
_PLANNING: Final = "tests/unit/planning"
PLANNING: Final = (
    Mutation(
        "notes-of-tenants",
        "reconciler/planning",
        r"\*index\.inside\(api\.API_SERVICE_BINDING, place\)",
        "*index.all(api.API_SERVICE_BINDING)",
        "what a tenant notes in an app namespace counts for the Secret of the konnector",
        ("tests/unit/planning/test_credentials.py",),
    ),
    Mutation(
        "notes-about-others",
        "reconciler/planning",
        r"noted = own if namespace == beside else others",
        "noted = own",
        "what a tenant notes about a Secret elsewhere replaces what its owner says",
        ("tests/unit/planning/test_credentials.py",),
    ),
    _guard(
        "binding-without-a-note",
        "reconciler/planning",
        r"noted != api\.credential_note\(facts, salt\)",
        "no plan without rights on Secrets sees that a kubeconfig is out of date",
        "tests/unit/planning/test_credentials.py",
    ),
    Mutation(
        "unknown-is-none",
        "reconciler/planning",
        r"if count == 0 or \(meant",
        "if not count or (meant",
        "what nobody could count counts as unused",
        (_PLANNING,),
    ),
    _guard(
        "empty-fleet",
        "reconciler/planning",
        r"not extent\.wanted and not guards\.allow_empty",
        "a fleet that became empty prunes everything",
        _PLANNING,
    ),
    _guard(
        "prune-budget",
        "reconciler/planning",
        r"len\(pruned\) > limit",
        "any number of units is pruned in one run",
        _PLANNING,
    ),
    Mutation(
        "leavers-are-deleted",
        "reconciler/planning",
        r"else DeletionPolicy\.RELEASE\b",
        "else DeletionPolicy.DELETE",
        "a unit that left is deleted although nothing says so",
        (_PLANNING,),
    ),
)
KUBECONFIGS: Final = (
    _guard(
        "missing-flags",
        "konnector",
        r"missing",
        "a konnector beside the control plane starts without its flags",
        f"{_UNIT}/test_settings.py",
        then=r"raise ConfigError\(\"required when",
    ),
    _guard(
        "empty-key",
        "konnector",
        r"not mode\.secret_key",
        "a konnector beside the control plane starts without the key of its Secret",
        f"{_UNIT}/test_settings.py",
    ),
    _guard(
        "another-space",
        "konnector",
        r"found\.namespace != namespace",
        "a kubeconfig of another space is used for this one",
        f"{_UNIT}/test_secret.py",
    ),
    Mutation(
        "address-not-mirrored",
        "konnector",
        r" and not is_mirrored\(target\)",
        "",
        "a new address of the control plane never reaches its app clusters",
        (f"{_UNIT}/test_cluster_binding.py",),
    ),
    Mutation(
        "address-untried",
        "reconciler/apply",
        r"if not self\.waits_for_mirror\(change\) or self\.job\.options\.force:",
        "if True:",
        "a new address that does not work cuts a konnector off",
        ("tests/model/test_apply_kubeconfigs.py",),
    ),
)
CRDS: Final = (
    _guard(
        "foreign-crd",
        "konnector",
        r'standing == "foreign"',
        "a CRD that another owns is changed",
        f"{_UNIT}/test_crd.py",
    ),
    _guard(
        "crd-on-its-way-out",
        "konnector",
        r"_is_of_another_space\(live, owner\)",
        "a CRD of another space counts as this one's",
        f"{_UNIT}/test_crd.py",
    ),
    Mutation(
        "old-scope-unseen",
        "konnector",
        r'get_text\(live, "spec", "scope"\) != "Cluster"',
        "True",
        "bindings of Klutch up to 1.5.0, which are cluster-scoped, are not found",
        ("tests/model/test_konnector_bindings.py",),
    ),
    Mutation(
        "stored-version-goes",
        "konnector",
        r'if one\.get\("name"\) in stored and',
        "if False and",
        "a version goes that objects may be stored in: the app cluster refuses the whole CRD",
        ("tests/model/test_konnector_bindings.py",),
    ),
)
ACCEPTANCE: Final = (
    Mutation(
        "unaccepted",
        "konnector",
        r'if not isinstance\(claim, dict\) or manifest\.get_text\(claim, "state"\) != _ACCEPTED:',
        "if not isinstance(claim, dict):",
        "a permission claim that was not accepted is followed",
        (f"{_UNIT}/test_claims.py",),
    ),
    _guard(
        "named-only",
        "konnector",
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
        "reconciler/apply",
        r"if error\.outcome_unknown and",
        "if False and",
        "an object that was made without an answer counts as another's",
        (f"{_APPLY}_faults.py",),
    ),
    Mutation(
        "lost-lock-unnoticed",
        "reconciler/apply",
        r"        fence\.lose_lock\(self\._lost\(\)\)\n",
        "",
        "a run whose lock was taken writes on",
        (f"{_APPLY}_lock.py",),
    ),
    Mutation(
        "lock-of-the-living",
        "reconciler/apply",
        r"self\._now\(\) - renewed <= timedelta\(seconds=seconds\)",
        "False",
        "the lock of a living run is taken",
        (f"{_APPLY}_lock.py",),
    ),
    _guard(
        "silent-konnector",
        "reconciler/apply",
        r"liveness is not api\.Liveness\.ALIVE",
        "a dead konnector is not told of",
        f"{_APPLY}_faults.py",
    ),
    _guard(
        "made-meanwhile",
        "reconciler/apply",
        r"left := await service_objects\.count\(self\._at\(step\), self\._name\)",
        "a service goes with instances that were made meanwhile",
        f"{_APPLY}_faults.py",
    ),
    Mutation(
        "more-instances",
        "reconciler/apply",
        r"then is not None and \(now is None or now > then\)",
        "False",
        "more is deleted than was approved",
        (f"{_APPLY}.py",),
    ),
    Mutation(
        "claimed-secrets-go",
        "reconciler/apply",
        r" and not _is_claimed\(claims, namespace, m\.name_of\(secret\)\)",
        "",
        "Secrets go that another binding claims",
        (f"{_APPLY}.py",),
    ),
    Mutation(
        "one-plane-stops-all",
        "reconciler/apply",
        r"if len\(failed\) == len\(planes\):",
        "if True:",
        "a control plane without lock stops what is behind others",
        (f"{_APPLY}_faults.py",),
    ),
)
OBSERVE: Final = (
    _guard(
        "seen-in-part",
        "reconciler/observe",
        "errors",
        "a cluster counts as seen though reads of it failed",
        _OBSERVE + "_unseen.py",
        then="raise Incomplete",
    ),
    _guard(
        "unserved-is-empty",
        "reconciler/observe",
        r"kind\.group not in _OURS",
        "a kind of others that is not served counts as empty",
        _OBSERVE + "_unseen.py",
    ),
    Mutation(
        "all-spaces-are-read",
        "reconciler/observe",
        r"if None in found or len\(spaces\) > read_scope\.MANY_SPACES:",
        "if True:",
        "an apply of one cluster reads what is others'",
        (_OBSERVE + "_unseen.py",),
    ),
    Mutation(
        "released-clusters-leave",
        "reconciler/observe",
        r"\s+and keys\.RELEASED not in m\.annotations_of\(carrier\)",
        "",
        "a cluster that was released leaves again",
        ("tests/unit/observe",),
    ),
)
COMMANDS: Final = (
    Mutation(
        "silent-is-healthy",
        "reconciler/health",
        r"case api\.Liveness\.SILENT:",
        "case api.Liveness.SILENT if False:",
        "`status` calls a unit healthy whose konnector is dead",
        ("tests/unit/health",),
    ),
    Mutation(
        "status-of-others",
        "klutchctl/sandbox",
        r"return handle\.status\(\) == psutil\.STATUS_ZOMBIE and",
        "return handle.status() == psutil.STATUS_ZOMBIE and handle.wait(timeout=0) != -1 and",
        "`sandbox down` takes the status of what others wait for",
        ("tests/unit/sandbox/test_processes.py",),
    ),
)
_WATCH: Final = "tests/unit/watch"
WATCH: Final = (
    _guard(
        "unusable-files-count",
        "reconciler/watch",
        r"self\._unusable is not None",
        "a watch goes on by files that are not there any more",
        _WATCH,
    ),
    _guard(
        "drift-stays",
        "reconciler/watch",
        r"now >= agenda\.everything_at",
        "what somebody changes in a cluster is never repaired",
        _WATCH,
    ),
    Mutation(
        "guards-told-always",
        "klutchctl/controller",
        r"if done or trouble != self\._trouble:",
        "if done or trouble:",
        "a guard that holds is reported each round",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "status-without-rest",
        "reconciler/watch",
        r"before != status and not written",
        "True",
        "a fleet at rest costs a write every ten seconds",
        ("tests/model/test_controller.py",),
    ),
    Mutation(
        "unread-suspends-nothing",
        "reconciler/watch",
        r"UNREAD if self\._suspended is None else self\._suspended",
        'self._suspended or ""',
        "a controller that cannot see that its fleet is suspended writes to all clusters",
        ("tests/model/test_controller.py",),
    ),
    Mutation(
        "ref-is-a-folder",
        "klutchctl/controller",
        r"if options\.ref is not None:",
        _NEVER,
        "the work tree is applied in place of the ref",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "metrics-without-a-cap",
        "klutchctl/controller",
        r"\[:SERIES\]",
        "",
        "a large fleet in trouble has more series than Prometheus bears",
        ("tests/unit/watch/test_metrics.py",),
    ),
    Mutation(
        "people-count-in-commits",
        "klutchctl/controller",
        r"self\._held \+= now - self\._held_since",
        "self._held += 0.0",
        "a guard that waits for a person breaks the objective of commits",
        ("tests/unit/watch/test_metrics.py",),
    ),
    Mutation(
        "marks-count-as-syncs",
        "konnector",
        r"carrying or freeing",
        "decision.steps",
        "what comes down counts as going up, too",
        ("tests/unit/konnector/test_directions.py",),
    ),
    Mutation(
        "texts-in-spans",
        "reconciler/controller",
        r"record_exception=False, set_status_on_exception=False",
        "record_exception=True",
        "the text of an error, which may hold values, is exported",
        ("tests/unit/controller/test_tracing.py",),
    ),
    Mutation(
        "unread-is-no-unit",
        "reconciler/health",
        r"return \{unit: _unread\(unit, str\(error\.errors\[0\]\)\) for unit in units\}",
        "return {}",
        "units of a cluster that cannot be read are not there",
        ("tests/model/test_health.py",),
    ),
)
KERNEL: Final = (
    Mutation(
        "another-crd-than-the-original",
        "konnector",
        r"versions = \[_version\(one\) for one",
        'versions = [{**_version(one), "deprecated": True} for one',
        "a CRD of the original is written anew by a take-over",
        ("tests/model/test_captures.py",),
    ),
    Mutation(
        "other-rights-than-the-original",
        "reconciler/blueprints",
        r"_rule\(group, \[plural\], _EVERYTHING\) for group",
        '_rule(group, [plural], ("get", "list")) for group',
        "a take-over changes the rights that the original gave to a space",
        ("tests/model/test_captures.py",),
    ),
    _guard(
        "status-anew",
        "reconciler/core",
        r"covers\(get_map\(live, \"status\"\), status\)",
        "a status is written although it says all of that",
        "tests/model/test_konnector_binding_writes.py",
    ),
    Mutation(
        "fields-of-half-a-decision",
        "reconciler/controller",
        r"fields = decision\.fields if self\.complete else \{\}",
        "fields = decision.fields",
        "a status tells what was decided though not all of it was done",
        ("tests/model/test_executor.py",),
    ),
    Mutation(
        "version-is-not-followed",
        "reconciler/controller",
        r"return current if stated and stated == decided_on else stated",
        "return stated",
        "a second step on one object conflicts with the first",
        ("tests/model/test_executor.py",),
    ),
    Mutation(
        "event-made-twice",
        "reconciler/controller",
        r"with contextlib\.suppress\(AlreadyExists\):",
        "with contextlib.nullcontext():",
        "an Event whose answer was lost counts as failed, and is made again",
        ("tests/model/test_events.py",),
    ),
    _guard(
        "robbed-of-the-lease",
        "reconciler/controller",
        r"holder_of\(live\) != self\.holder",
        "a process leads on whose lease another took",
        "tests/model/test_leadership.py",
    ),
    Mutation(
        "settled-before-it-is-seen",
        "reconciler/kube",
        r"return not _precedes\(version, written\) and versions == self\.store\.versions\(\)",
        "return not _precedes(version, written)",
        "a program is called settled while events are on their way",
        ("tests/model/test_konnector_waiting.py",),
    ),
)
_OFFERING: Final = "tests/unit/blueprints/offering"
BROKERS: Final = (
    Mutation(
        "gateway-says-gone",
        "reconciler/blueprints/offering",
        r"is_json=answer\.document is not None",
        "is_json=True",
        "the 404 of a gateway counts as a broker's word that an instance is gone",
        (f"{_OFFERING}/test_answers.py",),
    ),
    Mutation(
        "error-without-a-time-is-unsent",
        "reconciler/blueprints/offering",
        r" if status != 503 or answer\.retry_after is not None",
        "",
        "a call that may have been done is taken for one that was not",
        (f"{_OFFERING}/test_answers.py",),
    ),
    Mutation(
        "connected-is-unsent",
        "reconciler/outbound",
        r"trace\.on_connection_create_end\.append\(_connected\)",
        "pass",
        "a call whose connection was cut is taken for one that was not sent",
        ("tests/contract/test_broker_lies.py",),
    ),
    Mutation(
        "sent-twice",
        "reconciler/broker",
        r"once=True,",
        "once=False,",
        "a PUT or DELETE is sent again where its kept connection was cut",
        ("tests/contract/test_broker_client.py",),
    ),
    Mutation(
        "password-to-another-host",
        "reconciler/broker",
        r"if spec\.url and held and",
        "if False and",
        "a ServiceBroker leads the password of a Secret to another host",
        ("tests/unit/broker/test_address.py",),
    ),
    Mutation(
        "flood-of-a-space",
        "reconciler/kube",
        r"\n\s+and self\._of_parties\[party\] < self\._per_space",
        "",
        "one space takes all turns of its owner at a broker",
        ("tests/unit/broker/test_gate.py",),
    ),
    Mutation(
        "flood-of-an-owner",
        "reconciler/kube",
        r"\n\s+and self\._of_owners\[party\.owner\] < self\._per_owner",
        "",
        "an owner of many spaces takes all turns at a broker",
        ("tests/unit/broker/test_gate.py",),
    ),
    Mutation(
        "owners-without-turns",
        "reconciler/kube",
        r"self\._owners\.move_to_end\(owner\)",
        "pass",
        "an owner with a thousand keys, or calls, goes before all others",
        (_TURNS,),
    ),
    Mutation(
        "spaces-without-turns",
        "reconciler/kube",
        r"spaces\.move_to_end\(party\)",
        "pass",
        "an app cluster of a fleet goes before all its sisters",
        (_TURNS,),
    ),
    Mutation(
        "rate-of-nobody",
        "reconciler/kube",
        r"self\._waiting, current_party\(\)",
        "self._waiting, NOBODY",
        "a thousand calls for one tenant delay each call for others",
        (_TURNS,),
    ),
    Mutation(
        "searches-of-an-owner",
        "bind",
        r"party\.owner not in self\._searching and ",
        "",
        "an owner that ends forty app namespaces has all searches for itself",
        (_SEARCHES,),
    ),
    Mutation(
        "searches-at-once",
        "bind",
        r" and len\(self\._searching\) < _SEARCHES",
        "",
        "no worker is left for new app namespaces while many end",
        (_SEARCHES,),
    ),
    Mutation(
        "looks-as-often-as-reasons",
        "klutchctl/controller",
        r"is_looked = known is not None and cluster",
        "is_looked = known is not None and known.seen == seen and cluster",
        "an app cluster that changes a reason each second is read each second",
        ("tests/unit/controlling/test_relooks.py",),
    ),
    Mutation(
        "hashes-in-the-loop",
        "klutchctl/web",
        r"verdict = await asyncio\.to_thread\(\n\s+decide\.decide,([^)]*now\(\)),\n\s+\)",
        r"verdict = decide.decide(\1)",
        "webhooks of a megabyte each stop the work on a fleet",
        ("tests/contract/test_hooks.py",),
    ),
    Mutation(
        "pages-of-an-address",
        "klutchctl/web",
        r"party = Party\(address\)",
        "party = Party()",
        "one browser's pages delay those of all others",
        ("tests/unit/web/test_board_index.py",),
    ),
    Mutation(
        "pages-all-the-time",
        "klutchctl/web",
        r"2 \* self\._clock\(\) - began",
        "began",
        "browsers take the whole process, which works on a fleet",
        ("tests/unit/web/test_board_index.py",),
    ),
    Mutation(
        "owner-that-says-so",
        "bind",
        r" or f\"f:\{keys\.IDENTITY\}\" not in written",
        "",
        "whoever may annotate a Namespace takes the turns of whom they like",
        (f"{_BIND}/test_parties.py",),
    ),
)
SIGNATURES: Final = (
    _guard(
        "key-that-nobody-touched",
        "reconciler/source",
        r"not flags & _USER_PRESENT",
        "a security key signs for a program, without a person",
        f"{_SOURCE}/sshsig/test_verify.py",
    ),
    _guard(
        "signature-for-something-else",
        "reconciler/source",
        r"envelope\.namespace != namespace\.encode\(\)",
        "what somebody signed for another purpose is a commit",
        f"{_SOURCE}/sshsig/test_verify.py",
    ),
    _guard(
        "key-for-everybody",
        "reconciler/source",
        r"not matches\(principal, self\.principals\)",
        "a listed key signs in the name of anybody",
        f"{_SOURCE}/sshsig/test_verify.py",
    ),
    _guard(
        "history-rewritten",
        "reconciler/source",
        r"not descends",
        "a force push brings an older state back",
        f"{_SOURCE}/test_verification.py",
    ),
    _guard(
        "tag-under-another-name",
        "reconciler/source",
        r"_TAGS \+ name != ref",
        "an old signed tag is served as a new one",
        f"{_SOURCE}/test_verification.py",
    ),
    Mutation(
        "end-of-a-key",
        "reconciler/source",
        r"max\(times\) > self\.valid_before",
        "min(times) > self.valid_before",
        "a stolen key signs after its end, with an old date",
        (f"{_SOURCE}/sshsig/test_verify.py",),
    ),
)
_HOOKS: Final = "klutchctl/web/hooks"
_NOTIFY: Final = "reconciler/watch/notify"
WEBHOOKS: Final = (
    Mutation(
        "signed-webhook-of-last-year",
        "reconciler/outbound",
        r"<= _TOLERANCE",
        "<= 10**9",
        "a webhook that was listened to is sent again for ever",
        ("tests/unit/web/test_hooks.py",),
    ),
    Mutation(
        "signing-token-in-the-clear",
        _HOOKS,
        r"case Provider\.GITLAB if [^\n]+:",
        "case Provider.GITLAB:",
        "a key that signs is taken as a password",
        ("tests/unit/web/test_hooks.py",),
    ),
    _guard(
        "webhook-secret-of-old",
        "reconciler",
        r"self\._stamp != before",
        "a secret that was taken away is good for ever",
        "tests/unit/web/test_hooks.py",
    ),
    Mutation(
        "chat-url-in-the-log",
        _NOTIFY,
        r"Fault\(error\.problem, again=True\)",
        "Fault(str(error), again=True)",
        "the secret URL of a chat is in the log",
        ("tests/contract/test_notify.py",),
    ),
    _guard(
        "older-news-last",
        _NOTIFY,
        r"message\.commit in self\._waiting",
        "a pending commit is reported after its success",
        "tests/contract/test_notify.py",
    ),
    Mutation(
        "done-and-never-in-place",
        "reconciler/watch",
        r"approval\.line_key\(one\.change\): one",
        "id(one.change): one",
        "no commit is ever in place",
        ("tests/unit/watch/test_fleet_state.py",),
    ),
)
RIGHTS: Final = (
    Mutation(
        "page-decides",
        "klutchctl/binding",
        r"self\.verdict\(claim, (?=proposed)",
        "Verdict.ACCEPT if answered and _said(claim) in agreed else self.verdict(claim, ",
        "a front door says what a person has accepted",
        ("tests/unit/binding/test_consent.py",),
    ),
    Mutation(
        "flags-open-all",
        "klutchctl/binding",
        r"allowed and not opened",
        "allowed",
        "a flag for a kind opens kube-system",
        ("tests/unit/binding/test_consent.py",),
    ),
    Mutation(
        "client-is-audience",
        "bind/door",
        r" if self\.accept_cli_audience else \(\)",
        "",
        "a token that another door got is good here",
        ("tests/contract/door/test_door_attacks.py",),
    ),
    Mutation(
        "unverified-email",
        "reconciler/oidc",
        r" if name != \"email\"",
        "",
        "a rule counts an address that its user made up",
        ("tests/unit/oidc/test_id_tokens.py",),
    ),
    Mutation(
        "prefix-of-names",
        "reconciler/blueprints",
        r"if \"/\" in whole else \(\"/\",\)",
        "",
        "an image of another registry on the same host is deployed",
        ("tests/unit/blueprints/test_overrides.py",),
    ),
    Mutation(
        "image-of-anywhere",
        "reconciler/blueprints",
        r"if value and not any\(_is_below",
        "if False and not any(_is_below",
        "an author of AppClusterBindings runs any image",
        ("tests/unit/bind/test_app_cluster_binding_konnector.py",),
    ),
    Mutation(
        "space-unbounded",
        "bind/app_cluster_binding",
        r"for kind, live, stated in made if live is None",
        "for kind, live, stated in made if False",
        "Pods of a space take and reach what they like",
        ("tests/unit/bind/test_app_cluster_binding_konnector.py",),
    ),
    Mutation(
        "proxy-unnoticed",
        "reconciler/web",
        r"self\.unnamed = str\(peer\)",
        "pass",
        "all who come through a proxy share one limit, and nobody learns why",
        ("tests/unit/web/test_requests.py",),
    ),
    Mutation(
        "rights-unbounded",
        "klutchctl/binding",
        r"if decision\.policy:",
        _NEVER,
        "a konnector has rights that no policy bounds",
        ("tests/contract/trust/test_s03_bound_rights.py",),
    ),
)
_OVERSIZED: Final = "tests/model/test_oversized.py"
_CACHE: Final = "tests/unit/kube/cache/test_oversized.py"
LIMITS: Final = (
    Mutation(
        "author-of-bindings",
        "bind",
        r"served=served,\n\s+budget=OF_CLAIMS,(?=\n\s+\)\n\s+self\.bindings)",
        "served=served,",
        "sixty AppClusterBindings fill the memory of the backend",
        (f"{_BIND}/test_parties.py",),
    ),
    Mutation(
        "quotas-lowered",
        "bind",
        r"max\(least, 2 \* counts\.get\(one, 0\)\)",
        "least",
        "an upgrade stops whoever has many objects",
        (f"{_BIND}/test_bounds.py",),
    ),
    Mutation(
        "spaces-uncounted",
        "bind",
        r"for one in sorted\(counted\.resources\)\} if number",
        "for one in []} if number",
        "one space has as many objects as it likes",
        ("tests/contract/trust/test_t09_one_tenant.py",),
    ),
    Mutation(
        "finalizers-of-anybody",
        "bind",
        r"manifest\.finalizers_of\(live\)\[:finalizers\]",
        "manifest.finalizers_of(live)",
        "the backend holds whatever finalizers a tenant makes up",
        (f"{_BIND}/test_bounds.py",),
    ),
    Mutation(
        "wide-work-at-once",
        "reconciler/kube",
        r"return not self\.wide or",
        "return True or",
        "one tenant's wide objects take all workers and all of an API server",
        (_TURNS, "tests/unit/controller/test_queue.py"),
    ),
    Mutation(
        "wide-is-what-a-view-keeps",
        "reconciler/kube",
        r"is_stub\(manifest\) or takes\(manifest\) > WIDE",
        "is_stub(manifest) or takes(kept) > WIDE",
        "what a view leaves out of an object costs others their turns",
        (_CACHE, f"{_BIND}/test_parties.py"),
    ),
    Mutation(
        "flooded-binding-whole",
        "bind/osb",
        r", trim=bounds\.trimmed_cluster_binding",
        "",
        "the conditions of one tenant end the work on all claims",
        (f"{_BIND}/test_parties.py",),
    ),
    _guard(
        "decoded-whole",
        "reconciler/kube",
        r"memory > limits\.max_memory",
        "bytes that are worth more memory than a process may have are decoded",
        "tests/unit/kube/http/test_answer_stream.py",
        _OVERSIZED,
    ),
    Mutation(
        "wide-page-for-ever",
        "reconciler/kube",
        r"answer = _page_of\(.*\)",
        "raise",
        "one wide object hides all others of its kind",
        (_OVERSIZED,),
    ),
    _guard(
        "held-whole",
        "reconciler/kube",
        r"not self\._partial and \(\s+is_stub\(manifest\) or [^\n]+\s+\)",
        "views hold what developers write, however large it is",
        _CACHE,
        _OVERSIZED,
    ),
    Mutation(
        "budgets-apart",
        "reconciler/kube",
        r"others = sum\([^\n]+\)",
        "others = 0",
        "as many views as somebody can make are full each",
        (_CACHE,),
    ),
    Mutation(
        "listed-whole",
        "reconciler/kube",
        r"if page\.memory > most and takes",
        "if False and takes",
        "a plan holds what all tenants write",
        ("tests/unit/kube/test_lists.py",),
    ),
    Mutation(
        "status-whole",
        "bind",
        r"if takes\(status\) <= _LARGEST_STATUS:",
        "if True:",
        "the backend holds and shows any number of conditions of a tenant",
        (f"{_BIND}/test_bounds.py",),
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
