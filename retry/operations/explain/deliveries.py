"""The record that a letter became in the end, also where operators sent it somewhere else or returned it from where it rested."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from retry.dead_letters.dead_letter import Letter
from retry.delay_queue import action_records
from retry.delivery.act_audit import DONE
from retry.operations.act.audit import Audit, AuditLetter
from retry.operations.cluster import Cluster
from retry.operations.explain import search
from retry.operations.explain.search import DISCARD, DecisionRecord, Delivery, LetterLocation
from retry.policies.registry import Registry

Delivered = tuple[DecisionRecord, Delivery | None]


class DeliverySearch(NamedTuple):
    """Looks for what became of one letter.

    Attributes:
      is_returned: whether the record at some coordinates was returned from there.
    """

    cluster: Cluster
    location: LetterLocation
    letter: Letter | None
    is_returned: Callable[[LetterLocation], bool]

    def find(self, decision: DecisionRecord, registry: Registry | None) -> Delivered:
        """What was done in the end, and the record that the letter became; None where none is found."""
        delivered = self._found(decision)
        if delivered is None and decision.decision == "retry":
            plans = registry.route(self.location.topic).plans() if registry else ()
            parking = sorted({self.cluster.names.parked, *(plan.park_to for plan in plans if plan.park_to)})
            delivered = self._parked_since(decision, parking) or self._discarded_since(decision)
        if delivered is None:
            return decision, None
        return self._returned_since(*delivered) if delivered[1].returned else delivered

    def _found(self, decision: DecisionRecord) -> tuple[DecisionRecord, Delivery] | None:
        found = search.sent(self.cluster, self.location, self.letter, decision, self.is_returned)
        return None if found is None else (decision, found)

    def _parked_since(self, decision: DecisionRecord, parking: list[str]) -> tuple[DecisionRecord, Delivery] | None:
        """A letter that was to be retried and was parked while it waited: cancelled, or decided anew."""
        for topic in parking:
            # It left before it was due.
            found = self._found(decision._replace(decision="park", due_ms=None, target=topic))
            if found is not None and found[1].reason is not None:
                return found[0]._replace(reason=found[1].reason), found[1]
        return None

    def _discarded_since(self, decision: DecisionRecord) -> tuple[DecisionRecord, Delivery] | None:
        """A letter that was to be retried and that an operator discarded."""
        return self._found(decision._replace(decision=DISCARD, reason=None, due_ms=None, target=self.cluster.names.discarded))

    def _returned_since(self, decision: DecisionRecord, rested: Delivery) -> Delivered:
        """A letter that is not where it rested any more: the audit tells where it was sent to."""
        told = self._last_return(rested)
        if told is None or told.new_target is None:
            return decision._replace(decision=search.RETURNED), None
        is_discarded = told.new_target == self.cluster.names.discarded
        again = decision._replace(
            decision=DISCARD if is_discarded else "retry", reason=None, due_ms=told.new_due_ms, target=told.new_target
        )
        found = self._found(again)
        if found is None or found[1].returned:
            return again, None
        return again._replace(attempt=found[1].attempt or again.attempt), found[1]

    def _last_return(self, rested: Delivery) -> AuditLetter | None:
        audit, last = Audit(self.cluster.settings, self.cluster.admin), None
        for record in audit.records(max(0, (rested.at_ms or 0) - action_records.CLOCKS_MS)):
            for told in record.letters:
                if told.letter == str(self.location) and told.parked is not None and told.result == DONE:
                    last = told
        return last
