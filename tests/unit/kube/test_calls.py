"""What is sent again, and when: only what cannot do harm."""

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube import requests
from reconciler.kube.calls import delay_before_retry
from reconciler.kube.http.transport import Answer
from reconciler.kube.http.transport_errors import NoAnswer

READ = requests.get(Ref("c", CONFIG_MAP, "ns", "x"), metadata_only=False)
WRITE = requests.create(
    "c", {"metadata": {"name": "x", "namespace": "ns"}}, CONFIG_MAP, manager="m", dry_run=False
)


def answer(status, retry_after=None):
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Answer(status, CIMultiDictProxy(CIMultiDict(headers)), b"")


LOST = NoAnswer("cut", sent=True)
NOT_SENT = NoAnswer("refused", sent=False)
UNTRUSTED = NoAnswer("certificate", sent=False, permanent=True)

CASES = {
    "a read that met a 500 is repeated": (READ, answer(500), 1, True),
    "a write that met a 500 is not": (WRITE, answer(500), 1, False),
    "a read whose answer was lost is repeated": (READ, LOST, 1, True),
    "a write whose answer was lost is not": (WRITE, LOST, 1, False),
    "a write that was never sent is": (WRITE, NOT_SENT, 1, True),
    "a certificate does not become trusted by trying": (READ, UNTRUSTED, 1, False),
    "a read is tried three times": (READ, answer(500), 3, False),
    "a write turned away with 429 was not executed": (WRITE, answer(429), 1, True),
    "429 is waited for as long as the deadline allows": (WRITE, answer(429), 9, True),
    "a refusal is final": (READ, answer(403), 1, False),
    "a wait beyond the deadline is not begun": (READ, answer(429, "120"), 1, False),
    "a Retry-After that is no number is ignored": (READ, answer(429, "soon"), 1, True),
}


@pytest.mark.parametrize(
    ("request_", "outcome", "tries", "again"), CASES.values(), ids=CASES.keys()
)
def test_whether(request_, outcome, tries, again):
    delay = delay_before_retry(request_, outcome, tries=tries, left=60, jitter=0.5)
    assert (delay is not None) is again


def test_retry_after_is_never_cut_short():
    delay = delay_before_retry(READ, answer(429, "2"), tries=1, left=60, jitter=0)
    assert delay is not None
    assert 2 <= delay < 3


def test_a_server_error_that_names_a_time_is_not_asked_before():
    delay = delay_before_retry(READ, answer(503, "2"), tries=1, left=60, jitter=0)
    assert delay is not None
    assert delay >= 2
