"""What to do with a letter, as its route and its rules say."""

from __future__ import annotations

from dataclasses import dataclass

from backoff import Policy
from retry.dead_letters.failure import Failure
from retry.policies.target import Template


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a letter.

    Attributes:
      policy: when it may try again.
      park: it is parked now, whatever the policy says.
      retry_to: as written: a topic, "origin", or a template; None where no policy is known: it parks.
      park_to: a topic; None for the parking topic of the service.
      name: of the route, and "#<rule number>" from 1 where a rule matched; for the header `retry-policy`.
      ordered: whether letters of one key wait for each other.
      template: what `retry_to` leaves to the letter; None where it names a topic.
    """

    policy: Policy
    park: bool
    retry_to: str | None
    park_to: str | None
    name: str
    ordered: bool = False
    template: Template | None = None

    @property
    def fixed_target(self) -> str | None:
        """The topic that every letter of this plan goes to; None where the letter decides, or there is none."""
        return None if self.template else self.retry_to

    def target(self, failure: Failure, dead_letters: str) -> str | None:
        """The exact topic that a letter from the topic `dead_letters` goes to, for the caller to find allowed.

        None where there is none, a part of its name is unknown, or what comes out is not the name of a topic.
        """
        return self.retry_to if self.template is None else self.template.filled(failure, dead_letters)
