"""Giving a table what another one has beside its rows, as far as CREATE TABLE … LIKE does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_backfill_provider.warehouses.postgres.anatomy import BOUND
from airflow_backfill_provider.warehouses.postgres.children import Child
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.sql import quote, text_literal

_GRANTEE = "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END"
_GRANTABLE = "CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END"
_COMMANDS = "CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END"


def create_like(session: Session, child: Child, table: str) -> int:
    """Make an empty table that takes only rows that the child may have; returns its oid.

    Columns, defaults, constraints and indexes are the child's. What identity a column has, ATTACH gives it.
    """
    ((method, space),) = session.run(
        "SELECT quote_ident(m.amname), quote_ident(coalesce(t.spcname, (SELECT s.spcname FROM pg_catalog.pg_database AS d "
        "JOIN pg_catalog.pg_tablespace AS s ON s.oid = d.dattablespace WHERE d.datname = current_database()))) "
        "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_am AS m ON m.oid = c.relam "
        f"LEFT JOIN pg_catalog.pg_tablespace AS t ON t.oid = c.reltablespace WHERE c.oid = {child.oid}"
    )
    session.run("SET LOCAL default_tablespace = ''")
    session.run(
        f"CREATE TABLE {table} (LIKE {child.place.sql} INCLUDING ALL EXCLUDING IDENTITY, "
        f"CONSTRAINT {quote(BOUND)} CHECK ({child.holds})) USING {method} TABLESPACE {space}"
    )
    ((oid,),) = session.run(f"SELECT {text_literal(table)}::regclass::oid::bigint")
    return int(oid)


def dress(session: Session, child: Child, oid: int, table: str) -> None:
    """Give the table the child's grants, comment, policies, storage parameters, statistics targets and replica identity."""
    for query in _queries(child.oid, oid, text_literal(table)):
        for (statement,) in session.run(query):
            session.run(statement)


@dataclass(frozen=True)
class Names:
    """What belongs to some tables by a name of its own, by the table's oid, in the order in which it was made."""

    indexes: Mapping[int, list[str]]
    statistics: Mapping[int, list[tuple[str, str]]]
    """Schema and name of extended statistics."""
    owners: Mapping[int, str]

    @classmethod
    def read(cls, session: Session, oids: Sequence[int]) -> Names:
        """Of these tables."""
        wanted = ", ".join(map(str, oids))
        indexes: dict[int, list[str]] = {oid: [] for oid in oids}
        for oid, name in session.run(
            "SELECT i.indrelid, c.relname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
            f"WHERE i.indrelid IN ({wanted}) ORDER BY c.oid"
        ):
            indexes[oid].append(name)
        statistics: dict[int, list[tuple[str, str]]] = {oid: [] for oid in oids}
        for oid, schema, name in session.run(
            "SELECT s.stxrelid, n.nspname, s.stxname FROM pg_catalog.pg_statistic_ext AS s "
            f"JOIN pg_catalog.pg_namespace AS n ON n.oid = s.stxnamespace WHERE s.stxrelid IN ({wanted}) ORDER BY s.oid"
        ):
            statistics[oid].append((schema, name))
        roles = session.run(f"SELECT oid, pg_get_userbyid(relowner) FROM pg_catalog.pg_class WHERE oid IN ({wanted})")
        return cls(indexes, statistics, dict(roles))


def _queries(old: int, new: int, table: str) -> Iterator[str]:
    """Each selects statements that dress the new table; ``table`` is its SQL name as a literal."""
    of_old = f"FROM pg_catalog.pg_class AS c WHERE c.oid = {old}"
    # What the default privileges of its schema gave away, before the child's own grants.
    yield (
        f"SELECT format('REVOKE ALL ON %s FROM %s', {table}, {_GRANTEE}) "
        f"FROM pg_catalog.pg_class AS c, aclexplode(c.relacl) WHERE c.oid = {new} AND grantee <> c.relowner"
    )
    yield (
        f"SELECT format('GRANT %s ON %s TO %s', privilege_type, {table}, {_GRANTEE}) || {_GRANTABLE} "
        f"FROM pg_catalog.pg_class AS c, aclexplode(c.relacl) WHERE c.oid = {old} AND grantee <> c.relowner"
    )
    yield (
        f"SELECT format('GRANT %s (%I) ON %s TO %s', privilege_type, a.attname, {table}, {_GRANTEE}) || {_GRANTABLE} "
        "FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid, aclexplode(a.attacl) "
        f"WHERE a.attrelid = {old} AND grantee <> c.relowner"
    )
    yield (
        f"SELECT format('COMMENT ON TABLE %s IS %L', {table}, obj_description(c.oid, 'pg_class')) {of_old} "
        "AND obj_description(c.oid, 'pg_class') IS NOT NULL"
    )
    yield (
        f"SELECT format('ALTER TABLE %s SET (%s%s = %L)', {table}, prefix, split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)) "
        "FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_class AS t ON t.oid = c.reltoastrelid, "
        "LATERAL (SELECT '' AS prefix, unnest(c.reloptions) AS o UNION ALL SELECT 'toast.', unnest(t.reloptions)) AS s "
        f"WHERE c.oid = {old}"
    )
    yield (
        f"SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', {table}, a.attname, a.attstattarget) "
        f"FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = {old} AND a.attnum > 0 AND a.attstattarget >= 0 AND NOT a.attisdropped"
    )
    yield (
        f"SELECT format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', {table}, a.attname, array_to_string(a.attoptions, ', ')) "
        f"FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = {old} AND a.attoptions IS NOT NULL AND NOT a.attisdropped"
    )
    yield (
        f"SELECT format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', p.polname, {table}, "
        f"CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END, {_COMMANDS}, "
        "(SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ') FROM unnest(p.polroles) AS r)) "
        "|| coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '') "
        "|| coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', '') "
        f"FROM pg_catalog.pg_policy AS p WHERE p.polrelid = {old}"
    )
    yield (
        f"SELECT format('COMMENT ON POLICY %I ON %s IS %L', p.polname, {table}, obj_description(p.oid, 'pg_policy')) "
        f"FROM pg_catalog.pg_policy AS p WHERE p.polrelid = {old} AND obj_description(p.oid, 'pg_policy') IS NOT NULL"
    )
    yield f"SELECT format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', {table}) {of_old} AND c.relrowsecurity"
    yield f"SELECT format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', {table}) {of_old} AND c.relforcerowsecurity"
    yield (
        f"SELECT format('ALTER TABLE %s REPLICA IDENTITY %s', {table}, CASE c.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END) "
        f"{of_old} AND c.relreplident IN ('f', 'n')"
    )
    ranked = (
        "SELECT i.indexrelid, i.indrelid, i.indisreplident, i.indisclustered, "
        "row_number() OVER (PARTITION BY i.indrelid ORDER BY i.indexrelid) AS n FROM pg_catalog.pg_index AS i"
    )
    pairs = (
        f"FROM ({ranked}) AS o JOIN ({ranked}) AS i ON i.n = o.n AND i.indrelid = {new} "
        f"JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid WHERE o.indrelid = {old}"
    )
    yield (
        f"SELECT format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', {table}, c.relname) {pairs} AND o.indisreplident "
        f"AND EXISTS (SELECT FROM pg_catalog.pg_class AS t WHERE t.oid = {old} AND t.relreplident = 'i')"
    )
    yield f"SELECT format('ALTER TABLE %s CLUSTER ON %I', {table}, c.relname) {pairs} AND o.indisclustered"
