"""Requests and answers as values: what has two readings is refused, and how often who may ask."""

from ipaddress import ip_address, ip_network

import pytest

from reconciler.web import requests
from reconciler.web.http1 import fields_of


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        ("/", "/", {}),
        ("/?", "/", {}),
        ("/a/b%20c", "/a/b c", {}),
        ("/%C3%BC", "/ü", {}),
        ("/a+b", "/a+b", {}),
        ("/authorize?s=1&c=a-b&p=80", "/authorize", {"s": "1", "c": "a-b", "p": "80"}),
        ("/?u=http%3A%2F%2Flocalhost%3A80%2F%3Fa%3D1", "/", {"u": "http://localhost:80/?a=1"}),
        ("/?a=b+c%2Bd", "/", {"a": "b c+d"}),
        ("/?a=1=2", "/", {"a": "1=2"}),
        ("/?a&b=&&c=?/", "/", {"a": "", "b": "", "c": "?/"}),
        ("/?a=1;b=2", "/", {"a": "1;b=2"}),
        ("/?%61=1", "/", {"a": "1"}),
        # Whom a proxy asks for is not looked at.
        ("http://evil.example/a?b=1", "/a", {"b": "1"}),
        ("HTTPS://evil.example", "/", {}),
        ("http://evil.example?b=1", "/", {"b": "1"}),
        ("//evil.example/a", "//evil.example/a", {}),
    ],
)
def test_targets(raw, path, query):
    found, text = requests.target(raw)
    assert (found, requests.query(text)) == (path, query)


@pytest.mark.parametrize(
    "raw",
    [
        "/?a=1&a=2",
        "/?a=1&%61=2",
        "/?a&a",
        "/%",
        "/%2",
        "/%zz",
        "/?a=%",
        "/?%g1=1",
        "/%00",
        "/?a=%00",
        "/?%00=1",
        "/%ff",
        "/?a=%c3",
        "/?a=%ed%a0%80",
        "/a%2fb",
        "/a%2Fb",
        "/a#b",
        "/?a=b#c",
        "/ü",
        "/\udcff",
        "/a b",
        "*",
        "evil.example:443",
        "?a=1",
        "http:///a",
        "ftp://evil.example/",
        "a",
    ],
)
def test_targets_that_are_refused(raw):
    with pytest.raises(requests.RequestRefused) as refused:
        requests.query(requests.target(raw)[1])
    assert refused.value.status == 400
    assert "evil" not in refused.value.sentence


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ([("Host", "a"), ("X-Some", "b")], {"host": "a", "x-some": "b"}),
        ([("Via", "a"), ("via", "b")], {"via": "a, b"}),
        ([("X-Forwarded-For", "a"), ("x-forwarded-for", "b")], {"x-forwarded-for": "a, b"}),
        ([("Cookie", "a=1"), ("cookie", "b=2")], {"cookie": "a=1; b=2"}),
        ([("User-Agent", "caf\udce9")], {"user-agent": "caf\ufffd"}),
    ],
)
def test_headers(fields, wanted):
    assert requests.headers(fields) == wanted


@pytest.mark.parametrize("name", ["Authorization", "Origin", "Sec-Fetch-Site", "Referer"])
def test_headers_that_may_not_come_twice(name):
    with pytest.raises(requests.RequestRefused, match="comes twice"):
        requests.headers([(name, "a"), (name.lower(), "a")])


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1; b=2;c=3 ", {"a": "1", "b": "2", "c": "3"}),
        ("a=1=2", {"a": "1=2"}),
        ('a="1"', {"a": '"1"'}),
        ("a; =b; c=", {"": "b", "c": ""}),
        # Of others' the first counts: it is the one with the longest path.
        ("a=1; a=2", {"a": "1"}),
    ],
)
def test_cookies(header, wanted):
    assert requests.cookies(header) == wanted


@pytest.mark.parametrize("name", ["klutch-bind-s", "__Host-klutch-ui", "__Secure-x", "KLUTCH-a"])
@pytest.mark.parametrize("values", [("1", "2"), ("1", "1"), ("", "1")])
def test_a_cookie_of_ours_that_comes_twice(name, values):
    header = "; ".join(f"{name}={value}" for value in values)
    with pytest.raises(requests.RequestRefused, match="a cookie comes twice"):
        requests.cookies(f"a=1; {header}")


@pytest.mark.parametrize(
    ("cookie", "wanted"),
    [
        (
            requests.Cookie("klutch-bind-s", "a=-_.", 3600, secure=False),
            "klutch-bind-s=a=-_.; Max-Age=3600; Path=/; HttpOnly; SameSite=Lax",
        ),
        (
            requests.Cookie("__Host-klutch-ui", "", 0, secure=True),
            "__Host-klutch-ui=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax; Secure",
        ),
    ],
)
def test_cookies_that_are_set(cookie, wanted):
    assert ("Set-Cookie", wanted) in fields_of(requests.Response(cookies=(cookie,)))


