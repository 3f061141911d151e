"""`retry analytics advise` and `what-if`: which retries are worth making, and what another policy file would have made of
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from backoff import duration_text
from retry.cli.analytics_options import JSON, Sources, counted, decided, period, places, starts, told, write

_FILE = click.option("--file", "now", envvar="RETRY_POLICIES", show_envvar=True, required=True, help="The policy file of now.")
_WRITE = click.option(
    "--write", "new", metavar="NEW", type=click.Path(dir_okay=False, path_type=Path), help="Write the policy file here."
)


@click.command()
@period
@_FILE
@_WRITE
@click.option(
    "--keep",
    type=click.FloatRange(0.5, 1),
    default=0.99,
    show_default=True,
    help="Part of the recoveries of each kind that must stay.",
)
@click.option(
    "--enough", type=click.IntRange(30), default=100, show_default=True, help="Letters of a kind that it takes to say anything."
)
@JSON
def advise(now: str, new: Path | None, keep: float, enough: int, as_json: bool, **sources: Any) -> None:
    """Say for each team and exception how many attempts are worth making, and after which delays; with --write as a policy
    file."""
    from retry.analytics.advice.policy_rewrite import Advised, amended
    from retry.analytics.advice.summary import judged, saving, worth

    text = _read(now)
    with decided("retry-advise", Sources(**sources)) as (_, decisions):
        kinds, lying = counted(decisions), places(decisions)
        advice = judged(kinds, keep=keep, enough=enough)
        named = [
            Advised(kind.team, kind.exception, *lying[kind], each) for kind, each in advice.items() if kind.exception is not None
        ]
        changed, rules = amended(text, now, named)
    found = {"advice": worth(kinds, advice), "saving": saving(advice, keep), "rules": rules}
    click.echo(json.dumps(found) if as_json else "\n".join(_lines(found)))
    if new is not None:
        write(new, changed)
        click.echo(str(new.absolute()), err=as_json)


@click.command("what-if")
@click.argument("tried", metavar="FILE")
@period
@_FILE
@_WRITE
@JSON
def what_if(tried: str, now: str, new: Path | None, as_json: bool, **sources: Any) -> None:
    """Try the policy file FILE on the failures of the period: retries, recoveries, time to recovery and parked, beside those of
    now.

    With --write NEW it is written there, with what was found as a comment at its head.
    """
    from retry.analytics.advice.compare import compared, lines
    from retry.policies.policy_file import parse

    text = _read(tried)
    registries = parse(_read(now), now), parse(text, tried)
    with decided("retry-what-if", Sources(**sources)) as (_, decisions):
        found = compared(*registries, starts(decisions), counted(decisions))
    said = lines(found)
    click.echo(json.dumps(found) if as_json else "\n".join(said))
    if new is not None:
        write(new, "".join(f"# {line}\n" for line in said) + text)
        click.echo(str(new.absolute()), err=as_json)


def _read(file: str) -> str:
    """The text of a policy file that can be used."""
    from retry.policies.policy_file import load

    with told():
        load(file)
    return Path(file).read_text(encoding="utf-8-sig")


def _lines(found: dict[str, Any]) -> Iterator[str]:
    saving = found["saving"]
    part = f"{saving['retries']:,.0f} of {saving['of']:,.0f} retries can be left out ({saving['share']:.1%})"
    yield f"{part}; {found['rules']} rules"
    for row in found["advice"]:
        yield f"{row['team']} {row['exception']!r}: {row['letters']:,} letters, {_said(row)}"


def _said(row: dict[str, Any]) -> str:
    if row["verdict"] == "unknown":
        return f"too few; {row['missing']:,} more whose end is known are needed"
    is_fewer = row["verdict"] == "fewer"
    said = [f"{row['attempts']} of {row['attempts_now']} attempts" if is_fewer else f"keep {row['attempts']} attempts"]
    said += [f"attempt {attempt} after {duration_text(delay_ms)}" for attempt, delay_ms in row["delays_ms"].items()]
    if is_fewer:
        said.append(f"saves {row['saved']:,.0f} retries")
        kept = f"keeps at least {row['kept_low']:.1%} of the recoveries"
        said.append(kept if row["recoveries_now"] else "nothing ever recovered; one attempt stays as a probe")
    if row["missing"]:
        said.append(f"{row['missing']:,} more last attempts would tell whether they are worth it")
    return ", ".join(said)
