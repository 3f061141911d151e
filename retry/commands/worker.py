"""`retry worker`: one process of the service."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option(
    "--adopt-empty-changelog", "adopt", is_flag=True,
    help="Begin with a changelog that was deleted and made anew; what waited in the old one is gone. Once, not for good.",
)
def worker(*, adopt: bool) -> None:
    """Run one worker until it is told to stop. Settings come from the environment, RETRY_*; see the README."""
    from retry import allocator
    from retry import settings as environment
    from retry import worker as shell
    from retry.app import build
    from retry.errors import RetryError

    try:
        settings = environment.from_environment()
        allocator.settle()
        engine = build(settings, adopt=adopt)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    shell.run(engine, settings)