@pytest.mark.parametrize("text", ["a;b", "a\r\nb", "a b", 'a"b', "a,b", "a\\b", "ü", "a\0"])
def test_a_cookie_is_one_cookie(text):
    for cookie in (
        requests.Cookie("name", text, 1, secure=True),
        requests.Cookie(text, "value", 1, secure=True),
    ):
        with pytest.raises(ValueError, match="a cookie that cannot be sent"):
            fields_of(requests.Response(cookies=(cookie,)))


def test_a_header_may_come_twice():
    links = ("Link", "a"), ("Link", "b")
    fields = fields_of(requests.Response(302, headers=links), [("Allow", "GET")])
    assert fields[-3:] == [*links, ("Allow", "GET")]


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b", "a\x7f", "\udcff"])
def test_a_header_is_one_header(value):
    for response in (
        requests.Response(302, headers=(("Location", value),)),
        requests.Response(302, headers=((value, "a"),)),
        requests.Response(200, content_type=value),
    ):
        with pytest.raises(ValueError, match="a header that cannot be sent"):
            fields_of(response)


def named(name):
    async def handler(request):
        return requests.Response(200, f"{name} {dict(request.parts)}".encode())

    return handler


ROUTES = {
    "/": {"GET": named("home")},
    "/export": {"GET": named("export"), "HEAD": named("export")},
    "/consent": {"GET": named("page"), "POST": named("answer")},
    "/ui/": {"GET": named("ui")},
    "/ui/offers/{namespace}/{name}": {"GET": named("offer")},
    "/ui/offers/{namespace}/all": {"GET": named("offers")},
    "/ui/{page}": {"GET": named("page")},
    "/ui/bindings": {"GET": named("bindings")},
}


async def answered(method, path):
    try:
        return (await requests.Router(ROUTES)(requests.Request(method, path))).body.decode()
    except requests.RequestRefused as refused:
        return refused.status, dict(refused.headers)


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/", "home {}"),
        ("GET", "/export", "export {}"),
        ("HEAD", "/export", "export {}"),
        ("POST", "/consent", "answer {}"),
        ("GET", "/ui/bindings", "bindings {}"),
        ("GET", "/ui/catalogue", "page {'page': 'catalogue'}"),
        ("GET", "/ui/offers/default/all", "offers {'namespace': 'default'}"),
        ("GET", "/ui/offers/a b/ü", "offer {'namespace': 'a b', 'name': 'ü'}"),
        ("GET", "/ui/", "ui {}"),
        # Elsewhere there is nothing.
        ("GET", "", (404, {})),
        ("GET", "/ui", (404, {})),
        ("GET", "//export", (404, {})),
        ("GET", "/export/", (404, {})),
        ("GET", "/EXPORT", (404, {})),
        ("GET", "/ui/..", (404, {})),
        ("GET", "/ui/./", (404, {})),
        ("GET", "/ui/offers//x", (404, {})),
        ("GET", "/ui/offers/x/y/z", (404, {})),
        ("GET", "/ui/{page}/", (404, {})),
        ("DELETE", "/nowhere", (404, {})),
        # HEAD is a method like others.
        ("HEAD", "/", (405, {"Allow": "GET"})),
        ("DELETE", "/consent", (405, {"Allow": "GET, POST"})),
        ("get", "/export", (405, {"Allow": "GET, HEAD"})),
        ("POST", "/ui/offers/a/b", (405, {"Allow": "GET"})),
    ],
)
async def test_the_way_of_a_request(method, path, wanted):
    assert await answered(method, path) == wanted


def test_two_routes_for_the_same_paths():
    with pytest.raises(ValueError, match="two routes are for the paths of /ui/"):
        requests.Router({"/ui/{page}": {}, "/ui/{name}": {}})


