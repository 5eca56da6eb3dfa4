"""Words for problems: every code, hints with the nearest name, and lists that stay short."""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Final

_SHOWN: Final = 3
_MOST_KNOWN: Final = 12
_LONGEST: Final = 60


def quoted(text: str) -> str:
    """Return a key or name as it is shown: on one line, without control characters, not long."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def nearest(word: str, known: Collection[str]) -> str:
    """Return a hint: which of `known` may be meant, else all of them if they are few."""
    names = sorted(known)
    for close in get_close_matches(word[:_LONGEST], names, n=1, cutoff=0.6):
        return f"Did you mean {close}?"
    folded = [name for name in names if name.casefold() == word.casefold()]
    if folded:
        return f"Did you mean {folded[0]}?"
    if not names:
        return "There is none"
    return f"Known: {', '.join(names)}" if len(names) <= _MOST_KNOWN else ""


def few(names: Iterable[str]) -> str:
    """Return the names in a sentence: the first three in order, and how many there are more."""
    ordered = sorted(set(names))
    shown, more = ordered[:_SHOWN], len(ordered) - _SHOWN
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


CODES: Final[Mapping[str, str]] = {
    # Files
    "no-entry-file": "the folder holds neither fleet.yaml nor klutch-fleet.yaml",
    "two-entry-files": "the folder holds both fleet.yaml and klutch-fleet.yaml",
    "unreadable-file": "a file cannot be read",
    "not-a-file": "a folder, link, submodule or device stands where a file should be",
    "file-too-large": "a file is larger than 1 MiB",
    "tree-too-large": "the files are larger than 64 MiB together",
    "too-many-files": "the includes look into folders with more than 10,000 files",
    "bad-path": "a path or pattern is absolute, leaves the repository or cannot name a file",
    "missing-file": "a file that is named is not there",
    # Text
    "not-utf-8": "a file is not UTF-8 text",
    "not-yaml": "a file is not YAML",
    "yaml-alias": "YAML aliases are not read",
    "yaml-tag": "YAML tags are not read",
    "yaml-merge-key": "YAML merge keys are not read",
    "duplicate-key": "a mapping has one key twice",
    "too-deep": "values are nested deeper than 64 levels",
    "not-a-number": "a number that JSON does not have",
    # Documents
    "empty-fleet": "there is no document at all",
    "rancher-fleet": "the file belongs to Rancher Fleet",
    "unknown-api-version": "a document is not of fleet.klutchctl.dev/v1alpha1",
    "unknown-kind": "a document has a kind that does not exist",
    "no-fleet": "there is no Fleet document in the file that is read first",
    "second-fleet": "there is more than one Fleet document",
    "duplicate-document": "two documents have one kind and name",
    "unknown-key": "a mapping has a key that does not exist",
    "missing-field": "a field that is required is absent",
    "wrong-type": "a value has another type than its field",
    "bad-value": "a value has another form than its field",
    "not-one-of": "a value is none of those that are allowed",
    "private-key": "a file for certificates holds a private key",
    "not-certificates": "a file for certificates holds something else",
    # Substitution
    "bad-reference": "a ${...} is not closed, or is none of those that exist",
    "unknown-variable": "a ${vars.NAME} is not in Fleet.spec.vars",
    "missing-label": "a ${cluster.labels.NAME} that a cluster does not have",
    "misplaced-reference": "a ${cluster...} stands where no one cluster is meant",
    # References
    "include-matches-nothing": "an include matches no file",
    "selector-matches-nothing": "a selector selects no cluster",
    "unknown-cluster": "a Cluster is named that does not exist",
    "unknown-control-plane": "a ControlPlane is named that does not exist",
    "unknown-template": "a Template is named that does not exist",
    "unknown-binding": "a Binding is named that does not exist",
    "dependency-cycle": "Bindings wait for each other",
    "duplicate-unit": "one resource is bound twice in one cluster",
    "duplicate-access": "two Cluster documents are one cluster",
    "duplicate-space": "two Clusters would share one binding space",
    "claim-outside-ceiling": "a claim reaches further than its Template allows",
    "duplicate-claim": "two claims of a Binding are alike",
    "no-konnector-image": "a konnector is to be deployed and no image is named",
    "parameters-not-carried": "parameters in a cluster whose mode cannot carry them",
    "space-name-too-long": "the name of a binding space has more than 63 characters",
    # Denied
    "policy-denied": "a Policy does not allow what a Binding asks for",
    "policy-limit": "a Policy's limit is exceeded",
    "policy-kind": "a document of another kind than Binding stands where a Policy matches",
    "fleet-renamed": "a pull request gives the Fleet another name",
    # Warnings
    "policy-default": "the files do not say what holds where no Policy has a path",
    "long-space-name": "the name of a binding space leaves little room for namespaces",
    "dependency-elsewhere": "a Binding depends on one that no cluster shares with it",
}
