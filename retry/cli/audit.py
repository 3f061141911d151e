"""`retry audit`: who did what to which letters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click
import msgspec

from retry.cli.moment import Moment
from retry.cli.output import say, say_json
from retry.clock import iso

if TYPE_CHECKING:
    from retry.operations.act.audit import AuditRecord


@click.command()
@click.option("--action", default="", metavar="ID", help="Only of this action; its whole id.")
@click.option("--since", type=Moment(ago=True), default="30d", show_default=True, help="From this time on, or so long ago.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, with each letter.")
def audit(action: str, since: int, as_json: bool) -> None:
    """Print what workers did for actions, a line for each transaction, who held, resumed or cancelled one, and what people did in
    the console: who was shown which payload, and who paused what. All of it as the audit topic has it: kept for a year."""
    from retry import settings as environment
    from retry.kafka import client_config
    from retry.operations.act.audit import Audit

    settings, count = environment.from_environment(), 0
    for record in Audit(settings, client_config.admin(settings)).read_records(since, action):
        count += 1
        say_json(msgspec.json.encode(record)) if as_json else say(_format_record(record))
    if not count:
        say("the audit has nothing of that", err=True)


def _format_record(record: AuditRecord) -> str:
    from retry.operations.act.audit import NO_SHARD

    results = Counter(each.result for each in record.letters)
    told = ", ".join(f"{number:,} {result}" for result, number in results.most_common())
    reason = f": {record.reason}" if record.reason else ""
    if record.shard == NO_SHARD:
        letters = "".join(f" {each.parked or each.letter}" for each in record.letters)
        return f"{iso(record.at_ms)}  {record.action or 'console':<16}  {record.kind} by {record.by}{reason}{letters}"
    return f"{iso(record.at_ms)}  {record.action}  {record.kind} by {record.by}{reason}; shard {record.shard}: {told}"
