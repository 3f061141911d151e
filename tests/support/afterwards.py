"""What is asked after every fault: all of it came back, the workers are well, and the checker finds nothing."""

from __future__ import annotations

from tests.support.checker import Findings, check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import TERMINATION_S
from tests.support.reading import Tail

# Where cores are starved brokers may not answer for a minute, twice, and each time a worker begins anew.
_CAME_S = 360.0


def nothing_is_wrong(
    deployment: Deployment, sender: Sender, timeout_s: float = _CAME_S, ends_within_s: float = TERMINATION_S
) -> Findings:
    """Wait until every letter came back, end the workers with SIGTERM, and check.

    Args:
      timeout_s: for what has not come back yet, and for each worker to be ready.
      ends_within_s: each worker, after SIGTERM.
    """
    sent = sender.finish()
    sent |= sender.find_copies()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(len(sent), timeout_s)
    tail.close()
    for worker in deployment.workers.values():
        if worker.running():
            # One that was just started has all of its tables to fill.
            worker.await_ready(timeout_s)
            worker.terminate(ends_within_s)
    found = check(deployment, sent)
    wrong = found.wrong()
    assert wrong == {}, wrong
    return found
