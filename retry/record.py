"""Headers of a record, as Kafka's clients give and take them."""

from __future__ import annotations

Header = tuple[str, bytes | None]
Headers = list[Header]
