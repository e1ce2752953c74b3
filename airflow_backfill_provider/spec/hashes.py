"""The hashes that decide what may be reused: of the whole spec, and of what decides a staged result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any

from airflow_backfill_provider.spec.model import BackfillSpec

_PLACES: Any = {
    "transform": {
        "file": True,
        "eras": {"__all__": {"file"}},
        "dbt": {"project_dir", "profiles_dir", "executable"},
        "compiled": {"cautions", "dbt_version"},
    }
}


def spec_hash(spec: BackfillSpec) -> str:
    """sha256 (hex) of the whole spec; where its SQL files and its dbt lie is left out, what they say is not."""
    return digest(spec.model_dump(mode="json", exclude=_PLACES))


def intent_hash(spec: BackfillSpec, keys: Collection[str]) -> str:
    """sha256 (hex) of what decides a staged result: target, transform, what is kept, and partition keys, in any order.

    Checks, comparisons, compute and publish settings do not change it: staged rows stay reusable under new ones.
    """
    target = spec.target
    return digest(
        {
            "target": {
                "table": target.table,
                "partition_by": target.partition_by,
                "grain": target.grain,
                "timezone": target.timezone,
                "column_timezone": target.column_timezone,
                "column_format": target.column_format,
                "key": target.key,
            },
            "transform": spec.transform.intent,
            "cutoff": _cutoff(spec),
            "keep_unmatched": spec.publish.keep_unmatched,
            "keys": sorted(set(keys)),
            **({"discard_rows": True} if spec.schema_gate.mode == "discard_rows" else {}),
        }
    )


def _cutoff(spec: BackfillSpec) -> list[str]:
    """What the reads of the source are bounded by; the moment itself is the plan's, for as long as it is staged for."""
    source = spec.source
    return [] if source is None or source.cutoff is None else [source.table, source.cutoff.column]


def canonical_json(document: Any) -> str:
    """The one way a JSON document is written before it is hashed: ASCII, keys sorted, no spaces.

    :raises ValueError: for NaN and infinity, which JSON does not have.
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(document: Any) -> str:
    """sha256 (hex) of plain JSON values, the same for equal values however they were ordered."""
    return hashlib.sha256(canonical_json(document).encode("ascii")).hexdigest()
