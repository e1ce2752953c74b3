"""What a table is beside its rows and its name: what a table that takes its place must be too."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.warehouses.postgres.session import Session

BOUND = "safe_backfill_bound"
"""The CHECK of a table that waits to be attached: its rows fit, so ATTACH need not read them."""

Feature = tuple[str, str]
"""What it is, and how it is."""

_WORD = "CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END, privilege_type, is_grantable"
_INDEXES = (
    "SELECT i.*, row_number() OVER (PARTITION BY i.indrelid ORDER BY i.indexrelid) AS n, c.relam, c.reloptions, c.reltablespace "
    "FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid"
)
_FEATURES = (
    # Of the table.
    "SELECT c.oid, 'storage parameters', concat_ws(' ', c.reloptions, t.reloptions) FROM pg_catalog.pg_class AS c "
    "LEFT JOIN pg_catalog.pg_class AS t ON t.oid = c.reltoastrelid",
    "SELECT c.oid, 'access method, tablespace, persistence', concat_ws(' ', c.relam, c.reltablespace, c.relpersistence) "
    "FROM pg_catalog.pg_class AS c",
    "SELECT c.oid, 'row-level security', concat_ws(' ', c.relrowsecurity, c.relforcerowsecurity) FROM pg_catalog.pg_class AS c",
    "SELECT c.oid, 'replica identity', concat_ws(' ', c.relreplident, CASE c.relreplident WHEN 'i' THEN (SELECT x.n "
    f"FROM ({_INDEXES}) AS x WHERE x.indrelid = c.oid AND x.indisreplident) END) FROM pg_catalog.pg_class AS c",
    "SELECT c.oid, 'comment', obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class AS c",
    f"SELECT c.oid, 'grant', concat_ws(' ', {_WORD}) FROM pg_catalog.pg_class AS c, aclexplode(c.relacl) "
    "WHERE grantee <> c.relowner",
    # Of its columns; what numbers them comes from the table that they are attached to.
    "SELECT a.attrelid, 'column ' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attcollation, "
    "a.attnotnull, a.attgenerated, a.attstorage, a.attcompression, nullif(a.attstattarget, -1), a.attoptions, "
    "pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum)) FROM pg_catalog.pg_attribute AS a "
    "LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
    "WHERE a.attnum > 0 AND NOT a.attisdropped",
    f"SELECT a.attrelid, 'grant on column ' || a.attname, concat_ws(' ', {_WORD}) FROM pg_catalog.pg_attribute AS a "
    "JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid, aclexplode(a.attacl) WHERE grantee <> c.relowner",
    # Its constraints and indexes; those get the names of the others when they take their place.
    "SELECT k.conrelid, 'check ' || k.conname, concat_ws(' ', pg_get_expr(k.conbin, k.conrelid), k.connoinherit, "
    "obj_description(k.oid, 'pg_constraint')) FROM pg_catalog.pg_constraint AS k "
    f"WHERE k.contype = 'c' AND k.conname <> '{BOUND}'",
    "SELECT k.conrelid, 'foreign key ' || k.conname, pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint AS k "
    "WHERE k.contype = 'f'",
    "SELECT i.indrelid, 'index ' || i.n, concat_ws(' ', i.relam, i.reltablespace, i.indisunique, i.indnullsnotdistinct, "
    "i.indisclustered, i.indisvalid, i.indnkeyatts, i.indclass, i.indcollation, i.indoption, "
    "ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, FALSE) FROM generate_series(1, i.indnatts) AS k), "
    "pg_get_expr(i.indpred, i.indrelid), i.reloptions, k.contype, k.condeferrable, k.condeferred, k.conexclop, "
    "obj_description(i.indexrelid, 'pg_class'), obj_description(k.oid, 'pg_constraint'), "
    "ARRAY(SELECT nullif(a.attstattarget, -1) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = i.indexrelid ORDER BY a.attnum)) "
    f"FROM ({_INDEXES}) AS i LEFT JOIN pg_catalog.pg_constraint AS k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid",
    "SELECT s.stxrelid, 'extended statistics', concat_ws(' ', s.stxkind, nullif(s.stxstattarget, -1), "
    "pg_get_statisticsobjdef_columns(s.oid), obj_description(s.oid, 'pg_statistic_ext')) FROM pg_catalog.pg_statistic_ext AS s",
    "SELECT p.polrelid, 'policy ' || p.polname, concat_ws(' ', p.polpermissive, p.polcmd, "
    "ARRAY(SELECT CASE r WHEN 0 THEN 'public' ELSE pg_get_userbyid(r) END FROM unnest(p.polroles) AS r ORDER BY 1), "
    "pg_get_expr(p.polqual, p.polrelid), '/', pg_get_expr(p.polwithcheck, p.polrelid), obj_description(p.oid, 'pg_policy')) "
    "FROM pg_catalog.pg_policy AS p",
)


def differences(session: Session, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """What tells the two tables of any pair apart, by name; nothing where one can take the place of the other."""
    found = _features(session, [oid for pair in pairs for oid in pair])
    return sorted({what for one, other in pairs for what, _ in found[one] ^ found[other]})


def _features(session: Session, oids: Sequence[int]) -> dict[int, set[Feature]]:
    wanted = ", ".join(map(str, oids))
    every = " UNION ALL ".join(_FEATURES)
    features: dict[int, set[Feature]] = {oid: set() for oid in oids}
    for oid, what, how in session.run(f"SELECT * FROM ({every}) AS f (oid, what, how) WHERE oid IN ({wanted})"):
        features[oid].add((what, how or ""))
    return features
