"""`retry verify`: whether anything is lost, duplicate, torn, early, phantom, on a wrong topic or stuck."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retry.cli.entries import Moment
from retry.cli.policies import Duration

if TYPE_CHECKING:
    from retry.operations.verify.findings import Findings


@click.command()
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file: where letters may go.")
@click.option(
    "--data-dir", "data_dirs", multiple=True, type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Of a worker on this machine, running or not: compare its tables with the changelog, too. Repeatable.",
)  # fmt: skip
@click.option(
    "--schedules", envvar="SCHEDULES_TOPICS", show_envvar=True, default="",
    help="Of a scheduler, whose GROUP_ID is RETRY_APP_ID then: its schedules topics, by commas. It needs no policy file.",
)  # fmt: skip
@click.option(
    "--since", "since_ms", type=Moment(ago=True), default="0",
    help="Only letters taken in since: ISO time, epoch ms, or 7d ago.",
)  # fmt: skip
@click.option(
    "--clock-skew", "skew_ms", type=Duration(), default="0ms", show_default=True,
    help="By how much clocks of workers and brokers differ.",
)  # fmt: skip
@click.option("--sample", type=click.IntRange(0), default=5, show_default=True, help="Findings of each kind that are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    policies: str | None, data_dirs: tuple[Path, ...], schedules: str, since_ms: int, skew_ms: int, sample: int, as_json: bool
) -> None:
    """Read all topics and say whether anything is lost, duplicate, torn, early, phantom, on a wrong topic or stuck.

    Nothing is changed: no group is joined, nothing committed, nothing sent; workers may run. Exit code 0: all is well; 1:
    something was found, or it could not be read.
    """
    from confluent_kafka import KafkaException

    from retry.worker import malloc_tuning
    from retry import settings as environment
    from retry.errors import RetryError, SettingsInvalid
    from retry.policies.policy_file import load
    from retry.policies.registry import Registry
    from retry.operations.verify.run import Asked, verified

    try:
        of_scheduler = tuple(part.strip() for part in schedules.split(",") if part.strip())
        if not policies and not of_scheduler:
            raise SettingsInvalid("RETRY_POLICIES", "not set; it names the policy file, which says where letters may go")
        malloc_tuning.settle()
        malloc_tuning.calm_collector()
        asked = Asked(list(data_dirs), since_ms, skew_ms, sample, of_scheduler)
        registry = load(policies) if policies else Registry()
        found = verified(environment.from_environment(), registry, asked, _bar)
    except (RetryError, KafkaException) as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    _print(found, as_json)
    sys.exit(0 if found.clean() else 1)


@contextmanager
def _bar(label: str, length: int) -> Iterator[Callable[[int], object]]:
    """A progress bar where somebody looks at it."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    with click.progressbar(length=max(1, length), label=f"{label:26}", file=sys.stderr) as bar:
        yield bar.update


def _print(found: Findings, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(_object(found)))
        return
    for line in _lines(found):
        click.echo(line)


def _object(found: Findings) -> dict[str, object]:
    from retry.operations.verify.findings import KINDS

    tables = {"checked": found.tables, "differing": len(found.differing), "uncompared": found.uncompared}
    return {
        "letters": found.letters,
        **{kind: found.counts[kind] for kind in KINDS},
        "undone": found.undone,
        "waiting": found.waiting,
        "not_taken_in": found.untaken,
        "tables": tables,
        "unjudged": dict(found.unjudged),
        "findings": found.said,
    }


def _lines(found: Findings) -> Iterator[str]:
    from retry.operations.verify.findings import KINDS

    yield f"{found.letters:,} letters taken in, {found.waiting:,} of them wait; {found.untaken:,} not taken in yet"
    yield "  ".join(f"{kind.replace('_', ' ')} {found.counts[kind]:,}" for kind in KINDS)
    yield f"{found.undone:,} records of transactions that were undone"
    if found.tables or found.uncompared:
        yield f"{found.tables} tables compared with the changelog, {len(found.differing)} differ"
    for path, why in found.uncompared.items():
        yield f"  not compared: {path}: {why}"
    for why, count in found.unjudged.most_common():
        yield f"  not judged: {count:,} times {why}"
    for kind, some in found.said.items():
        yield f"{kind.replace('_', ' ')}, {len(some)} of {found.counts[kind]:,}:"
        yield from (f"  {says}" for says in some)
