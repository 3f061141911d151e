"""The gateway is back: what was parked because of it is retried in steps, and recovers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable

from examples.stage import DemoFailed, Stage
from retry.clock import Deadline

FILTER = ("state:parked", "exception:*GatewayTimeout")
# A few letters first; consumers of the demo have read a step within a moment.
_RAMP = ("--ramp", "--settle", "500ms", "--reason", "the gateway is back")


def play(service: Stage, consumers: Iterable[str], say: Callable[[str], None], letters: int, deadline: Deadline) -> None:
    """Mend the consumers, then retry what they could not process.

    Raises:
      DemoFailed: other letters were retried than those.
    """
    for name in consumers:
        service.send(name, signal.SIGUSR1)
    command = ("act", "retry", *FILTER)
    say(f"the gateway works again: retry {' '.join(command)} --ramp")
    told = json.loads(service.run(*command, *_RAMP, "--yes", "--json", deadline=deadline))
    if (told["done"], told["refused"]) != (letters, {}):
        raise DemoFailed(f"{letters} letters were parked because of the gateway, and of these were retried: {told}")
    say(f"{letters} letters that were parked were retried, a few first, then more")
