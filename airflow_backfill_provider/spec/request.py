"""What a trigger's conf adds to a spec: the range, the reason and the mode. Untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.spec.checks import Frozen


class Mode(StrEnum):
    """How far a run goes."""

    PLAN = "plan"  # print the plan; nothing is written, nothing is locked
    STAGE = "stage"  # stop with every partition validated
    PUBLISH = "publish"  # go through


def conf_of(backfill_id: str, flag: str) -> str:
    """The conf that goes on with an earlier backfill, ``{"backfill_id": "…", "restage": true}`` for example."""
    return json.dumps({"backfill_id": backfill_id, flag: True})


PartitionKey = Annotated[str, Field(max_length=64)]
Reason = Annotated[str, Field(max_length=2_000)]


class Request(Frozen):
    """One request; ``start_date`` with or without ``end_date``, or ``partitions``, or the id of an earlier backfill."""

    start_date: Annotated[str, Field(max_length=64)] | None = None
    """A date (month, year), a datetime, or relative to now: ``today``, ``yesterday``, ``now``, ``-30d``."""
    end_date: Annotated[str, Field(max_length=64)] | None = None
    """As ``start_date``: a datetime is exclusive, all others inclusive. Without one, the last partition that is over."""
    partitions: tuple[PartitionKey, ...] = ()
    exclude: tuple[PartitionKey, ...] = ()
    expand: bool = False
    """Widen a range that begins or ends inside a partition to whole partitions, instead of refusing it."""
    include_live: bool = False
    """Allow the partition that is still being written."""
    reason: Reason = ""
    mode: Mode = Mode.PUBLISH
    backfill_id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")] | None = None
    """Go on with this backfill instead of planning a new one."""
    restage: bool = False
    """Throw away staged work whose intent differs, and stage again."""
    rebase: bool = False
    """Re-read the baseline of partitions whose published rows moved, and recompute only those."""

    drill: bool = False
    """Rehearse: damage one staged partition on purpose, publish nothing, clean up. Without a range, the last three partitions."""

    waive_approval: Reason = ""
    """Why nobody needs to approve this request; only from those that the spec's ``approval.waivers`` names."""

    @model_validator(mode="after")
    def _one_range(self) -> Request:
        dated = self.start_date is not None or self.end_date is not None
        if self.drill:
            if self.backfill_id is not None or self.restage or self.rebase or self.mode is not Mode.PUBLISH:
                raise ValueError(
                    "a drill is a backfill of its own that goes as far as a publish would: leave backfill_id, restage, rebase and mode out"
                )
            if not dated and not self.partitions:
                return self
        if self.backfill_id is not None:
            if dated or self.partitions or self.exclude:
                raise ValueError(
                    "a backfill_id brings its own range: leave start_date, end_date, partitions and exclude out"
                )
        elif dated and self.partitions:
            raise ValueError("give either start_date and end_date, or partitions")
        elif not self.partitions and self.start_date is None:
            raise ValueError("give start_date and end_date, or partitions")
        return self

    @property
    def is_relative(self) -> bool:
        """Whether the range depends on the moment when it is resolved."""
        bounds = [bound for bound in (self.start_date, self.end_date) if bound is not None]
        return bool(bounds) and (self.end_date is None or any(not bound[:1].isdigit() for bound in bounds))

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any] | None) -> Request:
        """Read a trigger's conf; empty form fields count as absent.

        :raises RequestError: naming each field that is wrong and what it needs.
        """
        if not isinstance(conf, Mapping | None):
            raise RequestError(
                f"The conf cannot be planned. It must be a mapping such as {{'start_date': …}}, not {conf!r}."
            )
        given = {name: value for name, value in (conf or {}).items() if value not in (None, "", [], ())}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            lines = [
                f"{'.'.join(map(str, entry['loc'])) or 'conf'}: {entry['msg'].removeprefix('Value error, ')}"
                for entry in error.errors()
            ]
            raise RequestError("The conf cannot be planned. " + "; ".join(lines) + ".") from error
