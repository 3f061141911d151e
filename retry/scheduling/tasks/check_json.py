"""`python -m retry.scheduling.tasks.check_json`: whether JSON is valid by a JSON Schema; see `framed_values`.

In a process of its own: a `pattern` of a schema may take Python's expressions longer than anybody lives, and they give nobody
else a turn meanwhile.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import jsonschema
import referencing
import referencing.jsonschema

from retry.process.limited_program import limit_resources


def find_fault(texts: Sequence[str], value: str) -> tuple[str, str] | None:
    """Find a fault of JSON by a schema, the last of `texts`; return its kind and reason, None where there is none.

    What the schema refers to stands in the texts before it, and is fetched by nobody.
    """
    try:
        schema = json.loads(texts[-1])
        others = [json.loads(text) for text in texts[:-1]]
        known = referencing.Registry().with_resources(
            (each["$id"], referencing.Resource.from_contents(each, referencing.jsonschema.DRAFT7))
            for each in others if isinstance(each, dict) and "$id" in each
        )  # fmt: skip
        validator = jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)(schema, registry=known)
        wrong = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(value)))
    except Exception as error:  # a strange schema makes the library raise nearly anything
        return "no_schema", f"not a JSON Schema that can be used: {error!r:.200}"
    return None if wrong is None else ("bad_value", f"{wrong.json_path}: {wrong.message:.200}")


def check_input() -> None:
    """Read the texts of a schema and a value, and write the fault."""
    limit_resources()
    given = json.load(sys.stdin)
    json.dump(find_fault(given["texts"], given["value"]), sys.stdout)


if __name__ == "__main__":
    check_input()
