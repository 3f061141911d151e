"""`retry verify`: whether anything is lost, duplicate or stuck; `retry doctor`: whether what the service needs is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retry.cli.options import Moment
from retry.cli.output import WAITING, say, say_json, say_lines
from retry.cli.policies import Duration
from retry.cli.program import describe_failure
from retry.errors import BrokersUnreachable, RetryError, SettingsInvalid
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.verify.context import Findings


@click.command()
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file: where letters may go.")
@click.option(
    "--data-dir", "data_dirs", multiple=True, type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Data directory of a worker on this machine, running or not, whose tables are compared with the changelog.",
)  # fmt: skip
@click.option(
    "--schedules", envvar="SCHEDULES_TOPICS", show_envvar=True, default="",
    help="Schedules topics of a scheduler, separated by commas; RETRY_APP_ID is its GROUP_ID. Needs no policy file.",
)  # fmt: skip
@click.option(
    "--since", "since_ms", type=Moment(ago=True), default="0",
    help="Only letters taken in since: ISO time, epoch ms, or 7d for seven days ago.",
)  # fmt: skip
@click.option(
    "--clock-skew", "skew_ms", type=Duration(), default="0ms", show_default=True,
    help="How far the clocks of workers and brokers may differ.",
)  # fmt: skip
@click.option("--sample", type=click.IntRange(0), default=5, show_default=True, help="Most findings of each kind that are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    policies: str | None, data_dirs: tuple[Path, ...], schedules: str, since_ms: int, skew_ms: int, sample: int, as_json: bool
) -> None:
    """Read all topics and say whether anything is lost, duplicate, torn, early, phantom, on a wrong topic or stuck.

    Nothing is changed: no group is joined, nothing committed, nothing sent; workers may run. Exit code 0: all is well; 1:
    something was found; 2: it could not be read.
    """
    from retry.kafka.interface import KafkaException
    from retry.operations.verify.run import VerifyRequest, verify_deployment
    from retry.process import start

    try:
        of_scheduler = tuple(part.strip() for part in schedules.split(",") if part.strip())
        if not policies and not of_scheduler:
            raise SettingsInvalid("RETRY_POLICIES", "not set; it names the policy file, which says where letters may go")
        start.tune_process()
        start.calm_collector()
        request = VerifyRequest(list(data_dirs), since_ms, skew_ms, sample, of_scheduler)
        registry = load(policies) if policies else Registry()
        findings = verify_deployment(read_settings(), registry, request, _bar)
    except (RetryError, KafkaException, TimeoutError) as error:
        say(describe_failure(error), err=True)
        sys.exit(2)
    say_json(_object(findings)) if as_json else say_lines(_format_findings(findings))
    sys.exit(0 if findings.clean() else 1)


@contextmanager
def _bar(label: str, length: int) -> Iterator[Callable[[int], object]]:
    """A progress bar where somebody looks at it."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    WAITING.end()
    with click.progressbar(length=max(1, length), label=f"{label:26}", file=sys.stderr) as bar:
        yield bar.update


def _object(findings: Findings) -> dict[str, object]:
    from retry.operations.verify.context import KINDS

    tables = {"checked": findings.tables, "differing": len(findings.differing), "uncompared": findings.uncompared}
    return {
        "letters": findings.letters, **{kind: findings.counts[kind] for kind in KINDS}, "aborted": findings.aborted,
        "waiting": findings.waiting, "not_taken_in": findings.not_taken_in, "tables": tables,
        "unchecked": dict(findings.unchecked), "findings": findings.examples,
    }  # fmt: skip


def _format_findings(findings: Findings) -> Iterator[str]:
    from retry.operations.verify.context import KINDS

    yield f"{findings.letters:,} letters taken in, {findings.waiting:,} of them wait; {findings.not_taken_in:,} not taken in yet"
    yield "  ".join(f"{kind.replace('_', ' ')} {findings.counts[kind]:,}" for kind in KINDS)
    yield f"{findings.aborted:,} records of aborted transactions"
    if findings.tables or findings.uncompared:
        yield f"{findings.tables} tables compared with the changelog, {len(findings.differing)} differ"
    for path, why in findings.uncompared.items():
        yield f"  not compared: {path}: {why}"
    for why, count in findings.unchecked.most_common():
        yield f"  not checked: {count:,} times {why}"
    for kind, examples in findings.examples.items():
        yield f"{kind.replace('_', ' ')}, {len(examples)} of {findings.counts[kind]:,}:"
        yield from (f"  {example}" for example in examples)


_PARTS = ("worker", "commands", "analytics", "api", "console")


@click.command()
@click.option(
    "--for", "parts", multiple=True, type=click.Choice(_PARTS), default=("worker",), show_default="worker",
    help="The parts of the service whose rights this user should have.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def doctor(parts: tuple[str, ...], *, as_json: bool) -> None:
    """Look at installation, brokers, topics, rights, clock, groups and retention, and say what is wrong and how to mend it.

    Nothing is changed: no group is joined, nothing committed, nothing sent. Give it the settings and the user of a worker. Lines
    begin with ok, note (it may be meant so) or wrong. Exit code 0: nothing is wrong; 1: something is; 2: no broker answers.
    Quotas are not looked at: brokers tell them to administrators alone.
    """
    from retry.operations.doctor import WRONG, examine

    wrong = 0
    try:
        for finding in examine(read_settings(), parts):
            wrong += finding.state == WRONG
            say_json(finding._asdict()) if as_json else say(f"{finding.state:5}  {finding.about}: {finding.told}")
    except BrokersUnreachable as error:
        say(str(error), err=True)
        sys.exit(2)
    sys.exit(1 if wrong else 0)
