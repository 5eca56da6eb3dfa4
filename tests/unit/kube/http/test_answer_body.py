"""What is read of an answer's body, and where reading ends."""

import gzip
import zlib

import pytest

from reconciler.kube.http.answer_body import Body
from reconciler.kube.http.transport_errors import Excess
from reconciler.kube.limits import Look


def whole(*parts, encoding="", limit=1000, look=None, seconds=0.0):
    """Read parts that come `seconds` apart."""
    time = [0.0]
    body = Body(encoding, limit=limit, look=look, now=lambda: time[0])
    for part in parts:
        time[0] += seconds
        body.take(part)
    return body.whole()


PACKED = gzip.compress(b"abc" * 300)
READ = {
    "nothing": ((), "", b""),
    "parts": ((b"a", b"b"), "", b"ab"),
    "named as it is": ((b"a",), "identity", b"a"),
    "packed": ((PACKED,), "gzip", b"abc" * 300),
    "packed, in parts": ((PACKED[:7], PACKED[7:]), "GZIP", b"abc" * 300),
    "nothing at all of a compression": ((), "gzip", b""),
    "just as much as is read": ((b"x" * 1000,), "", b"x" * 1000),
}


@pytest.mark.parametrize(("parts", "encoding", "wanted"), READ.values(), ids=READ)
def test_a_body_is_read(parts, encoding, wanted):
    assert whole(*parts, encoding=encoding) == wanted


NOTHING = gzip.compress(b"")
REFUSED = {
    "one octet more": ((b"x" * 1001,), "", "more than 1000 bytes to one call"),
    "a bomb": ((gzip.compress(b"x" * 10**7),), "gzip", "more than 1000 bytes to one call"),
    "much that unpacks to nothing": ((NOTHING, NOTHING), "gzip", "more than one compressed"),
    "more after its end": ((PACKED, b"x"), "gzip", "more than one compressed"),
    "deflate": ((b"x",), "deflate", "compression that was not asked for"),
    "brotli": ((b"x",), "br", "compression that was not asked for"),
}


@pytest.mark.parametrize(("parts", "encoding", "reason"), REFUSED.values(), ids=REFUSED)
def test_more_than_is_read_is_refused(parts, encoding, reason):
    with pytest.raises(Excess, match=reason):
        whole(*parts, encoding=encoding)


@pytest.mark.parametrize("parts", [(b"no gzip",), (PACKED[:-1],)])
def test_what_is_no_gzip_or_not_all_of_it_is_an_error(parts):
    with pytest.raises(zlib.error):
        whole(*parts, encoding="gzip")


SLOW = {
    "a byte a second": ((b"x",) * 9, 1.0, False),
    "200 a second": ((b"x" * 200,) * 9, 1.0, False),
    "256 a second": ((b"x" * 256,) * 9, 1.0, True),
    "slow for a moment": ((b"x", b"x"), 1.0, True),
    "silent, and then enough": ((b"x" * 900, b"x" * 5000), 20.0, True),
}


@pytest.mark.parametrize(("parts", "seconds", "is_read"), SLOW.values(), ids=SLOW)
def test_what_comes_too_slowly_is_not_waited_for(parts, seconds, is_read):
    if is_read:
        assert whole(*parts, limit=10**6, seconds=seconds) == b"".join(parts)
    else:
        with pytest.raises(Excess, match="less than 256 bytes a second"):
            whole(*parts, limit=10**6, seconds=seconds)


def test_all_answers_of_one_look_are_counted_together():
    look = Look(octets=1500)
    assert whole(b"x" * 1000, look=look)
    with pytest.raises(Excess, match="more than 1500 bytes in one look"):
        whole(b"x" * 501, look=look)
