"""What the role of the connection must be allowed to do; asked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.postgres.storage import LIST
from airflow_backfill_provider.warehouses.relational.receipts import SCHEMA, TABLE
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, quote_path, text_literal

_ON_THE_TARGET = ("SELECT", "INSERT", "UPDATE", "DELETE")
_ON_THE_LIST = ("SELECT", "INSERT", "DELETE")
_ON_RECEIPTS = ("SELECT", "INSERT")


def preflight(session: Session, place: Place, staging_schema: str) -> None:
    """Refuse a server or a role that cannot publish into the table.

    :raises WarehouseError: naming what is missing, and the statement that mends it.
    """
    ((standby, role),) = session.run("SELECT pg_is_in_recovery(), current_user")
    if standby:
        raise WarehouseError(
            "The connection leads to a hot standby, which takes no writes; nothing was done. Connect to the primary."
        )
    _on_table(session, role, quote_path(place.schema, place.name), _ON_THE_TARGET)
    _on_own(session, role, staging_schema, LIST, _ON_THE_LIST, always_creates=True)
    _on_own(session, role, SCHEMA, TABLE, _ON_RECEIPTS, always_creates=False)


def require_owner(session: Session, place: Place) -> None:
    """:raises SpecError: the role may not add a column to the table, which only its owner may."""
    ((owner, is_owner, role),) = session.run(
        "SELECT pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), current_user FROM pg_catalog.pg_class AS c "
        f"WHERE c.oid = {text_literal(place.sql)}::regclass"
    )
    if not is_owner:
        raise SpecError(
            f"schema.mode evolve adds columns to {place}, which only its owner {owner} may, and the connection's role is {role}. "
            f"Nothing was done. Run: GRANT {quote(owner)} TO {quote(role)}; or let {owner} add the columns, and leave evolve out."
        )


def _on_own(
    session: Session, role: str, schema: str, table: str, rights: Sequence[str], *, always_creates: bool
) -> None:
    """What is needed of a schema of ours and of the table in it; either may have been made by another role."""
    ((exists, has_table, may_use, may_create, may_make),) = session.run(
        "SELECT n.oid IS NOT NULL, c.oid IS NOT NULL, has_schema_privilege(n.oid, 'USAGE'), "
        "has_schema_privilege(n.oid, 'CREATE'), has_database_privilege(current_database(), 'CREATE') "
        f"FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = {text_literal(schema)} "
        f"LEFT JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = {text_literal(table)}"
    )
    if not exists:
        if not may_make:
            raise _missing(
                role, f"make the schema {schema}", f"CREATE SCHEMA {quote(schema)} AUTHORIZATION {quote(role)}"
            )
        return
    creates = always_creates or not has_table
    if not may_use or (creates and not may_create):
        needed = "USAGE, CREATE" if creates else "USAGE"
        raise _missing(
            role, f"write into the schema {schema}", f"GRANT {needed} ON SCHEMA {quote(schema)} TO {quote(role)}"
        )
    if has_table:
        _on_table(session, role, quote_path(schema, table), rights)


def _on_table(session: Session, role: str, table: str, needed: Sequence[str]) -> None:
    wanted = ", ".join(f"has_table_privilege({text_literal(table)}, {text_literal(right)})" for right in needed)
    (allowed,) = session.run(f"SELECT {wanted}")
    if missing := [right for right, has in zip(needed, allowed, strict=True) if not has]:
        rights = ", ".join(missing)
        raise _missing(role, f"{rights} on {table}", f"GRANT {rights} ON {table} TO {quote(role)}")


def _missing(role: str, what: str, mend: str) -> WarehouseError:
    return WarehouseError(f"{role} may not {what}; nothing was done. Run: {mend}")
