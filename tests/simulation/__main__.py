"""`python -m tests.simulation`: many seeds, or one that is printed step by step."""

from __future__ import annotations

import logging
import sys

import click

from tests.simulation import mutants
from tests.simulation.pool import run_all
from tests.simulation.run import run

_SHOWN = 10


@click.command()
@click.option("--seed", type=int, help="Run this seed only.")
@click.option("--trace", is_flag=True, help="Tell each step of it.")
@click.option("--seeds", default=10_000, show_default=True, help="How many to run.")
@click.option("--from", "first", default=0, show_default=True, help="The first of them.")
@click.option("--mutant", type=click.Choice(list(mutants.MUTANTS)), help="With one rule of the protocol switched off.")
@click.option("--processes", type=int, help="As many as there are cores, if not given.")
def main(seed: int | None, trace: bool, seeds: int, first: int, mutant: str | None, processes: int | None) -> None:
    """Run workers over a log in memory, with faults; a failing seed is printed, and always fails in the same way."""
    if seed is not None:
        sys.exit(_one(seed, trace, mutant or ""))
    total = run_all(first, seeds, mutant or "", processes=processes)
    click.echo(total.describe())
    for kind, count in sorted(total.happened.items()):
        click.echo(f"  {count:>9,}  {kind}")
    for failed, problem in sorted(total.problems.items())[:_SHOWN]:
        click.echo(f"seed {failed}: {problem}\n  python -m tests.simulation --seed {failed} --trace")
    sys.exit(1 if total.problems else 0)


def _one(seed: int, trace: bool, mutant: str) -> int:
    logging.disable(logging.CRITICAL)
    with mutants.switched_off(mutant):
        result = run(seed, tell=trace)
    click.echo("\n".join([*result.trace, f"seed {seed}: {result.problem or 'all promises kept'}"]))
    return 1 if result.problem else 0


if __name__ == "__main__":
    main()
