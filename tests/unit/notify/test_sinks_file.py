"""The file that names where messages go, and what is wrong in it, with its place."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.watch.notify.messages import Phase
from reconciler.watch.notify.sinks_file import CommitStatus, Slack, Webhook, read
from tests.support import books

HEAD = "apiVersion: notify.klutchctl.dev/v1alpha1\nkind: Notify\nsinks:\n"
GITHUB = "- {name: a, commitStatus: {provider: github, repository: acme/fleet, tokenFile: token}}"


@pytest.fixture
def folder(tmp_path):
    for name, content in {
        "token": "t0k3n\n",
        "key": "x" * 16,
        "short": "x" * 15,
        "broken": "whsec_!",
        "url": "https://chat.example/T1/s3cr3t\n",
        "plain": "http://chat.example/s3cr3t",
        "umlaut": "tök",
        "empty": "\n",
    }.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def parsed(folder, *lines, head=HEAD):
    (folder / "notify.yaml").write_text(head + "\n".join(lines))
    return read(folder / "notify.yaml")


def test_all_sinks(folder):
    commits, chat, events = parsed(
        folder,
        GITHUB,
        "- {name: b, slack: {urlFile: url}, states: [failure]}",
        f"- name: c\n  webhook: {{url: 'https://a.example/x?y=z', secretFile: {folder}/key}}",
        "  caFile: ca.crt",
    )
    assert commits.target == CommitStatus(
        provider="github", repository="acme/fleet", token_file="token"
    )
    assert commits.target.base == "https://api.github.com"
    assert commits.secret().reveal() == "t0k3n"
    assert commits.phases == set(Phase)
    assert isinstance(chat.target, Slack)
    assert (chat.phases, chat.secret_file) == ({Phase.FAILURE}, folder / "url")
    assert isinstance(events.target, Webhook)
    assert (events.secret_file, events.ca_file) == (folder / "key", folder / "ca.crt")


STATUS = "- {name: a, commitStatus: {provider: gitea, repository: %s, tokenFile: token%s}}"
WEBHOOK = "- {name: a, webhook: {url: '%s', secretFile: %s}}"
WRONG = {
    "no YAML": ("- {", "5:1: not YAML"),
    "an unknown key": ("- {name: a, slak: {}}", "4:13: sinks[0] has no key 'slak'. Did you mean"),
    "no target": ("- {name: a}", "4:3: a sink has one of commitStatus, slack and webhook"),
    "two targets": (
        "- {name: a, slack: {urlFile: url}, webhook: {url: 'https://a.example', secretFile: key}}",
        "4:3: a sink has one of",
    ),
    "one name twice": (f"{GITHUB}\n{GITHUB}", "5:10: sink a is there twice"),
    "a name that is none": (
        GITHUB.replace("a,", "A/b,", 1),
        "4:10: sinks[0].name 'A/b' is not made",
    ),
    "a name that refers": (
        GITHUB.replace("a,", "'${x}',", 1),
        "4:10: sinks[0].name '${x}' is not made",
    ),
    "no state": (GITHUB[:-1] + ", states: []}", "states must not be empty"),
    "an unknown state": (GITHUB[:-1] + ", states: [red]}", "must be pending, success or failure"),
    "Gitea without its API": (STATUS % ("a/b", ""), "4:27: api is required"),
    "a repository without an owner": (STATUS % ("a", ""), "is not a path such as acme/fleet"),
    "a repository that leads up": (STATUS % ("a/../b", ""), "is not a path such as acme/fleet"),
    "an API in the clear": (
        STATUS % ("a/b", ", api: 'http://a.example'"),
        "api is no https URL, and none of this machine",
    ),
    "a URL with a password": (WEBHOOK % ("https://u:s3cr3t@a.example", "key"), "no https URL"),
    "a URL with a fragment": (WEBHOOK % ("https://a.example/x#y", "key"), "no https URL"),
    "no such file": (WEBHOOK % ("https://a.example", "nope"), "nope cannot be read: No such file"),
    "an empty file": (WEBHOOK % ("https://a.example", "empty"), "is empty"),
    "a short key": (WEBHOOK % ("https://a.example", "short"), "15 bytes, and 16 are needed"),
    "a broken key": (WEBHOOK % ("https://a.example", "broken"), "not base64"),
    "a chat in the clear": ("- {name: a, slack: {urlFile: plain}}", "4:3: urlFile contains no"),
    "a token that no header holds": (
        GITHUB.replace("token}", "umlaut}"),
        "4:3: the token contains characters",
    ),
}


@pytest.mark.parametrize(("lines", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_wrong(folder, lines, sentence):
    with pytest.raises(ConfigError) as caught:
        parsed(folder, lines)
    assert str(caught.value).startswith(f"{folder}/notify.yaml:")
    assert sentence in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ("", "1:1: the document must be a mapping, and is a list"),
        (HEAD.replace("v1alpha1", "v2"), "1:13"),
        (HEAD + f"{GITHUB}\n---\n" + HEAD, "5:1: only one document"),
    ],
)
def test_another_document(folder, head, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parsed(folder, GITHUB, head=head)


def test_a_file_that_is_not_there(folder):
    with pytest.raises(ConfigError, match="cannot be read"):
        read(folder / "nope.yaml")


def test_the_file_that_is_shown_is_valid(folder):
    [shown] = books.blocks("klutchctl/docs/operate/notifications.md", "yaml")
    for name, of in (("github-token", "token"), ("slack-url", "url"), ("events-key", "key")):
        (folder / of).rename(folder / name)
    assert [one.name for one in parsed(folder, head=shown)] == ["commits", "chat", "events"]
