"""What `KubeCluster` makes of a real API server behind a bad connection or a bad gateway."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.lease import Lease
from reconciler.controller.tasks import SystemClock
from reconciler.core import errors
from reconciler.core.manifest import get_text
from reconciler.core.refs import CLUSTER_ROLE, CONFIG_MAP, LEASE, SECRET, Kind, Ref
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import ClientCertificate, ExecPlugin, NoCredential, Token, TokenFile
from reconciler.kube.limits import Limits
from reconciler.kube.requests import ListQuery, Preconditions, Propagation
from tests.support.accounts import robot_token
from tests.support.candidates import SHORT
from tests.support.cues import AFTER, Gate
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.http_faults import Body, Cut, Garbage, answer, gone, on, redirect
from tests.support.listener import Listener
from tests.support.tcp_proxy import CLEAR, STALLED, Flow, TcpProxy

MANAGER = "tests"
SELF_REVIEW = Kind(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
IMPATIENT = Limits(connect_timeout=2, read_timeout=2, deadline=4)  # where time has to run out
CANARY = "canary-t0ken-that-must-not-be-seen"


@pytest.fixture
async def cluster(proxy):
    async with KubeCluster(proxy.connection) as cluster:
        yield cluster


@pytest.fixture
async def impatient(proxy):
    async with KubeCluster(proxy.connection, limits=IMPATIENT) as cluster:
        yield cluster


def config_map(namespace, name="x", data=None):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {}}


def ref(namespace, name="x", kind=CONFIG_MAP):
    return Ref("control-plane", kind, namespace, name)


async def create(cluster, namespace, name="x"):
    return await cluster.create(config_map(namespace, name), CONFIG_MAP, manager=MANAGER)


async def fill(control_plane, namespace, count=5):
    for index in range(count):
        await create(control_plane.cluster, namespace, f"item-{index}")


def items_of(listing):
    names = [get_text(item, "metadata", "name") for item in listing.items]
    return [name for name in names if name.startswith("item-")]


# What is repeated, and what never is


async def test_a_write_that_was_turned_away_is_sent_again(proxy, cluster, namespace):
    proxy.add(on("POST").nth(1), answer(429, retry_after=1))
    await create(cluster, namespace)
    assert [passed.status for passed in proxy.log] == [429, 201]


async def test_a_write_that_waits_for_its_turn_is_not_sent_once_the_lock_is_lost(
    proxy, cluster, namespace
):
    proxy.add(on("POST").nth(1), answer(429, retry_after=1))
    fence = WriteFence()
    with fence.checking(lambda: "another took it" if proxy.log else ""), pytest.raises(Stopped):
        await fence.write(lambda: create(cluster, namespace))
    assert [passed.status for passed in proxy.log] == [429]


async def test_a_server_that_goes_on_turning_away_is_given_up_in_time(proxy, impatient, namespace):
    proxy.add(on("POST"), answer(429, retry_after=3))
    with pytest.raises(errors.Unreachable) as caught:
        await create(impatient, namespace)
    assert caught.value.retry_after == 3
    assert caught.value.retry is errors.Retry.LATER
    assert not caught.value.outcome_unknown


async def test_a_lease_that_is_turned_away_says_so(proxy, cluster, namespace):
    proxy.add(on("GET"), answer(429, retry_after=3))
    at, clock = ref(namespace, kind=LEASE), SystemClock()
    lease = Lease(cluster, at, holder="x", manager=MANAGER, clock=clock, times=SHORT)
    with pytest.raises(errors.Unreachable, match="1 s but a fault on cue"):
        await lease.look()


async def test_a_read_survives_two_server_errors(proxy, cluster, namespace):
    proxy.add(on("GET").first(2), answer(500))
    assert await cluster.get(ref(namespace)) is None
    assert [passed.status for passed in proxy.log] == [500, 500, 404]


WRITE_FAULTS = {
    "a server error": (answer(500), None),
    "an answer that is lost": (Cut(), AFTER),
    "an answer that is lost politely": (Cut("fin"), AFTER),
    "a cut before the server heard of it": (Cut(), None),
    "something that is not HTTP": (Garbage(), AFTER),
    "success that is not JSON": (answer(200, "<html>", content_type="text/html"), AFTER),
}


@pytest.mark.parametrize(("effect", "at"), WRITE_FAULTS.values(), ids=WRITE_FAULTS.keys())
async def test_a_write_is_sent_once_and_its_outcome_is_called_unknown(
    proxy, cluster, control_plane, namespace, effect, at
):
    proxy.add(on("POST"), effect, at=at)
    with pytest.raises(errors.Unreachable, match="may have happened") as caught:
        await create(cluster, namespace)
    assert caught.value.outcome_unknown
    assert len(proxy.log) == 1
    assert ((await control_plane.cluster.get(ref(namespace))) is not None) is (at is AFTER)


async def test_a_delete_with_a_uid_survives_a_lost_answer(proxy, cluster, control_plane, namespace):
    made = await create(control_plane.cluster, namespace)
    proxy.add(on("DELETE").nth(1), Cut(), at=AFTER)
    uid = get_text(made, "metadata", "uid")
    accepted = await cluster.delete(
        ref(namespace), preconditions=Preconditions(uid=uid), propagation=Propagation.BACKGROUND
    )
    assert not accepted, "the repetition finds it gone, which counts as done"
    assert await control_plane.cluster.get(ref(namespace)) is None


async def test_the_repetition_of_a_delete_spares_an_object_made_again(
    proxy, cluster, control_plane, namespace
):
    made = await create(control_plane.cluster, namespace)

    class MadeAgain:
        async def perform(self, reply):
            await create(control_plane.cluster, namespace)
            reply.cut("rst")
            return True

    proxy.add(on("DELETE").nth(1), MadeAgain(), at=AFTER)
    with pytest.raises(errors.Replaced):
        await cluster.delete(
            ref(namespace),
            preconditions=Preconditions(uid=get_text(made, "metadata", "uid")),
            propagation=Propagation.BACKGROUND,
        )
    assert await control_plane.cluster.get(ref(namespace)) is not None


async def test_a_delete_of_whatever_is_there_is_sent_once(proxy, cluster, control_plane, namespace):
    """aiohttp by itself repeats a DELETE whose kept connection was cut."""
    await create(cluster, namespace)  # so that a connection is kept
    proxy.add(on("DELETE"), Cut("fin"), at=AFTER)
    with pytest.raises(errors.Unreachable, match="may have happened"):
        await cluster.delete(
            ref(namespace),
            preconditions=Preconditions(uid=None),
            propagation=Propagation.BACKGROUND,
        )
    assert [passed.method for passed in proxy.log].count("DELETE") == 1
    assert await control_plane.cluster.get(ref(namespace)) is None


async def test_success_that_says_nothing_is_not_a_deletion(proxy, cluster, namespace):
    proxy.add(on("DELETE"), answer(200, "{}"))
    with pytest.raises(errors.Unreachable, match="neither success nor the object"):
        await cluster.delete(
            ref(namespace), preconditions=Preconditions(uid="u"), propagation=Propagation.BACKGROUND
        )


# Incomplete is never empty


@pytest.mark.parametrize("octets", [1, 40, 200])
async def test_a_truncated_list_is_an_error(proxy, cluster, control_plane, namespace, octets):
    await fill(control_plane, namespace)
    proxy.add(on("GET", "/configmaps$"), Cut("fin"), at=Body(octets=octets))
    with pytest.raises(errors.Unreachable, match="cut"):
        await cluster.list(CONFIG_MAP, namespace=namespace)


NOT_A_LIST = {
    "a captive portal": answer(200, "<html>log in</html>", content_type="text/html"),
    "an empty object": answer(200, "{}"),
    "an empty array": answer(200, "[]"),
    "null": answer(200, "null"),
    "a list without a version": answer(200, '{"kind":"ConfigMapList","metadata":{},"items":[]}'),
    "items of a wrong type": answer(
        200, '{"kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":{}}'
    ),
    "items that are no objects": answer(
        200,
        '{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[1]}',
    ),
    "a list of something else": answer(
        200, '{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
    ),
    "a token that is no text": answer(
        200,
        '{"kind":"ConfigMapList","apiVersion":"v1",'
        '"metadata":{"resourceVersion":"1","continue":5},"items":[]}',
    ),
    "a single object": answer(
        200, '{"kind":"ConfigMap","metadata":{"resourceVersion":"1","name":"x"}}'
    ),
    "a redirect": redirect("/login"),
    "no content": answer(204, ""),
}


@pytest.mark.parametrize("effect", NOT_A_LIST.values(), ids=NOT_A_LIST.keys())
async def test_an_answer_that_is_no_list_is_an_error(proxy, cluster, namespace, effect):
    proxy.add(on("GET", "/configmaps$"), effect)
    with pytest.raises(errors.Unreachable):
        await cluster.list(CONFIG_MAP, namespace=namespace)


async def test_a_gateways_404_is_not_taken_for_a_missing_kind(proxy, cluster, namespace):
    proxy.add(on("GET", "/configmaps"), answer(404, "404 page not found\n"))
    for call in (cluster.list(CONFIG_MAP, namespace=namespace), cluster.get(ref(namespace))):
        with pytest.raises(errors.Unreachable, match="discovery lists the kind"):
            await call


async def test_a_404_for_everything_is_not_a_cluster_without_kinds(proxy, cluster, namespace):
    proxy.add(on(), answer(404, "404 page not found\n"))
    with pytest.raises(errors.Unreachable, match="discovery does not confirm it") as caught:
        await cluster.list(CONFIG_MAP, namespace=namespace)
    assert not isinstance(caught.value, errors.NotServed)


async def test_another_object_than_the_one_asked_for(proxy, cluster, namespace):
    proxy.add(on("GET"), answer(200, '{"kind":"ConfigMap","metadata":{"name":"y"}}'))
    with pytest.raises(errors.Unreachable, match="another object"):
        await cluster.get(ref(namespace))


async def test_pages_that_expire_are_read_again_in_one(proxy, cluster, control_plane, namespace):
    await fill(control_plane, namespace)
    proxy.add(on("GET", query="continue="), answer(410))
    listing = await cluster.list(CONFIG_MAP, namespace=namespace, page_size=2)
    assert items_of(listing) == [f"item-{index}" for index in range(5)]


async def test_a_list_that_never_ends_is_stopped(proxy, cluster, namespace):
    page = (
        '{"kind":"ConfigMapList","apiVersion":"v1",'
        '"metadata":{"resourceVersion":"1","continue":"more"},"items":[]}'
    )
    proxy.add(on("GET", "/configmaps$"), answer(200, page))
    with pytest.raises(errors.Unreachable, match="does not end"):
        await cluster.list(CONFIG_MAP, namespace=namespace)


# Watches


async def watch(cluster, namespace, start, **options):
    everything = Ref(cluster.name, CONFIG_MAP, namespace, "")
    async with cluster.watch(everything, resource_version=start, **options) as events:
        return [event async for event in events]


async def start_of(cluster, namespace):
    return (await cluster.list(CONFIG_MAP, namespace=namespace)).resource_version


async def test_a_watch_cut_inside_an_event_is_an_error(proxy, cluster, control_plane, namespace):
    start = await start_of(cluster, namespace)
    await fill(control_plane, namespace)
    proxy.add(on("GET", query="watch=1"), Cut("fin"), at=Body(lines=1, octets=20))
    with pytest.raises(errors.Unreachable, match="cut"):
        await watch(cluster, namespace, start)


async def test_410_inside_a_watch(proxy, cluster, control_plane, namespace):
    start = await start_of(cluster, namespace)
    await fill(control_plane, namespace)
    proxy.add(on("GET", query="watch=1"), gone(), at=Body(lines=1))
    with pytest.raises(errors.Expired):
        await watch(cluster, namespace, start)


async def test_a_watch_that_nobody_answers_is_not_waited_for_without_end(
    proxy, control_plane, namespace
):
    gate = Gate()
    proxy.add(on("GET", query="watch=1"), gate)
    async with KubeCluster(proxy.connection, limits=replace(IMPATIENT, deadline=1)) as cluster:
        with pytest.raises(errors.Unreachable, match="in time"):
            await watch(cluster, namespace, "1")
    gate.open()


async def test_a_watch_with_credentials_that_cannot_be_used(control_plane, namespace):
    broken = ClientCertificate("no certificate", Secret("no key"))
    connection = replace(control_plane.connection, credential=broken)
    async with KubeCluster(connection) as cluster:
        with pytest.raises(errors.Unauthorized, match="cannot be used"):
            await watch(cluster, namespace, "1")


async def test_a_silent_watch_ends_after_its_read_timeout(cluster, namespace):
    start = await start_of(cluster, namespace)
    nothing = ListQuery(fields="metadata.name=none")
    with pytest.raises(errors.Unreachable, match="in time"):
        await watch(cluster, namespace, start, query=nothing, read_timeout=0.5)


# Connections


async def test_connections_are_reused(proxy, cluster, namespace):
    for index in range(10):
        await create(cluster, namespace, f"item-{index}")
    assert proxy.connections == 1


async def test_an_idle_connection_that_the_server_drops_costs_a_read_nothing(
    proxy, cluster, namespace
):
    assert await cluster.get(ref(namespace)) is None
    proxy.drop_idle()
    assert await cluster.get(ref(namespace)) is None


async def test_a_server_that_accepts_and_never_answers(control_plane, namespace):
    connection = control_plane.connection
    async with TcpProxy(connection.server) as line:
        line.let(down=STALLED)
        stalled = replace(connection, server=line.url)
        async with KubeCluster(stalled, limits=replace(IMPATIENT, deadline=1)) as cluster:
            with pytest.raises(errors.Unreachable, match="in time"):
                await cluster.get(ref(namespace))


@pytest.fixture
async def line(control_plane):
    async with TcpProxy(control_plane.connection.server) as line:
        yield line


@pytest.fixture
async def distant(control_plane, line):
    """The cluster at the other end of a bad line, TLS from end to end."""
    connection = replace(control_plane.connection, server=line.url)
    limits = Limits(connect_timeout=2, read_timeout=1, deadline=2)
    async with KubeCluster(connection, limits=limits) as cluster:
        yield cluster


async def created(cluster, namespace, name):
    """Create it in as many tries as it takes: the client may be too impatient for a busy server."""

    async def is_there():
        with contextlib.suppress(errors.Unreachable):
            with contextlib.suppress(errors.AlreadyExists):
                await create(cluster, namespace, name)
            return True
        return False

    await eventually(is_there)


async def test_a_silent_line_is_noticed_and_used_again_when_it_clears(
    line, distant, control_plane, namespace
):
    await created(distant, namespace, "item-a")
    line.let(down=STALLED)
    with pytest.raises(errors.Unreachable) as lost:
        await create(distant, namespace, "item-b")
    assert lost.value.outcome_unknown
    line.let(down=CLEAR)
    await created(distant, namespace, "item-c")
    stored = await control_plane.cluster.list(CONFIG_MAP, namespace=namespace)
    assert items_of(stored) == ["item-a", "item-b", "item-c"]


async def test_a_line_that_breaks_within_an_answer_gives_no_answer(line, distant):
    line.let(down=Flow(limit=10_000, then="rst"))
    with pytest.raises(errors.Unreachable):
        await distant.list(CLUSTER_ROLE)
    line.let(down=CLEAR)

    async def has_an_answer():
        with contextlib.suppress(errors.Unreachable):
            return (await distant.list(CLUSTER_ROLE)).items

    await eventually(has_an_answer)


async def test_a_port_where_nobody_listens(control_plane, namespace):
    async with TcpProxy(control_plane.connection.server) as line:
        closed = replace(control_plane.connection, server=line.url)
    async with KubeCluster(closed) as cluster:
        with pytest.raises(errors.Unreachable, match="no connection: ") as caught:
            await create(cluster, namespace)
    assert not caught.value.outcome_unknown


async def test_a_hanging_cluster_does_not_delay_another(control_plane, namespace):
    async with TcpProxy(control_plane.connection.server) as line:
        line.let(down=STALLED)
        stalled = replace(control_plane.connection, server=line.url)
        async with KubeCluster(stalled) as hanging:
            waiting = asyncio.create_task(hanging.get(ref(namespace)))
            for index in range(20):
                await create(control_plane.cluster, namespace, f"item-{index}")
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


TLS = {
    "an unknown authority": (lambda c: replace(c, ca=None), "not trusted"),
    "a wrong host name": (lambda c: replace(c, tls_server_name="example.org"), "not trusted"),
    "plain HTTP to a TLS port": (
        lambda c: replace(c, server=c.server.replace("https:", "http:")),
        "HTTP 400",
    ),
}


@pytest.mark.parametrize(("change", "says"), TLS.values(), ids=TLS.keys())
async def test_tls_failures(control_plane, namespace, change, says):
    connection = change(control_plane.connection)
    async with KubeCluster(connection) as cluster:
        with pytest.raises((errors.Unreachable, errors.Rejected), match=says):
            await cluster.get(ref(namespace))


async def test_insecure_and_server_name_are_honoured(control_plane, namespace):
    for change in ({"ca": None, "insecure": True}, {"tls_server_name": "localhost"}):
        connection = replace(control_plane.connection, **change)
        async with KubeCluster(connection) as cluster:
            assert await cluster.get(ref(namespace)) is None


# Credentials


async def test_401_with_a_token_that_cannot_be_renewed(proxy, cluster, namespace):
    proxy.add(on(), answer(401))
    with pytest.raises(errors.Unauthorized):
        await cluster.get(ref(namespace))


async def test_a_rotated_token_file_is_read_again_after_a_401(control_plane, namespace, tmp_path):
    file = tmp_path / "token"
    file.write_text("an-old-token")
    robot = await robot_token(control_plane, namespace)
    async with (
        FaultProxy(replace(control_plane.connection, credential=TokenFile(file))) as proxy,
        KubeCluster(proxy.connection) as cluster,
    ):
        with pytest.raises(errors.Unauthorized):
            await who_am_i(cluster)
        assert [passed.status for passed in proxy.log] == [401], "nothing newer was there"
        file.write_text(robot)
        assert await who_am_i(cluster) == f"system:serviceaccount:{namespace}:robot"
        assert [passed.status for passed in proxy.log] == [401, 401, 201]


PLUGIN = """\
#!/bin/sh
echo run >> "$0.runs"
cat <<END
{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {"token": "$(cat "$0.token")"}}
END
"""


async def test_a_401_runs_a_plugin_once_more_for_all_calls_together(
    control_plane, namespace, tmp_path
):
    script = tmp_path / "plugin"
    script.write_text(PLUGIN)
    script.chmod(0o700)
    token = tmp_path / "plugin.token"
    token.write_text("an-old-token")
    robot = await robot_token(control_plane, namespace)
    plugin = ExecPlugin(
        command=str(script),
        args=(),
        env=(),
        api_version="client.authentication.k8s.io/v1",
        provide_cluster_info=False,
        interactive_mode="Never",
    )
    async with KubeCluster(replace(control_plane.connection, credential=plugin)) as cluster:
        with pytest.raises(errors.Unauthorized):
            await who_am_i(cluster)
        token.write_text(robot)
        runs = tmp_path / "plugin.runs"
        before = len(runs.read_text().splitlines())
        names = await asyncio.gather(*(who_am_i(cluster) for _ in range(20)))
        assert set(names) == {f"system:serviceaccount:{namespace}:robot"}
        assert len(runs.read_text().splitlines()) == before + 1


async def who_am_i(cluster):
    review = {"apiVersion": SELF_REVIEW.api_version, "kind": SELF_REVIEW.kind}
    answer = await cluster.create(review, SELF_REVIEW, manager=MANAGER)
    return get_text(answer, "status", "userInfo", "username")


async def test_anonymous_is_not_admin(control_plane, namespace):
    connection = replace(control_plane.connection, credential=NoCredential())
    async with KubeCluster(connection) as cluster:
        with pytest.raises(Exception, match="anonymous") as caught:
            await cluster.list(SECRET, namespace=namespace)
    assert type(caught.value).__name__ == "Forbidden"


async def test_a_redirect_does_not_carry_the_token_elsewhere(control_plane, namespace):
    heard = []

    async def listen(reader, writer):
        heard.append(await reader.read(100))
        writer.close()

    elsewhere = Listener(listen)
    await elsewhere.accept()
    upstream = replace(control_plane.connection, credential=Token(Secret(CANARY)))
    async with FaultProxy(upstream) as proxy:
        proxy.add(on(), redirect(f"http://127.0.0.1:{elsewhere.port}/"))
        async with KubeCluster(proxy.connection) as cluster:
            with pytest.raises(errors.Unreachable, match="redirect"):
                await cluster.get(ref(namespace))
    await elsewhere.close()
    assert heard == []


def everything_about(error):
    """Return all text that a logger or debugger could show of an error and its causes."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error), repr(error.__dict__), repr(error.args)]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


