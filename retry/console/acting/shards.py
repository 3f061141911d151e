"""The changelog's partitions, as what is done from the console needs them: asked anew each time, since they may have grown."""

from __future__ import annotations

from retry.console.web.app import Console
from retry.operations.control_requests import ShardNumbers


def load_shard_numbers(console: Console) -> ShardNumbers:
    """Ask the brokers for the partitions of the changelog.

    Raises:
      BrokersUnreachable: nobody answered.
      TopicsInvalid: there is no changelog.
    """
    # Where the brokers were never there this says so at once.
    console.cluster()
    return ShardNumbers(console.settings)
