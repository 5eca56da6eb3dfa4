"""The mistakes that people make first: what is said names the thing, its place, and the cure."""

import re
import shlex
from dataclasses import dataclass

import pygit2
import pytest

from klutchctl import main
from reconciler.core.live import Live, dump_live
from tests.support.checkouts import commit_work_tree

FLEET = """\
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Fleet
metadata: {name: acme}
spec: {policies: {default: Allow}}
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: ControlPlane
metadata: {name: delta}
spec:
  access: {kubeconfigContext: delta}
  mode: Direct
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {name: mill-1, labels: {team: millers}}
spec:
  access: {kubeconfigContext: mill-1}
  controlPlane: delta
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Template
metadata: {name: postgresql}
spec:
  resources: [{group: anynines.com, resource: servicebindings}]
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Binding
metadata: {name: mill-db}
spec:
  template: postgresql
  clusters: {matchLabels: {team: millers}}
"""
PROBLEM = re.compile("^fleet.yaml:([0-9]+:[0-9]+): error: ", re.MULTILINE)
API = "fleet.klutchctl.dev/v1alpha1"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}]
users: [{name: a, user: {}}]
contexts: [{name: elsewhere, context: {cluster: a, user: a}}]
"""


@dataclass(frozen=True)
class Edit:
    """A mistake in the files: `old`, which stands there once, becomes `new`."""

    old: str
    new: str


@dataclass(frozen=True)
class Says:
    """What a message has to hold. `place` is line:column of fleet.yaml, or an argument.

    `more`: places of problems beside this one that do not merely follow from it.
    """

    place: str
    thing: str
    cure: str
    more: tuple[str, ...] = ()
    code: int = 3


OWN = "spec:\n  access: {kubeconfigContext: mill-1}\n  controlPlane: delta\n"
HEAD = f"apiVersion: {API}\nkind: Cluster\n"
IN_FILES = {
    "a key one level out": (
        Edit(OWN, "controlPlane: delta\nspec:\n  access: {kubeconfigContext: mill-1}\n"),
        Says("16:1", "has no key 'controlPlane'", "belongs below spec", more=("18:3",)),
    ),
    "indented by three": (
        Edit("  controlPlane: delta", "   controlPlane: delta"),
        Says("18:4", "'controlPlane'", "line 17 in column 3: keys of one mapping begin in"),
    ),
    "a key in small letters": (
        Edit("controlPlane: delta", "controlplane: delta"),
        Says("18:3", "'controlplane'", "Did you mean controlPlane?", more=("17:3",)),
    ),
    "a tab": (
        Edit("  controlPlane", "\tcontrolPlane"),
        Says("18:1", "begins with a tab", "indent with spaces"),
    ),
    "a key twice": (
        Edit("  controlPlane: delta\n", "  controlPlane: delta\n  controlPlane: delta\n"),
        Says("19:3", "'controlPlane' is there twice", "line 18 too: keep one of them"),
    ),
    "a document twice": (
        Edit(f"---\n{HEAD}", f"---\n{HEAD}metadata: {{name: mill-1}}\n{OWN}---\n{HEAD}"),
        Says("22:18", "Cluster mill-1 is there twice", "also at fleet.yaml:15:18"),
    ),
    "a template that is not there": (
        Edit("template: postgresql", "template: postgres"),
        Says("30:13", "no Template postgres", "Did you mean postgresql?"),
    ),
    "a control plane that is not there": (
        Edit("controlPlane: delta", "controlPlane: dleta"),
        Says("18:17", "no ControlPlane dleta", "Did you mean delta?"),
    ),
    "names alone": (
        Edit("clusters: {matchLabels: {team: millers}}", "clusters: [mill-1]"),
        Says("31:13", "spec.clusters must be a mapping", "Write {names: [mill-1]}"),
    ),
    "a label that is a number": (
        Edit("labels: {team: millers}", "labels: {team: 7}"),
        Says("15:41", "metadata.labels.team must be text", "in quotes", more=()),
    ),
    "no kind": (
        Edit(HEAD, f"apiVersion: {API}\n"),
        Says("13:1", "kind is required", "Most likely Cluster"),
    ),
    "a kind in the plural": (
        Edit("kind: Cluster\n", "kind: Clusters\n"),
        Says("14:7", "no kind 'Clusters'", "Did you mean Cluster?"),
    ),
    "another kind in the plural": (
        Edit("kind: Template\n", "kind: Templates\n"),
        Says("21:7", "no kind 'Templates'", "Did you mean Template?"),
    ),
    "another version": (
        Edit(HEAD, HEAD.replace("v1alpha1", "v1beta1")),
        Says("13:13", "apiVersion is fleet.klutchctl.dev/v1beta1", f"Write {API}"),
    ),
    "the version of another kind": (
        Edit(HEAD, HEAD.replace(API, "v1")),
        Says("13:13", "apiVersion is v1", f"Write {API}, or leave it out"),
    ),
    "no name": (
        Edit("{name: mill-1, labels", "{labels"),
        Says("15:11", "metadata.name is required", "metadata.name is required"),
    ),
    "a name with capitals": (
        Edit("{name: mill-1,", "{name: Mill_1,"),
        Says("15:18", "metadata.name 'Mill_1'", "Did you mean mill-1?"),
    ),
    "a word in small letters": (
        Edit("mode: Direct", "mode: direct"),
        Says("11:9", "spec.mode is direct", "Did you mean Direct?"),
    ),
    "labels of no cluster": (
        Edit("matchLabels: {team: millers}", "matchLabels: {team: weavers}"),
        Says("31:13", "spec.clusters selects no Cluster", "Their labels: team=millers."),
    ),
    "a key of another format": (
        Edit("{matchLabels: {team: millers}}", "{selector: {matchLabels: {team: millers}}}"),
        Says("31:14", "spec.clusters has no key 'selector'", "Known: exclude, matchExpressions"),
    ),
    "a variable without quotes": (
        Edit("kubeconfigContext: mill-1", "kubeconfigContext: ${vars.x}"),
        Says("17:32", "a value with ${...}", "in quotes"),
    ),
    "documents that are not parted": (
        Edit(f"---\napiVersion: {API}\nkind: Template", f"apiVersion: {API}\nkind: Template"),
        Says("19:1", "'apiVersion' is there twice", "a line with --- goes between two documents"),
    ),
    "a kind for a resource": (
        Edit("resource: servicebindings", "resource: PostgresqlInstance"),
        Says(
            "24:47", "resource 'PostgresqlInstance' is not", "Did you mean postgresqlinstances?"
        ),
    ),
    "no Fleet": (
        Edit(FLEET.partition("---\n")[0] + "---\n", ""),
        Says("1:1", "no document of kind Fleet", "`klutchctl init` shows how a fleet begins"),
    ),
    "a Binding that waits for itself": (
        Edit("  template: postgresql\n", "  template: postgresql\n  dependsOn: [mill-db]\n"),
        Says("31:15", "mill-db -> mill-db", "Take mill-db out here"),
    ),
    "a brace that stays open": (
        Edit("{kubeconfigContext: mill-1}", "{kubeconfigContext: mill-1"),
        Says("18:15", "Line 17 opens { in column 11", "add }"),
    ),
    "a template of another tool": (
        Edit("controlPlane: delta", "controlPlane: {{ .Values.cp }}"),
        Says("18:18", "{{ }} is filled in by other tools", "commit what they render"),
    ),
}  # fmt: skip

ON_THE_LINE = {
    "an unknown context": (
        "--kubeconfig KUBECONFIG plan .",
        Says("KUBECONFIG: ", 'context "delta" does not exist', 'there: "elsewhere"', code=1),
    ),
    "a path that is nowhere": (
        "validate nowhere", Says("nowhere", "cannot be read", "No such file or directory"),
    ),
    "an unknown cluster": (
        "--cluster mill-2 plan .", Says("no such cluster", "mill-2", "There are: mill-1"),
    ),
    "labels of no cluster": (
        "-l team=weavers plan .",
        Says("--selector", "matches no cluster", "Their labels: team=millers"),
    ),
    "an unknown ref": (
        "plan . --ref nope",
        Says("ref: 'nope'", "is not in the repository", "Write HEAD, a branch"),
    ),
    "an unknown format": (
        "plan . -o xml", Says("Invalid value", "'xml'", "formats: text, json", code=64),
    ),
    "a kubeconfig that is nowhere": (
        "--kubeconfig nowhere plan .",
        Says("looked for nowhere", "no kubeconfig", "Name a kubeconfig with --kubeconfig"),
    ),
    "a plan for a folder that is nowhere": (
        "plan . --out nowhere/a.plan", Says("'--out'", "there is no folder", "nowhere", code=64),
    ),
    "a snapshot over a folder": (
        "snapshot --out .", Says("'--out'", "is a folder", ".", code=64),
    ),
    "an unknown command": ("paln", Says("paln", "No such command", "plan", code=64)),
    "an unknown option": (
        "plan . --outt x", Says("--outt", "No such option", "--out", code=64),
    ),
    "a unit that is nowhere": (
        "why mill-1/nope . --snapshot live.json",
        Says("mill-1/nope", "no document binds it", "in mill-1", code=5),
    ),
    "a fleet for a plan": (
        "show fleet.yaml",
        Says("fleet.yaml:1:1", "not a saved plan, as", "`klutchctl plan --out FILE` makes one"),
    ),
    "release of what the files name": (
        "release mill-1/mill-db",
        Says("fleet.yaml:28:18", "Binding mill-db", "Take it out of the files first"),
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with a fleet of one file that is right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "KUBECONFIG").write_text(KUBECONFIG)
    (tmp_path / "live.json").write_bytes(dump_live(Live({}, {}, {})))
    commit_work_tree(pygit2.init_repository(tmp_path, initial_head="main"))
    return tmp_path


def said(capsys, *arguments):
    """Run a command; return its exit code, and all that it said."""
    code = main.run([*arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize(("edit", "says"), IN_FILES.values(), ids=IN_FILES.keys())
def test_a_mistake_in_the_files(edit, says, folder, capsys):
    assert FLEET.count(edit.old) == 1
    (folder / "fleet.yaml").write_text(FLEET.replace(edit.old, edit.new))
    code, text = said(capsys, "validate", ".")
    assert code == says.code
    _, *parts = PROBLEM.split(text)
    problems = dict(zip(parts[::2], parts[1::2], strict=True))
    assert sorted(problems) == sorted([says.place, *says.more]), text
    for part in (says.thing, says.cure):
        assert part
        assert part in problems[says.place]


@pytest.mark.parametrize(("line", "says"), ON_THE_LINE.values(), ids=ON_THE_LINE.keys())
def test_a_mistake_on_the_command_line(line, says, folder, capsys):
    code, text = said(capsys, *shlex.split(line))
    assert code == says.code
    for part in (says.place, says.thing, says.cure):
        assert part
        assert part in text