FAULTS = {
    "401": answer(401),
    "403": answer(403),
    "500": answer(500),
    "not HTTP": Garbage(),
    "cut": Cut(),
    "not JSON": answer(200, "<html>"),
    "redirect": redirect("https://example.org/"),
}


@pytest.mark.parametrize("effect", FAULTS.values(), ids=FAULTS.keys())
async def test_no_failure_shows_the_token(control_plane, namespace, effect, caplog):
    upstream = replace(control_plane.connection, credential=Token(Secret(CANARY)))
    async with FaultProxy(upstream) as proxy:
        proxy.add(on(), effect)
        with caplog.at_level("DEBUG"):
            async with KubeCluster(proxy.connection) as cluster:
                with pytest.raises(Exception, match="control-plane") as caught:
                    await cluster.get(ref(namespace))
                assert CANARY not in repr(cluster) + repr(proxy.connection)
    assert CANARY not in everything_about(caught.value)
    assert CANARY not in caplog.text


async def test_a_proxys_password_is_not_shown(control_plane, namespace):
    proxy = Secret(f"http://user:{CANARY}@127.0.0.1:9")
    connection = replace(control_plane.connection, proxy=proxy)
    async with KubeCluster(connection) as cluster:
        with pytest.raises(errors.Unreachable, match="proxy") as caught:
            await cluster.get(ref(namespace))
    assert CANARY not in everything_about(caught.value)
