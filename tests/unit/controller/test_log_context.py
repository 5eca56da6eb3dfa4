"""Records of the log say what the work at hand is about."""

import asyncio
import json
import logging

from reconciler.controller import log_context
from reconciler.controller.process import Json, Text


def record(**fields: object) -> logging.LogRecord:
    made = {"name": "x", "levelname": "INFO", "created": 0.0, "msecs": 0.0, "msg": "it is so"}
    return logging.makeLogRecord(made | fields)


def test_fields_hold_for_a_block_and_add_up():
    with log_context.fields(fleet="acme", round=7):
        with log_context.fields(plan="p1"):
            assert log_context.current() == {"fleet": "acme", "round": 7, "plan": "p1"}
        assert log_context.current() == {"fleet": "acme", "round": 7}
    assert log_context.current() == {}


def test_both_forms_of_a_record_have_them():
    with log_context.fields(cluster="shop", unit="databases.anynines.com"):
        line, text = json.loads(Json().format(record())), Text().format(record())
    assert (line["cluster"], line["unit"]) == ("shop", "databases.anynines.com")
    assert text.endswith('INFO it is so cluster="shop" unit="databases.anynines.com"')


def test_a_field_of_the_record_is_stronger_and_what_is_always_reported_is_strongest():
    with log_context.fields(key="of the work", message="nothing"):
        line = json.loads(Json().format(record(key="of the record")))
    assert (line["key"], line["message"]) == ("of the record", "it is so")


async def test_what_is_bound_in_a_task_ends_with_it_and_is_of_no_other():
    async def work(cluster: str) -> object:
        log_context.bind(cluster=cluster)
        await asyncio.sleep(0)
        return log_context.current()

    with log_context.fields(round=1):
        both = [*await asyncio.gather(work("shop"), work("cafe"))]
    assert both == [{"round": 1, "cluster": "shop"}, {"round": 1, "cluster": "cafe"}]
    assert log_context.current() == {}
