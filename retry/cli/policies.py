"""`retry policies`: what a policy file says, without a broker."""

from __future__ import annotations

import sys
from typing import Any

import click

from backoff import PolicyInvalid, duration_ms
from retry.cli.output import say
from retry.dead_letters.failure import Failure
from retry.errors import PolicyFileInvalid
from retry.policies.explain import explain as explain_lines
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.policies.route import MatchInput
from retry.record import Header


@click.group()
def policies() -> None:
    """Check a policy file, or ask what it decides. Works without a broker."""


@policies.command()
@click.argument("file")
def check(file: str) -> None:
    """Say whether FILE can be used. If not, print its first mistake with the line, and end with exit code 1."""
    registry = _load_policies(file)
    routes = registry.list_routes()
    teams, topics = len({route.team for route in routes}), len(routes)
    tasks = f", {_count(len(registry.tasks.topics), 'topic')} of tasks" if registry.tasks else ""
    say(f"{file}: {_count(teams, 'team')}, {_count(topics, 'topic')}{tasks}: OK")


class Duration(click.ParamType):
    """Milliseconds, from a duration as the policy file writes them."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a duration into milliseconds, or fail with a message that says what is wrong."""
        try:
            return value if isinstance(value, int) else duration_ms(value)
        except PolicyInvalid as invalid:
            self.fail(invalid.reason, param, ctx)


class _Header(click.ParamType):
    """A header, from name=value."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Header:
        """Name and UTF-8 value."""
        name, equals, text = value.partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not name=value", param, ctx)
        return name, text.encode(errors="replace")


@policies.command()
@click.option("--topic", required=True, help="The dead-letter topic.")
@click.option("--attempt", type=click.IntRange(1, 2**31 - 1), required=True, help="Number of the retry, from 1.")
@click.option("--exception", help="Full class name of the exception, as the letter's headers have it.")
@click.option("--cause", help="Full class name of the root cause.")
@click.option("--message", help="Message of the exception.")
@click.option("--stage", help="Stage of its framework at which the record failed.")
@click.option("--age", type=Duration(), default="0s", help="Time since the first failure, like 2h30m.")
@click.option("--header", "headers", type=_Header(), multiple=True, help="A header of the letter.")
@click.option("--group", help="The consumer group that failed.")
@click.option("--origin", help="The topic that the record first came from.")
@click.option("--null-value", is_flag=True, help="The letter has no value.")
@click.option("--file", envvar="RETRY_POLICIES", required=True, help="The policy file.", show_envvar=True)
def explain(
    topic: str, attempt: int, age: int, headers: tuple[Header, ...], null_value: bool, file: str, **options: str | None
) -> None:
    """Say in words what happens to a letter, by which rule and why, and how long this retry and the next ones wait."""
    failure = Failure(
        origin_topic=options["origin"],
        consumer_group=options["group"],
        exception=options["exception"],
        cause=options["cause"],
        message=options["message"],
        stage=options["stage"],
    )
    for line in explain_lines(_load_policies(file), topic, MatchInput(failure, attempt, age, headers, null_value)):
        say(line)


def _load_policies(file: str) -> Registry:
    try:
        return load(file)
    except PolicyFileInvalid as invalid:
        say(str(invalid), err=True)
        sys.exit(1)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
