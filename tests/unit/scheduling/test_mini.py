"""A scheduler in memory, and the REST API over it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import aiohttp

from retry.http_server import HttpServer
from retry.scheduling import client
from retry.scheduling.messages.mini import Mini
from retry.scheduling.messages.rest_api import Decode, Rest, ScheduleSources
from retry.scheduling.messages.search import ScheduleJson

NOW_MS = 1_700_000_000_000


def filled_mini(count: int = 3) -> Mini:
    mini = Mini()
    for n in range(count):
        at = NOW_MS // 1_000 + 10 * (n + 1)
        mini.send_record(client.schedule(topic="online", key=b"k%d" % n, value=b"v%d" % n, at=at, schedule_id=f"id-{n}"), NOW_MS)
    return mini


def ask(mini: Mini, *paths: str, decode: Decode | None = None) -> list[tuple[int, Any, Any]]:
    """Status, headers and JSON of each."""

    async def ask_three() -> list[tuple[int, Any, Any]]:
        sources = ScheduleSources(mini.schedules, mini.schedules, mini.list_sent_schedules)
        rest = Rest(sources, lambda: {"hostname": "h", "address": ["10.0.0.1"]}, lambda: True, "mini", decode)
        server = HttpServer(rest.app, "rest", "127.0.0.1", 0)
        port = server.start()
        found = []
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path in paths:
                async with session.get(path) as answer:
                    body = await answer.read()
                    found.append((answer.status, answer.headers, await answer.json() if body[:1] in (b"[", b"{") else body))
        server.stop()
        return found

    return asyncio.run(ask_three())


def test_1_20_schedules_wait_are_replaced_cancelled_and_fired_in_due_order_without_kafka() -> None:
    mini = filled_mini()
    at = NOW_MS // 1_000 + 5
    mini.send_record(client.schedule(topic="online", key=b"new", value=b"new", at=at, schedule_id="id-2"), NOW_MS)
    mini.send_record(client.cancel(schedule_id="id-1"), NOW_MS)
    assert mini.fire(NOW_MS) == []
    sent = mini.fire(NOW_MS + 60_000)
    assert [(each.topic, each.key, each.value) for each in sent] == [("online", b"new", b"new"), ("online", b"k0", b"v0")]
    assert all(client.is_scheduled_message(each.headers) for each in sent)
    assert mini.fire(NOW_MS + 60_000) == []
    assert [each["id"] for each in mini.list_sent_schedules()] == ["id-2", "id-0"]


def test_1_17_schedules_have_the_fields_of_the_go_scheduler() -> None:
    ((status, headers, body),) = ask(filled_mini(1), "/schedules")
    assert status == 200
    assert headers["X-Total-Count"] == "1"
    assert body == [{
        "id": "id-0", "epoch": NOW_MS // 1_000 + 10, "timestamp": NOW_MS // 1_000, "topic": "schedules", "target-topic": "online",
        "target-key": "k0", "value": base64.b64encode(b"v0").decode(),
    }]  # fmt: skip


def test_1_17_nothing_waits_is_an_empty_array_and_liveness_says_200() -> None:
    empty, everything, alive, info, none = ask(Mini(), "/schedules", "/schedules?all=true", "/liveness", "/info", "/nothing")
    assert (empty[0], empty[2]) == (200, [])
    assert (everything[0], everything[2]) == (200, [])
    assert (alive[0], info[2], none[0]) == (200, {"hostname": "h", "address": ["10.0.0.1"]}, 404)


def test_1_17_pages_are_linked_and_everything_is_there_on_request() -> None:
    mini = filled_mini(2_345)
    (_, headers, first), (_, _, everything) = ask(mini, "/schedules?sort-by=epoch%20asc", "/schedules?all=true")
    assert len(first) == 1_000
    assert headers["X-Total-Count"] == "2345"
    (_, headers, second), = ask(mini, headers["Link"].split(">")[0][1:])
    assert (second[0]["id"], headers["X-Total-Count"]) == ("id-1000", "2345")
    assert {each["id"] for each in everything} == {f"id-{n}" for n in range(2_345)}


def test_1_17_more_schedules_than_a_page_come_all_where_no_page_is_asked_for() -> None:
    every, page, some = ask(filled_mini(2_345), "/schedules", "/schedules?max=10", "/live/schedules?schedule-id=id-1")
    assert sorted(each["id"] for each in every[2]) == sorted(f"id-{n}" for n in range(2_345))
    assert ("X-Total-Count" in every[1], len(page[2]), page[1]["X-Total-Count"]) == (False, 10, "2345")
    assert (len(some[2]), "X-Total-Count" in some[1]) == (1_111, False)


def test_1_23_the_admin_pages_words_over_schedules_live_and_history() -> None:
    mini = filled_mini()
    mini.fire(NOW_MS + 10_000)
    schedules, live, history, one, gone, wrong = ask(
        mini, "/scheduler/any/schedules?schedule-id=id-1", "/live/scheduler/any/schedules?max=1&sort-by=id", "/history/schedules",
        "/scheduler/any/schedule/id-2", "/schedule/id-0", "/schedules?max=many",
    )  # fmt: skip
    assert (schedules[2]["found"], schedules[2]["schedules"][0]["schedule"]["id"]) == (1, "id-1")
    assert (live[2]["found"], [each["schedule"]["id"] for each in live[2]["schedules"]]) == (2, ["id-2"])
    (sent,) = history[2]
    assert (sent["id"], sent["epoch"], sent["target-topic"]) == ("id-0", NOW_MS // 1_000 + 10, "online")
    assert one[2][0]["scheduler"] == "mini"
    assert (gone[0], wrong[0]) == (404, 400)
    assert "max" in wrong[2]["error"]


def test_1_23_stats() -> None:
    mini = filled_mini()
    mini.fire(NOW_MS + 10_000)
    ((_, _, body),) = ask(mini, "/stats")
    assert body == [{"scheduler": "mini", "total": 2, "total_live": 2, "total_history": 1}]


def test_1_23_the_list_of_schedulers_is_this_one_in_the_admin_pages_words() -> None:
    ((status, _, (body,)),) = ask(filled_mini(1), "/schedulers")
    assert status == 200
    assert (body["name"], [each["hostname"] for each in body["instances"]]) == ("mini", [["h"]])
    assert body["instances"][0]["ip"] == "10.0.0.1"
    assert int(body["http_port"]) > 0


def test_1_23_a_detail_has_its_value_decoded_and_a_list_has_it_as_it_is() -> None:
    async def decode(shown: ScheduleJson) -> ScheduleJson:
        return ScheduleJson(**{**shown, "value": "decoded"})  # type: ignore[typeddict-item]

    one, of_admin, listed = ask(filled_mini(1), "/schedule/id-0", "/scheduler/any/schedule/id-0", "/schedules", decode=decode)
    assert [each["value"] for each in one[2]] == ["decoded"]
    assert of_admin[2][0]["schedule"]["value"] == "decoded"
    assert base64.b64decode(listed[2][0]["value"]) == b"v0"
