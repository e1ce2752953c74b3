"""Views that read a table: found from the view down, by the text that each one keeps."""

from __future__ import annotations

from collections.abc import Sequence

from databricks.sql.exc import Error
from sqlglot import exp

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.databricks.catalog import Described, describe_table
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT
from airflow_backfill_provider.warehouses.databricks.errors import is_forbidden
from airflow_backfill_provider.warehouses.databricks.session import Session
from airflow_backfill_provider.warehouses.views import tables_read

_NAMESPACE = "View Catalog and Namespace"
"""Where a view was made: what its text leaves out of a name stands there."""


def aliases(session: Session, table: str, names: Sequence[str]) -> tuple[str, ...]:
    """See :meth:`Warehouse.aliases`. A view whose text is hidden, or whose tables may not be looked at, is not seen through."""
    wanted = _spelled(describe_table(session, table))
    return tuple(name for name in names if _reads(session, name, wanted, set()))


def _reads(session: Session, name: str, wanted: str, seen: set[str]) -> bool:
    """Whether the view of that name reads the table, also through views that are not among the seen."""
    try:
        found = describe_table(session, name)
    except SpecError:  # what is not there, such as a function's rows
        return False
    except Error as error:
        if not is_forbidden(error):  # whoever may read a view need not be allowed to look at what is under it
            raise
        return False
    own = _spelled(found)
    if own in seen:
        return False
    seen.add(own)
    text, made_in = found.facts.get("View Text"), found.facts.get(_NAMESPACE)
    if not (text and made_in):
        return False
    namespace = [part.name for part in exp.to_table(made_in, dialect=DIALECT.name).parts]
    for parts in tables_read(text, DIALECT.name):
        whole = ".".join([*namespace[: max(0, 3 - len(parts))], *parts])
        if whole.casefold() == wanted or _reads(session, whole, wanted, seen):
            return True
    return False


def _spelled(found: Described) -> str:
    return f"{found.place.database}.{found.place}".casefold()
