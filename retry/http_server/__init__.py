"""Serves an application over HTTP from a thread of its own: health and metrics, the supervisor, the scheduler's REST, the API.

Starlette says what is answered and uvicorn speaks HTTP; what they lack towards strangers is here,
in `connections` and `host_names`.

The thread has an event loop of its own: `/health/live` answers while the loop of the worker is busy or stands still, and what
is done here does not delay that. Nothing runs while nobody is connected.
"""

from retry.http_server.server import HttpServer

__all__ = ["HttpServer"]
