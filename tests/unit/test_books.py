"""What the books say of commands, files and codes is so."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib

import jsonschema
import pytest
import yaml

from bind import settings as bind
from bind.osb import settings as osb
from klutchctl import main
from konnector import settings as konnector
from reconciler.core import keys
from tests.support import books

OF_REFERENCE = ("files", "annotations", "differences")
FILES, ANNOTATIONS, DIFFERENCES = (f"klutchctl/docs/reference/{one}.md" for one in OF_REFERENCE)
CLUSTERS, DOOR = (f"klutchctl/docs/install/{one}.md" for one in ("app-clusters", "front-door"))
CLAIMS = "fleet-example/services/crossplane/*s.yaml"
CODE_FOLDERS = ("klutchctl", "konnector", "bind", "reconciler", "fleet-example", "tests")


def spoken_of(book):
    """Return the commands of a book that a reader need not run as they stand, in words."""
    shown = (block for name in ("sh", "text") for block in books.blocks(book, name))
    for block in (re.sub(r"'[^']*'", "X", one.replace("\\\n", "")) for one in shown):
        yield from COMMAND.findall(block)
    yield from re.findall(r"`(klutchctl [^`]+)`", books.text(book))


COMMAND = re.compile(
    r"(?:^|[|;]|\bdo\b) *(?:\$ |\w+=\S+ )?((?:klutchctl|kubectl(?! krew)) [^|;>\n]*)", re.MULTILINE
)
SPOKEN_OF = {book: lines for book in books.BOOKS if (lines := [*spoken_of(book)])}


@pytest.mark.parametrize("book", SPOKEN_OF)
def test_every_command_that_is_spoken_of_exists_with_its_options(book, capsys):
    for line in SPOKEN_OF[book]:
        program, *arguments = shlex.split(line, comments=True)
        if program == "klutchctl":
            assert main.run([*arguments, "--help"]) == 0, line
            assert "Usage:" in capsys.readouterr().out
        elif shutil.which(program):
            command = [program, *arguments, "--help"]
            assert "kubectl controls" not in subprocess.check_output(command, text=True), line


@pytest.mark.parametrize("book", [CLUSTERS, DOOR, DIFFERENCES])
def test_every_flag_of_the_agents_exists(book):
    parsers = [agent._parser() for agent in (bind, osb, konnector)]
    known = {flag for parser in parsers for flag in parser._option_string_actions}
    flags = re.findall(r"`(--[a-z-]+)", books.text(book))
    assert flags
    assert [flag for flag in flags if flag not in known] == []


def fleet():
    (whole,) = [block for block in books.blocks(FILES, "yaml") if "kind: Fleet" in block]
    return whole


def test_the_fleet_that_is_shown_is_valid(tmp_path, capsys):
    (tmp_path / "fleet.yaml").write_text(fleet())
    assert main.run(["validate", str(tmp_path)]) == 0
    assert "1 binding -> 1 unit" in capsys.readouterr().out


def forms():
    """Yield kind and schema of the fleet's files, of CRDs, and of the example's claims."""
    fleet = json.loads(books.text("schemas/fleet.schema.json"))
    yield from ((kind, fleet) for kind in fleet["properties"]["kind"]["enum"])
    for path in (*books.ROOT.glob("schemas/crds/*"), *books.ROOT.glob(CLAIMS)):
        for spec in (one["spec"] for one in yaml.safe_load_all(path.read_text("utf-8"))):
            if names := spec.get("claimNames", spec.get("names")):
                yield names["kind"], spec["versions"][0]["schema"]["openAPIV3Schema"]


FORMS = dict(forms())


def documents():
    """Yield each document of these kinds that a book shows."""
    fenced = re.compile(r"^ *```(?:yaml|text)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    for block in (one for book in books.BOOKS for one in fenced.findall(books.text(book))):
        with contextlib.suppress(yaml.YAMLError):
            found = [*yaml.safe_load_all(textwrap.dedent(block))]
            yield from (one for one in found if isinstance(one, dict) and one.get("kind") in FORMS)


@pytest.mark.parametrize("document", [*documents()])
def test_every_document_that_is_shown_is_valid(document):
    head = {"apiVersion": "fleet.klutchctl.dev/v1alpha1", "metadata": {"name": "shown"}}
    jsonschema.validate(head | document, FORMS[document["kind"]])


def test_the_overrides_that_are_shown_make_the_container_of_our_manifests(tmp_path, capsys):
    (shown,) = books.blocks(CLUSTERS, "yaml")
    documents = [*yaml.safe_load_all(fleet())]
    documents[0]["spec"] = yaml.safe_load(shown)
    documents[0]["spec"]["konnector"]["rbac"] = "Full"  # which adds nothing of this by itself
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump_all(documents))
    assert main.run(["render", str(tmp_path)]) == 0
    rendered = yaml.safe_load_all(capsys.readouterr().out)
    manifests = books.ROOT / "konnector/deploy/minimal/deployment.yaml"
    ours, ready = (
        document["spec"]["template"]["spec"]["containers"][0]
        for document in (*rendered, *yaml.safe_load_all(manifests.read_text("utf-8")))
        if document and document["kind"] == "Deployment"
    )
    assert ours["resources"] == ready["resources"]
    assert ours["securityContext"].items() >= ready["securityContext"].items()
    assert ours["livenessProbe"]["httpGet"]["path"] == ready["livenessProbe"]["httpGet"]["path"]


def test_every_annotation_of_ours_is_in_the_list():
    known = {one for one in vars(keys).values() if str(one).startswith(keys.OWN_PREFIX)}
    missing = {one.removeprefix(keys.OWN_PREFIX) for one in known}
    assert missing - {*re.findall(r"`([a-z-]+)[:`]", books.text(ANNOTATIONS))} == {""}


def test_every_make_target_exists():
    targets = re.findall("^([a-z]+):", (books.ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    lines = [line for book in books.BOOKS for line, _ in books.commands(book)]
    named = {line.split()[1] for line in lines if line.startswith("make ")}
    assert named >= {"demo", "test"}
    assert named <= {*targets}


def test_the_picture_of_the_library_shows_its_layers():
    project = tomllib.loads((books.ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == ["reconciler"]]
    picture = books.text("reconciler/README.md").split("```")[1].split("reconciler\n")[1]
    shown = re.findall(r"^   ([a-z]+(?:  [a-z]+)*)  ", picture, re.MULTILINE)
    assert [line.split() for line in shown] == [layer.split(" | ") for layer in layers]


# The sections of the books before there was a site: people and clusters have links to them.
LINES = books.text("tests/unit/old_anchors.txt").splitlines()
OLD_ANCHORS = {book: names for book, *names in map(str.split, LINES)}


@pytest.mark.parametrize("book", books.BOOKS)
def test_every_link_leads_somewhere(book):
    here = books.ROOT / book
    old = [f"#{name}" for name in OLD_ANCHORS.get(book, ())]
    for target in [*re.findall(r'(?:\]\(|src=")([^)"]+)', books.text(book)), *old]:
        if target.startswith("http"):
            continue
        path, _, section = target.partition("#")
        there = (here.parent / path).resolve() if path else here
        assert there.exists(), target
        if section:
            text = there.read_text("utf-8")
            found = re.findall(r"^#+ (.*)$", text.lower(), re.MULTILINE)
            headings = [re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in found]
            assert section in {*headings, *re.findall(r'<a id="([\w-]+)">', text)}, target


@pytest.mark.parametrize("book", books.BOOKS)
def test_every_path_of_the_repository_exists(book):
    tops = "klutchctl|konnector|bind|reconciler|tests|schemas|fleet-example"
    paths = re.findall(rf"`((?:{tops})/[\w./-]*)`", books.text(book))
    assert [path for path in paths if not (books.ROOT / path).exists()] == []


LISTS = {"protocol-bind": "bind", "protocol-konnector": "konnector"}
LISTS |= {name: name for name in ("mapping", "safety")}
ALONE = r"\b(?:[FHU][1-9]\d?|T[1-9]\d?)\b"
# What follows the name of a list: "protocol-bind.md A.2, C.6", "mapping.md 2 to 4".
OF_A_LIST = re.compile(
    r"(protocol-bind|protocol-konnector|mapping|safety)(?:\.md)?[\s:#,]+"
    r"((?:[A-H]\b(?:\.\d+)*|\d+)(?:(?:, | and | to |-)(?:[A-H]\b(?:\.\d+)*|\d+))*)"
)


def rows():
    """Return the codes of each list of PROTOCOL.md."""
    found = {}
    for section in books.text("schemas/PROTOCOL.md").split("\n## ")[1:]:
        name, _, table = section.partition("\n")
        first = re.findall(r"^\| ([A-Z0-9., ]+) \|", table, re.MULTILINE)
        found[name] = {code for row in first for code in row.split(", ")}
    return found


def cited(path):
    """Yield list and code of each citation of a file; "" where the code says which list it is."""
    text = re.sub(r"\n *#", " ", path.read_text("utf-8"))
    for name, codes in OF_A_LIST.findall(text):
        for code in re.split(r", | and | to |-", codes):
            yield LISTS[name], code
    for code in re.findall(ALONE, text):
        yield code[0], code
    own = "konnector" if path.is_relative_to(books.ROOT / "konnector") else ""
    for code in re.findall(r"\b[A-H]\.\d+(?:\.\d)?\b", text):
        yield own, code


def test_every_code_of_a_comment_stands_among_the_facts_of_the_protocol():
    known = rows()
    wire = {*known["bind"], *known["konnector"]}
    sources = [path for folder in CODE_FOLDERS for path in (books.ROOT / folder).rglob("*.py")]
    missing = {
        (str(path.relative_to(books.ROOT)), code)
        for path in sources
        for where, code in cited(path)
        if code not in known.get(where, wire)
    }
    assert missing == set()
