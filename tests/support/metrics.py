"""A metrics page, as whoever reads it knows it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Exported = dict[str, tuple[str, tuple[str, ...]]]


def read_exported(page: str) -> Exported:
    """Read what a page exports, by declared name: type, and labels in alphabetical order; none where there is no sample.

    What Prometheus' own collectors tell of every program is left out.
    """
    found: Exported = {}
    for family in text_string_to_metric_families(page):
        if family.name.endswith("_created") or family.name.startswith(("process_", "python_")):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = next((tuple(sorted(s.labels.keys() - {"le"})) for s in family.samples), ())
        found[name] = family.type, labels
    return found
