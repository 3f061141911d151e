"""Who types: the name by which an action, and each order about it, is remembered."""

from __future__ import annotations

import getpass
import os
import socket


def identify_user() -> str:
    """Return who runs the command, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user that nobody has named.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
