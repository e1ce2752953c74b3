"""What the role of the connection must be allowed to do; asked before anything is done."""

from __future__ import annotations

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.receipts import SCHEMA
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, quote_path, text_literal

_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")


def preflight(session: Session, place: Place, staging_schema: str) -> None:
    """Refuse a server or a role that cannot publish into the table.

    :raises WarehouseError: naming what is missing, and the statement that mends it.
    """
    ((standby, role),) = session.run("SELECT pg_is_in_recovery(), current_user")
    if standby:
        raise WarehouseError(
            "The connection leads to a hot standby, which takes no writes; nothing was done. Connect to the primary."
        )
    table = text_literal(quote_path(place.schema, place.name))
    wanted = ", ".join(f"has_table_privilege({table}, {text_literal(right)})" for right in _NEEDED)
    (allowed,) = session.run(f"SELECT {wanted}")
    if missing := [right for right, has in zip(_NEEDED, allowed, strict=True) if not has]:
        rights = ", ".join(missing)
        raise WarehouseError(
            f"{role} may not {rights} on {place}; nothing was done. Run: GRANT {rights} ON {place.short_sql} TO {quote(role)}"
        )
    for schema in (staging_schema, SCHEMA):
        ((exists, may_create, may_make),) = session.run(
            f"SELECT n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'CREATE, USAGE'), FALSE), "
            f"has_database_privilege(current_database(), 'CREATE') FROM (SELECT 1) AS one "
            f"LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = {text_literal(schema)}"
        )
        if not (may_create if exists else may_make):
            verb = "write into" if exists else "make"
            raise WarehouseError(
                f"{role} may not {verb} the schema {schema}, where stages, backups and receipts go; nothing was done. "
                + (
                    f"Run: GRANT USAGE, CREATE ON SCHEMA {quote(schema)} TO {quote(role)}"
                    if exists
                    else f"Run: CREATE SCHEMA {quote(schema)} AUTHORIZATION {quote(role)}"
                )
            )
