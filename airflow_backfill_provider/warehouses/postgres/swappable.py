"""Whether the children of a partitioned table can be exchanged, and what the tables that take their place will lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import ChildSwap, Target
from airflow_backfill_provider.warehouses.postgres.children import Child, Family
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, text_literal
from airflow_backfill_provider.windows import Partition

REREAD_PER_SECOND = 1_000_000
"""A cautious estimate of how many rows are held against the baseline in a second."""
LOCKED_PER_CHILD = timedelta(milliseconds=10)
"""A cautious estimate of what it takes to exchange one child that has a few indexes."""
LARGEST_DEFAULT = 32 * 1024 * 1024
"""Bytes of a DEFAULT partition that may be read while nobody else can read the table: some hundredths of a second."""
SHARE_OF_LOCKS = 0.5
"""How much of the room that the server has for everybody's locks one exchange may need."""
_NAMED_AT_MOST = 5


def plan_swap(session: Session, place: Place, target: Target, partitions: Sequence[Partition]) -> ChildSwap:
    """Which children a publish of the partitions exchanges, and what they lose by it; reads only.

    :raises SpecError: they cannot be exchanged; the message says what was found and what to do.
    """
    _, children = require_swappable(session, place, target, partitions)
    return ChildSwap(
        children=tuple(str(child.place) for child in children),
        losses=tuple(_losses(session, children)),
        reread_per_second=REREAD_PER_SECOND,
        locked_for=LOCKED_PER_CHILD * len(children),
    )


def require_swappable(
    session: Session, place: Place, target: Target, partitions: Sequence[Partition]
) -> tuple[Family, tuple[Child, ...]]:
    """The table's family, and those of its children that hold the partitions and nothing else.

    :raises SpecError: there are none such, or exchanging them would break something.
    """
    family = Family.read(session, place)
    children = family.covering(session, target, partitions)
    if found := list(_obstacles(session, family, children)):
        raise SpecError(
            f"publish.swap cannot exchange partitions of {place}: {'; '.join(found)}. Mend that, or set publish.swap: false."
        )
    return family, children


def _obstacles(session: Session, family: Family, children: Sequence[Child]) -> Iterator[str]:
    parent = f"{text_literal(family.place.sql)}::regclass"
    own = ", ".join(str(child.oid) for child in children)
    if family.is_child:
        yield "it is itself a partition of another table; name that one"
    yield from _default_obstacles(session, family)
    if keys := _names(
        session,
        "SELECT quote_ident(conname) FROM pg_catalog.pg_constraint "
        f"WHERE contype = 'f' AND (conrelid IN ({parent}, {own}) OR confrelid IN ({parent}, {own}))",
    ):
        yield (
            f"its foreign keys, or those that refer to it ({keys}), would be checked again, and the table that they name locked, "
            "while nobody can read"
        )
    if publications := _names(
        session,
        "SELECT DISTINCT quote_ident(p.pubname) FROM pg_catalog.pg_publication_tables AS p "
        "JOIN pg_catalog.pg_namespace AS n ON n.nspname = p.schemaname "
        "JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = p.tablename "
        f"WHERE c.oid IN ({parent}, {own})",
    ):
        yield f"its subscribers (publication {publications}) would not see the exchange"
    if readers := _names(session, _readers(own)):
        yield f"{readers} would go on reading the old rows, because they name a partition"
    if foreign := _names(
        session,
        f"SELECT c.oid::regclass::text FROM pg_catalog.pg_class AS c WHERE c.oid IN ({parent}, {own}) "
        "AND NOT pg_has_role(c.relowner, 'USAGE')",
    ):
        yield f"only the owner can exchange them, and this role is not that of {foreign}"
    for schema, role in session.run(
        "SELECT DISTINCT n.nspname, r.rolname FROM pg_catalog.pg_class AS c "
        "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "JOIN pg_catalog.pg_roles AS r ON r.oid = c.relowner OR r.rolname = current_user "
        f"WHERE c.oid IN ({own}) AND NOT has_schema_privilege(r.oid, n.oid, 'CREATE') ORDER BY 1, 2"
    ):
        yield f"{role} may not make tables there: GRANT CREATE ON SCHEMA {quote(schema)} TO {quote(role)}"
    if odd := _names(
        session,
        "SELECT c.oid::regclass::text FROM pg_catalog.pg_class AS c "
        f"WHERE c.oid IN ({own}) AND (c.relpersistence <> 'p' OR c.reloftype <> 0)",
    ):
        yield f"{odd} are unlogged, and would be empty after a crash when they are the backup, or are made of a type"
    if owned := _names(
        session,
        "SELECT objid::regclass::text FROM pg_catalog.pg_depend WHERE classid = 'pg_class'::regclass "
        "AND refclassid = 'pg_class'::regclass AND deptype IN ('a', 'i') AND objid IN (SELECT oid FROM pg_catalog.pg_class WHERE relkind = 'S') "
        f"AND refobjid IN ({own})",
    ):
        yield f"the sequences {owned} belong to a single partition"
    ((needed, there),) = session.run(
        # Of each child and what takes its place: the table, its TOAST table with an index, and its own indexes.
        "SELECT (SELECT 2 * (count(*) + sum(2 + (SELECT count(*) FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid))) "
        f"FROM pg_catalog.pg_class AS c WHERE c.oid IN ({own})), "
        "current_setting('max_locks_per_transaction')::int * "
        "(current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)"
    )
    if needed > there * SHARE_OF_LOCKS:
        yield (
            f"{len(children)} partitions need {needed:,} locks in one commit, and the server keeps {there:,} for everybody; "
            "plan fewer, or raise max_locks_per_transaction"
        )


