"""Dead rows: what a publish leaves in a table, and who takes them away."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import text_literal

_FACTS = (
    "SELECT count(*), coalesce(sum(s.n_dead_tup), 0)::bigint, bool_and(coalesce(o.enabled::boolean, TRUE) "
    "AND current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean), "
    "sum(coalesce(o.threshold::float8, current_setting('autovacuum_vacuum_threshold')::float8) "
    "+ coalesce(o.share::float8, current_setting('autovacuum_vacuum_scale_factor')::float8) * greatest(c.reltuples, 0))::bigint "
    "FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid CROSS JOIN LATERAL "
    "(SELECT max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled') AS enabled, "
    "max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold') AS threshold, "
    "max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor') AS share "
    "FROM pg_options_to_table(c.reloptions)) AS o WHERE c.relkind = 'r' AND c.oid IN "
    "(SELECT {oid} UNION SELECT relid FROM pg_partition_tree({oid}))"
)
"""Of the tables that hold the rows: how many, their dead rows, whether autovacuum looks at all of them, and from when on."""


def upkeep(session: Session, place: Place, deleted: int) -> list[str]:
    """See :meth:`Warehouse.upkeep`."""
    if not deleted:
        return []
    ((tables, dead, is_automatic, limit),) = session.run(_FACTS.format(oid=f"{text_literal(place.sql)}::regclass"))
    by_hand = f"VACUUM (ANALYZE) {place.sql}"
    if not is_automatic:
        then = f"Autovacuum is off for it, so nothing takes them away until you run {by_hand}."
    elif tables != 1:
        then = (
            "Autovacuum looks at each of its partitions by itself, and never analyzes the table as a whole: run "
            f"ANALYZE {place.sql}, or {by_hand} where queries cannot wait."
        )
    elif max(deleted, dead) > limit:
        then = f"Autovacuum comes from {limit:,} on, so it is due; {by_hand} does it at once."
    else:
        then = f"Autovacuum comes from {limit:,} on, so it may not come for them: run {by_hand}."
    return [
        f"A publish leaves the rows that it deletes, up to {deleted:,}, in {place} as dead ones, whose place is used again once they "
        f"are vacuumed; the table's statistics count {dead:,} dead rows now. {then}"
    ]
