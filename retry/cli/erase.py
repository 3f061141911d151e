"""`retry erase`: a person's right that nothing is kept of a record key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retry.cli import options
from retry.cli.act import FILE, NOT_YET, confirm_count, load_workers_policies, read_file, start_action
from retry.cli.output import REFUSED, exit_where_refused, say, say_json
from retry.cli.policies import Duration
from retry.clock import iso, wall_ms
from retry.errors import ActionRefused
from retry.policies.registry import Registry
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.act.erase import Erasing, Remnant
    from retry.operations.act.preview import Preview
    from retry.operations.control_requests import ShardNumbers

# All of them: it is a person's right, and takes as long as it takes.
_NEWEST = 1 << 60


@click.command()
@click.option("--key", metavar="K", help="The record key, as text.")
@click.option("--key-file", type=FILE, metavar="FILE", help="The record key, byte by byte; - reads standard input.")
@click.option("--topic", metavar="T", help="Only letters from this dead-letter topic.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen. The default.")
@click.option("--yes", is_flag=True, help="Have the workers do it.")
@click.option("--expect", type=click.IntRange(0), metavar="N", help="How many letters it must be; else nothing is done.")
@click.option("--reason", default="", help="Why, without the key: the audit keeps it.")
@click.option("--by", default=options.identify_user, metavar="NAME", help="Who asks for it. By default user and host.")
@click.option("--wait", "wait_ms", type=Duration(), default="10m", show_default=True, help="How long to wait for the workers.")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file: of parking topics.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: what would be erased and what stays, then what was done.")
@exit_where_refused()
def erase(
    key: str | None, key_file: Path | None, topic: str | None, dry_run: bool, yes: bool, expect: int | None, reason: str, by: str,
    wait_ms: int, policies: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Erase all letters with one record key: those that wait are never sent, those that rest are never returned.

    Of a letter that waits, key, value and headers are gone once the changelog is compacted. Records of parking topics and of the
    topic of discarded letters are Kafka's to remove: they are listed with the newest time in each partition and the end of its
    retention. Without --yes it only says what there is. What comes later is not erased: ask again until nothing is found.

    This cannot be undone. Ends with 0 where all that was found is erased (or shown), with 3 where nothing was done, with 4 where
    the action is held, and with 1 where workers were not done in time, or letters with this key were found again.
    """
    if (key is None) == (key_file is None):
        raise click.UsageError("give one of --key and --key-file")
    if dry_run and yes:
        raise click.UsageError("give --dry-run or --yes")
    wanted = read_file(key_file) if key_file is not None else (key or "").encode()
    from retry.operations.act import start
    from retry.operations.act.erase import Erasing, find_remnants
    from retry.operations.control_requests import ShardNumbers

    settings, erasing = read_settings(), Erasing(wanted, topic)
    registry = load_workers_policies(policies)
    shards = ShardNumbers(settings)
    start.demand_readiness(shards.admin, settings.app_id)
    found = _preview(shards, erasing, by, reason, registry, asked=yes)
    sealed = erasing.sealed + found.chosen.refused["sealed"]
    _print_erasure(found, find_remnants(settings, shards, erasing, found.at_ms), sealed, as_json=as_json)
    _demand_expected(found.chosen.count, expect, asked=yes)
    sys.exit(_do(shards, erasing, found, wait_ms, registry, as_json=as_json) if yes else 0 if found.chosen.count else REFUSED)


def _preview(shards: ShardNumbers, erasing: Erasing, by: str, reason: str, registry: Registry, *, asked: bool) -> Preview:
    """Preview the letters to erase; the time is the brokers' if `asked`, which writes a record, else this machine's."""
    from retry.operations.act.letter_sources import AllLetters
    from retry.operations.act.preview import preview
    from retry.operations.cluster import Cluster
    from retry.operations.listing import Listing

    now_ms = shards.now_ms() if asked else wall_ms()
    where = Listing(Cluster(shards.settings), registry, _NEWEST, lambda line: say(line, err=True))
    request = erasing.request(by, reason, registry.digest)
    return preview(shards.settings, registry, request, erasing.matches, now_ms, AllLetters(shards, where))


def _do(shards: ShardNumbers, erasing: Erasing, found: Preview, wait_ms: int, registry: Registry, *, as_json: bool) -> int:
    from retry.operations.act.erase import Erasing, list_compacted, write_nulls

    code = start_action(shards, found, wait_ms, as_json=as_json) if found.chosen.count else REFUSED
    if code not in (0, REFUSED):
        return code
    if places := list_compacted(shards, erasing):
        write_nulls(shards, erasing, places)
        say(f"a null with this key in {len(places)} partitions of compacted topics", err=True)
        code = 0
    # What was sent or moved before its turn came may be here again.
    again = _preview(shards, Erasing(erasing.key, erasing.topic), "", "", registry, asked=True).chosen.count
    if again:
        say(f"{again:,} letters have this key by now; ask again", err=True)
    return NOT_YET if again else code


def _demand_expected(count: int, expect: int | None, *, asked: bool) -> None:
    from retry.operations.act.options import UNASKED_MAX

    if expect is not None and count != expect:
        raise ActionRefused(f"{count:,} letters have this key, not {expect:,}; nothing was done")
    if asked and expect is None and count > UNASKED_MAX:
        confirm_count(count)


def _print_erasure(found: Preview, remains: list[Remnant], sealed: int, *, as_json: bool) -> None:
    chosen = found.chosen
    waits, rests = sum(map(len, chosen.keys)), len(chosen.resting)
    named, before = chosen.refused["named"], chosen.refused["returned"]
    if as_json:
        rows = [
            {"where": each.where, "what": each.what, "newest": iso(each.newest_ms), "until": iso(each.until_ms)}
            for each in remains
        ]  # fmt: skip
        counts = {"letters": chosen.count, "wait": waits, "rest": rests, "erased": before, "named": named, "sealed": sealed}
        say_json({**counts, "remains": rows})
        return
    say(f"{chosen.count:,} letters to erase: {waits:,} wait, {rests:,} rest")
    if before:
        say(f"{before:,} more rest and are never returned: they were erased, or returned, before")
    if named:
        say(f"{named:,} schedules, tasks or timers have this key, too: cancel them where they came in")
    if sealed:
        say(f"{sealed:,} letters may have this key, and cannot be read here: give their keys in RETRY_ENCRYPTION_KEYS")
    say("what stays, until when:")
    for each in remains:
        newest = "" if each.newest_ms is None else f", newest of {iso(each.newest_ms)}"
        say(f"  {each.where}: {each.what}{newest}" + ("" if each.until_ms is None else f": until {iso(each.until_ms)}"))