def _default_obstacles(session: Session, family: Family) -> Iterator[str]:
    default = family.default
    if default is None:
        return
    ((size,),) = session.run(f"SELECT pg_table_size({default.oid})")
    if default.kind != "r":
        yield f"its DEFAULT partition {default.place} is no plain table, and its rows would be read while nobody can read the table"
    elif size > LARGEST_DEFAULT:
        yield (
            f"its DEFAULT partition {default.place} has {size / 1024 / 1024:,.0f} MiB, which would be read while nobody can read "
            "the table; move its rows into partitions of their own"
        )


def _readers(own: str) -> str:
    """Selects what depends on one of the tables beside what is theirs: views, functions, columns of their row type."""
    return (
        "SELECT DISTINCT CASE d.classid WHEN 'pg_rewrite'::regclass "
        "THEN (SELECT r.ev_class::regclass::text FROM pg_catalog.pg_rewrite AS r WHERE r.oid = d.objid) "
        "ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END FROM pg_catalog.pg_depend AS d "
        "WHERE d.deptype = 'n' AND (d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass) "
        f"OR d.classid = 'pg_class'::regclass AND d.objid NOT IN ({own}) "
        f"OR d.classid = 'pg_policy'::regclass AND d.objid NOT IN (SELECT oid FROM pg_catalog.pg_policy WHERE polrelid IN ({own}))) "
        f"AND (d.refclassid = 'pg_class'::regclass AND d.refobjid IN ({own}) OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN ("
        "SELECT t.oid FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_class AS c ON t.oid = c.reltype OR t.typelem = c.reltype "
        f"AND c.reltype <> 0 WHERE c.oid IN ({own}))) "
        "AND NOT (d.classid = 'pg_rewrite'::regclass AND EXISTS (SELECT FROM pg_catalog.pg_rewrite AS r "
        f"WHERE r.oid = d.objid AND r.ev_class IN ({own})))"
    )


def _losses(session: Session, children: Sequence[Child]) -> Iterator[str]:
    own = ", ".join(str(child.oid) for child in children)
    lost = {
        "Triggers of single partitions": "SELECT quote_ident(tgname) || ' of ' || tgrelid::regclass::text FROM pg_catalog.pg_trigger "
        f"WHERE tgrelid IN ({own}) AND NOT tgisinternal AND tgparentid = 0",
        "Rules of single partitions": "SELECT quote_ident(rulename) || ' of ' || ev_class::regclass::text FROM pg_catalog.pg_rewrite "
        f"WHERE ev_class IN ({own})",
        "Security labels of single partitions": "SELECT DISTINCT objoid::regclass::text FROM pg_catalog.pg_seclabel "
        f"WHERE classoid = 'pg_class'::regclass AND objoid IN ({own})",
    }
    for what, query in lost.items():
        if found := _names(session, query):
            yield f"{what} will be lost: {found}."
    if granted := _names(
        session,
        "SELECT DISTINCT quote_ident(pg_get_userbyid(grantor)) FROM pg_catalog.pg_class AS c, aclexplode(c.relacl) "
        f"WHERE c.oid IN ({own}) AND grantor <> c.relowner",
    ):
        yield f"Rights on partitions that {granted} granted will be the owner's grants."


def _names(session: Session, sql: str) -> str:
    found = sorted(name for (name,) in session.run(sql))
    more = len(found) - _NAMED_AT_MOST
    return ", ".join(found[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
