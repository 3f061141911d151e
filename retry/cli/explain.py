"""`retry explain`: one letter, in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from retry.cli.output import say, say_json

if TYPE_CHECKING:
    from retry.operations.explain.evidence import LetterEvidence
    from retry.operations.explain.explanation import Explained


@click.command()
@click.argument("letter", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with more fields.")
def explain(letter: str, policies: str | None, as_json: bool) -> None:
    """Explain one letter: what failed, by which rule it is due when, where it is now, and what happens next.

    The letter is named as the header retry-source names it, or by its name of `retry letters`. Payloads are not printed. No
    worker needs to run.
    """
    from retry import settings as environment
    from retry.clock import wall_ms
    from retry.errors import RetryError
    from retry.kafka.interface import KafkaException
    from retry.operations.cluster import Cluster
    from retry.operations.explain.evidence import evidence_of
    from retry.operations.explain.explanation import explain_evidence
    from retry.operations.explain.search import named_place
    from retry.policies.policy_file import load

    try:
        location = named_place(letter)
        registry = load(policies) if policies else None
        cluster = Cluster(environment.from_environment())
        evidence = evidence_of(cluster, location, registry)
        forecast = None
        if evidence.record is not None and registry is not None:
            forecast = next(cluster.inspector(registry).decide_letters([evidence.record], wall_ms()))
        explanation = explain_evidence(evidence, registry, forecast, wall_ms())
    except (RetryError, KafkaException, ValueError) as error:
        say(str(error), err=True)
        sys.exit(1)
    if as_json:
        import orjson

        say_json(orjson.dumps(_object(evidence, explanation), option=orjson.OPT_INDENT_2))
    else:
        for line in (line for section in explanation.sentences.values() for line in section):
            say(line)


def _object(evidence: LetterEvidence, explanation: Explained) -> dict[str, object]:
    from retry.delay_queue.entry_keys import source

    failure = evidence.letter.failure if evidence.letter else None
    return {
        **evidence.location._asdict(),
        "state": explanation.state.name.lower(),
        "family": failure.family if failure else None,
        "exception": failure.exception if failure else None,
        "cause": failure.cause if failure else None,
        "decision": explanation.decision._asdict() if explanation.decision else None,
        "name": str(source(evidence.waiting.key)) if evidence.waiting else None,
        "behind": str(source(evidence.waiting.head)) if evidence.waiting and evidence.waiting.head else None,
        "blocked": evidence.blocked,
        "sent_to": str(evidence.delivery.place) if evidence.delivery else None,
        "sent_ms": evidence.delivery.at_ms if evidence.delivery else None,
        "former": [{"at": str(each.place), "action": each.action} for each in evidence.former],
        "sentences": explanation.sentences,
    }
