"""`retry policies`: what a policy file says, without a broker."""

from __future__ import annotations

import sys

import click

from retry.errors import PolicyFileInvalid
from retry.policies.explain import explain as explain_lines
from retry.policies.file import load
from retry.policies.registry import Registry


@click.group()
def policies() -> None:
    """Check a policy file, or ask what it decides."""


@policies.command()
@click.argument("file")
def check(file: str) -> None:
    """Say whether FILE can be used; if not, the first mistake with its line, and exit code 1."""
    routes = _loaded(file).routes()
    teams, topics = len({route.team for route in routes}), len(routes)
    click.echo(f"{file}: {_count(teams, 'team')}, {_count(topics, 'topic')}: OK")


@policies.command()
@click.option("--topic", required=True, help="The dead-letter topic.")
@click.option("--exception", help="Full class name of the exception, as the letter's headers have it.")
@click.option("--attempt", type=click.IntRange(1, 2**31 - 1), required=True, help="Number of the retry, from 1.")
@click.option("--file", envvar="RETRY_POLICIES", required=True, help="The policy file.", show_envvar=True)
def explain(topic: str, exception: str | None, attempt: int, file: str) -> None:
    """Say in words what happens to a letter, and how long this and the next retries wait."""
    for line in explain_lines(_loaded(file), topic=topic, exception=exception, attempt=attempt):
        click.echo(line)


def _loaded(file: str) -> Registry:
    try:
        return load(file)
    except PolicyFileInvalid as invalid:
        click.echo(str(invalid), err=True)
        sys.exit(1)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
