"""Who is sent the changes of a table by logical replication, and what a publish is to them."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import text_literal

_PUBLICATIONS = (
    "SELECT quote_ident(p.pubname), p.pubinsert, p.pubdelete FROM pg_catalog.pg_publication AS p WHERE EXISTS "
    "(SELECT FROM pg_catalog.pg_publication_tables AS t JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.schemaname "
    "JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.tablename "
    "WHERE t.pubname = p.pubname AND c.oid IN "
    "(SELECT {oid} UNION SELECT relid FROM pg_partition_tree({oid}) UNION SELECT relid FROM pg_partition_ancestors({oid}))) "
    "ORDER BY 1"
)
"""Publications that send the table, or a part of it, or what it is a part of."""
_SLOTS = (
    "SELECT slot_name, plugin, active FROM pg_catalog.pg_replication_slots WHERE slot_type = 'logical' "
    "AND database = current_database() ORDER BY 1"
)
_OF_PUBLICATIONS = "pgoutput"
"""The plugin that sends what publications hold; any other sends every table."""


def reader_cautions(session: Session, place: Place) -> Iterator[str]:
    """See :meth:`Warehouse.reader_cautions`."""
    publications = session.run(_PUBLICATIONS.format(oid=f"{text_literal(place.sql)}::regclass"))
    slots = session.run(_SLOTS)
    if names := ", ".join(name for name, *_ in publications):
        yield (
            f"Logical replication sends {place} (publication {names}). To a subscriber the publish is one transaction that deletes "
            "every row of the range and inserts those that land, also where a row stays the same; publish.mechanism merge sends "
            "only the rows that differ. A rollback is sent so too."
        )
    for name, inserts, deletes in publications:
        if not (inserts and deletes):
            lost = (
                "keep the old rows beside the new ones"
                if inserts
                else "lose the old rows or keep them, and get no new ones"
            )
            yield (
                f"Publication {name} does not send {'deletes' if inserts else 'inserts'}, so its subscribers would {lost}: copy the "
                "range to them by hand, or alter its publish parameter before."
            )
    if readers := [one for one in slots if publications or one[1] != _OF_PUBLICATIONS]:
        named = ", ".join(
            f"{slot} ({plugin}, {'read now' if active else 'not read now'})" for slot, plugin, active in readers
        )
        yield (
            f"Replication slots read the log of this database: {named}. The publish is in it, and stays on the server's disk "
            "until each of them has read it."
        )
