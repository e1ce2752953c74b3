"""What a drill is made over when its request names no range."""

from __future__ import annotations

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.windows import Grain

_LAST_THREE = {Grain.HOUR: "-3h", Grain.DAY: "-3d", Grain.WEEK: "-3w", Grain.MONTH: "-3mo", Grain.YEAR: "-3y"}


def with_range(spec: BackfillSpec, request: Request) -> Request:
    """The request with a range: a drill that names none gets about the last three partitions that are over.

    :raises RequestError: the values of a list have no last ones.
    """
    if not request.drill or request.start_date is not None or request.partitions:
        return request
    if spec.target.grain is Grain.LIST:
        raise RequestError(
            f"A drill of {spec.target.table} needs partitions: [the values to drill with], since a list has no last ones."
        )
    return request.model_copy(update={"start_date": _LAST_THREE[spec.target.grain], "expand": True})
