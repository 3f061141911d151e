"""Letters that rest of topics that were deleted and made anew: some of them have the coordinates of others."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from retry.dead_letters import retry_headers as names
from retry.delay_queue.envelopes import Entry
from retry.intake.attempts import format_retry_id
from retry.testing.kafka import MemoryRecord
from tests.simulation.plan import DEAD_LETTERS, MAX_ATTEMPTS, TEAMS

if TYPE_CHECKING:
    from tests.simulation.world import World

# Where they rest, by their topic; the service's own topic where that is empty.
_PARKED = {"orders.DLT": "shop.parked", "others.DLT": ""}
_TIMES_MADE = 4


def put_former_letters(world: World, random: Random) -> None:
    """Letters that failed at one place of a topic, each time that it was made, in half of all runs."""
    for topic, parked in _PARKED.items() if random.random() < 0.5 else ():
        partition, offset = random.randrange(DEAD_LETTERS[topic]), random.randrange(3)
        source, at_ms = f"{topic}/{partition}/{offset}", b"%d" % world.now_ms
        for n in range(random.randint(1, _TIMES_MADE)):
            lineage = format_retry_id(random.getrandbits(64), TEAMS[topic])
            letter = Entry(topic, None, b"letter of before %d" % n, [], None, "")
            ours = names.make_retry_headers(lineage, b"%d" % MAX_ATTEMPTS, source.encode(), at_ms, b"p", at_ms)
            headers = [*ours, (names.PARKED_REASON, b"max_attempts")]
            world.log.add_record(parked or world.own.parked, None, letter.value, headers)
            record = MemoryRecord(letter, partition, offset, world.now_ms)
            world.ledger.rests(world.ledger.who.former(source, lineage), record, MAX_ATTEMPTS)
            world.happened["letter of a topic that is made anew"] += 1
