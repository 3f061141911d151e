"""The record that a letter became in the end, also where operators sent it somewhere else or returned it from where it rested."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from retry.dead_letters.dead_letter import Letter
from retry.operations.cluster import Cluster
from retry.operations.explain import search
from retry.operations.explain.search import DecisionRecord, Delivery, LetterLocation
from retry.policies.registry import Registry
from retry.telemetry.outcomes import PARK, RETRY, RETURN

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
        """Find the final decision, and the record that the letter became; None where no record is found."""
        delivered = self._find_delivery(decision)
        if delivered is None or delivered.returned:
            # What operators have decided stands, or what was decided of an entry that waited.
            acted = search.last_acted(self.cluster, self.location, decision.taken_ms or 0)
            if acted is not None:
                decision = search.of_outcome(acted)._replace(taken_ms=decision.taken_ms)
                delivered = self._find_delivery(decision)
            elif delivered is not None:
                return decision._replace(decision=search.RETURNED), None
        if delivered is None and decision.decision in (RETRY, RETURN):
            plans = registry.route(self.location.topic).plans() if registry else ()
            parking = sorted({self.cluster.names.parked, *(plan.park_to for plan in plans if plan.park_to)})
            return self._parked_since(decision, parking) or (decision, None)
        return decision, delivered

    def _find_delivery(self, decision: DecisionRecord) -> Delivery | None:
        return search.find_sent_record(self.cluster, self.location, self.letter, decision, self.is_returned)

    def _parked_since(self, decision: DecisionRecord, parking: list[str]) -> Delivered | None:
        """A letter that was to be retried and was parked while it waited: cancelled, or decided anew."""
        for topic in parking:
            # It left before it was due.
            parked = decision._replace(decision=PARK, due_ms=None, target=topic)
            found = self._find_delivery(parked)
            if found is not None and found.reason is not None:
                return parked._replace(reason=found.reason), found
        return None
