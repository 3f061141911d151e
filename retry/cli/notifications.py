"""`retry notifications`: tries the targets of the console's notifications, without brokers."""

from __future__ import annotations

import click

from retry.cli.output import say
from retry.errors import SettingsInvalid
from retry.settings import read_settings


@click.group()
def notifications() -> None:
    """Try where the console's notifications go. Works without a broker."""


@notifications.command("try")
@click.argument("target")
def try_target(target: str) -> None:
    """Send a test message to TARGET, of the file that RETRY_CONSOLE_NOTIFICATIONS names. Exit code 1 where it is not taken."""
    from retry.console.notifications import rule_file
    from retry.console.notifications.targets import Senders, build_test_event, find_public_url
    from retry.process.logs import build_logging, configure_logs

    settings = read_settings()
    configure_logs(build_logging(settings.log_format, settings.log_level))
    rules = rule_file.load(settings)
    if rules is None:
        raise SettingsInvalid(rule_file.SETTING, "not set; it is the path of the file with targets and rules")
    targets = rules.current().targets
    if target not in targets:
        known = ", ".join(targets) or "none"
        raise click.UsageError(f"there is no target {target}; the file has {known}")
    senders = Senders(settings, find_public_url(settings))
    (delivery,) = senders.group_deliveries(targets[target], [build_test_event()])
    senders.send(targets[target], delivery, is_test=True)
    say(f"{target}: the message was taken")
