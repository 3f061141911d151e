"""`retry doctor`: what is wrong with a deployment, and how to mend it."""

from __future__ import annotations

import sys

import click

from retry.cli.output import say, say_json
from retry.errors import BrokersUnreachable
from retry.settings import from_environment

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
        for finding in examine(from_environment(), parts):
            wrong += finding.state == WRONG
            say_json(finding._asdict()) if as_json else say(f"{finding.state:5}  {finding.about}: {finding.told}")
    except BrokersUnreachable as error:
        say(str(error), err=True)
        sys.exit(2)
    sys.exit(1 if wrong else 0)