PROXY = "10.0.0.7"
TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        # Nobody is believed but trusted proxies.
        ("192.0.2.9", "", "192.0.2.9"),
        ("192.0.2.9", "198.51.100.1", "192.0.2.9"),
        ("192.0.2.9", "10.0.0.1", "192.0.2.9"),
        # A proxy appends the address that called it; what is to the left of that is forged.
        (PROXY, "198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.5, 198.51.100.1", "198.51.100.1"),
        (PROXY, "10.1.1.1, 198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.5, 198.51.100.1, 10.0.0.8", "198.51.100.1"),
        (PROXY, " 198.51.100.1 ,10.0.0.8 ", "198.51.100.1"),
        ("fd00::7", "2001:db8::1", "2001:db8::1"),
        # Within the network of the proxies.
        (PROXY, "", PROXY),
        (PROXY, "10.0.0.9, 10.0.0.8", "10.0.0.9"),
        # What is no address ends the reading.
        (PROXY, "198.51.100.1, unknown", PROXY),
        (PROXY, "198.51.100.1, , 10.0.0.8", "10.0.0.8"),
        (PROXY, "198.51.100.1,", PROXY),
        (PROXY, "<script>", PROXY),
        # Ports, zones and IPv4 as IPv6.
        (PROXY, "198.51.100.1:4711", "198.51.100.1"),
        (PROXY, "[2001:db8::1]:4711", "2001:db8::1"),
        (PROXY, "[2001:db8::1]", "2001:db8::1"),
        (PROXY, "::ffff:198.51.100.1", "198.51.100.1"),
        (PROXY, "fe80::1%eth0", "fe80::1"),
        (PROXY, "192.0.2.01", PROXY),
        (PROXY, "203.0.113.5, ::ffff:10.0.0.8", "203.0.113.5"),
    ],
)
def test_a_clients_address(peer, forwarded, client):
    assert str(requests.Proxies(TRUSTED).client(ip_address(peer), forwarded)) == client


@pytest.mark.parametrize(
    ("calls", "unnamed"),
    [
        ([(PROXY, "198.51.100.1")], ""),
        ([("192.168.0.9", "")], ""),
        ([("192.168.0.9", "198.51.100.1")], "192.168.0.9"),
        ([("fe80::9", "198.51.100.1"), (PROXY, "")], "fe80::9"),
        # A client that forges the header, from elsewhere or after the proxy was met.
        ([("8.8.8.8", "198.51.100.1")], ""),
        ([(PROXY, "198.51.100.1"), ("192.168.0.9", "198.51.100.1")], ""),
        ([("192.168.0.9", "198.51.100.1"), (PROXY, "198.51.100.1")], ""),
    ],
)
def test_a_proxy_that_nobody_named_is_noticed(calls, unnamed):
    """S17."""
    proxies = requests.Proxies(TRUSTED)
    for peer, forwarded in calls:
        proxies.client(ip_address(peer), forwarded)
    assert proxies.unnamed == unnamed


NOW = 1_795_000_000.0


def taken(buckets, times, *, at=NOW, key="a"):
    return [buckets.take(key, at) for _ in range(times)]


def test_a_burst_and_then_a_rate():
    buckets = requests.Buckets(rate=10, burst=40)
    assert taken(buckets, 40) == [0.0] * 40
    assert buckets.take("a", NOW) == pytest.approx(0.1, abs=1e-3)
    assert buckets.take("a", NOW + 0.05) == pytest.approx(0.05, abs=1e-3)
    assert buckets.take("a", NOW + 0.1) == 0.0
    assert buckets.take("a", NOW + 0.1) > 0.0


def test_what_was_refused_costs_nothing():
    buckets = requests.Buckets(rate=1, burst=1)
    assert taken(buckets, 1000)[0] == 0.0
    assert buckets.take("a", NOW + 1.0) == 0.0


def test_a_bucket_holds_no_more_than_a_burst():
    buckets = requests.Buckets(rate=10, burst=3)
    taken(buckets, 1)
    assert [one == 0.0 for one in taken(buckets, 4, at=NOW + 3600)] == [True] * 3 + [False]


def test_each_key_has_its_own():
    buckets = requests.Buckets(rate=1, burst=1)
    assert taken(buckets, 1) == taken(buckets, 1, key="b") == [0.0]


def test_a_clock_that_is_set_back_locks_nobody_out():
    buckets = requests.Buckets(rate=10, burst=40)
    taken(buckets, 40)
    assert buckets.take("a", NOW - 86400) <= 0.1 + 1e-3
    assert buckets.take("a", NOW - 86400 + 0.2) > 0.0  # nor does it give a new burst
    buckets = requests.Buckets(rate=10, burst=2)
    taken(buckets, 2)
    assert buckets.take("a", NOW - 3600) > 0.0


def test_full_buckets_are_forgotten():
    buckets = requests.Buckets(rate=10, burst=40)
    for number in range(1000):
        buckets.take(f"key {number}", NOW)
    for number in range(1000):
        buckets.take("one", NOW + 60 + number)
    assert len(buckets) == 1


def test_memory_is_bounded():
    buckets = requests.Buckets(rate=10, burst=40, most=100)
    for number in range(1000):
        buckets.take(f"key {number}", NOW)
    assert len(buckets) == 100


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
    ],
)
def test_a_client_chooses_among_the_addresses_of_its_network(address, key):
    assert requests.address_key(ip_address(address)) == key
