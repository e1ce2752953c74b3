"""Where stages, samples, backups and shadows are: a table each in a schema of their own, listed in a table of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from uuid import uuid4

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses.base import StorageItem
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, quote_path, text_literal

LIST = "stored_tables"
"""The table that lists the stages and backups, in their schema."""
_LONGEST_NAME = 63
_WORD = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_LOCATION = re.compile(r"\A(stage|sample|backup|shadow|spare)_[A-Za-z0-9_-]{1,40}_[0-9a-f]{12}\Z")
_RECEIPTS = "_r"
_SCHEMA_LOCK = 7_245_183_551
"""Two tasks that make the schema at once would meet in the catalog; any number that nothing else locks."""


class Storage:
    """The staging schema, which no role but its owner may enter unless somebody grants it.

    A *location* is the name of a table in it, at most 63 bytes long; its comment and the list lead back to the backfill.
    """

    def __init__(self, schema: str) -> None:
        if (size := len(schema.encode())) > _LONGEST_NAME:
            raise SpecError(
                f"The staging schema {schema!r} has {size} bytes, and PostgreSQL cuts names off after {_LONGEST_NAME}."
            )
        self.schema = schema
        self._list = quote_path(schema, LIST)

    def prepare(self, session: Session) -> None:
        """Make the schema and its list; silent when they exist.

        :raises psycopg.errors.InsufficientPrivilege: the role may not make a schema, or not use this one.
        """
        if self._exists(session):
            return
        with session.transaction():
            self.serialize(session)
            if self._exists(session):
                return
            ((schemas,),) = session.run(DIALECT.count_schemas("", self.schema))
            if not schemas:
                session.run(f"CREATE SCHEMA {quote(self.schema)}")
            session.run(
                f"CREATE TABLE {self._list} (location VARCHAR PRIMARY KEY, kind VARCHAR NOT NULL, "
                "backfill_id VARCHAR NOT NULL, label VARCHAR NOT NULL, partition_keys VARCHAR[], "
                "created_at TIMESTAMP NOT NULL)"
            )

    def serialize(self, session: Session) -> None:
        """Let no other task make schemas or tables of ours until the transaction ends."""
        session.run(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")

    def create(
        self,
        session: Session,
        kind: str,
        backfill_id: str,
        label: str,
        place: Place,
        columns: Sequence[str],
        keys: Sequence[str] = (),
        location: str = "",
    ) -> str:
        """Make an empty table with these columns of another one and list it, for a transaction of the caller.

        They have its types and collations, by which equal values hash equally, and none of its constraints.

        :param location: where; by default a place of its own.
        :returns: its location.
        :raises WarehouseError: the id or the label holds anything but letters, digits, ``-`` and ``_``.
        """
        location = location or _new_location(kind, backfill_id, label)
        # What is lost in a crash of the server is staged again; a backup must outlive it.
        unlogged = "UNLOGGED " if kind == "stage" else ""
        session.run(
            f"CREATE {unlogged}TABLE {self.sql(location)} AS SELECT {', '.join(columns)} FROM {place.sql} WITH NO DATA"
        )
        self._list_one(session, location, kind, backfill_id, label, keys)
        return location

    def create_from(self, session: Session, kind: str, backfill_id: str, label: str, select: str) -> str:
        """Make a table of the rows of a SELECT and list it, as :meth:`create` does."""
        location = _new_location(kind, backfill_id, label)
        session.run(f"CREATE UNLOGGED TABLE {self.sql(location)} AS {select}")
        self._list_one(session, location, kind, backfill_id, label, ())
        return location

    def create_like(self, session: Session, kind: str, backfill_id: str, label: str, place: Place) -> str:
        """Make an empty table with the columns, constraints and indexes of another one and list it, as :meth:`create` does."""
        location = _new_location(kind, backfill_id, label)
        session.run(f"CREATE UNLOGGED TABLE {self.sql(location)} (LIKE {place.sql} INCLUDING ALL)")
        self._list_one(session, location, kind, backfill_id, label, ())
        return location

    def receipts_of(self, location: str) -> tuple[str, str]:
        """Schema and name of the table that holds the receipts of a shadow."""
        return self.schema, f"{location}{_RECEIPTS}"

    def _list_one(
        self, session: Session, location: str, kind: str, backfill_id: str, label: str, keys: Sequence[str]
    ) -> None:
        session.run(
            f"COMMENT ON TABLE {self.sql(location)} IS {text_literal(f'{kind} {label} of backfill {backfill_id}')}"
        )
        values = ", ".join(text_literal(value) for value in (location, kind, backfill_id, label))
        covered = f"ARRAY[{', '.join(map(text_literal, keys))}]::VARCHAR[]"
        session.run(f"INSERT INTO {self._list} VALUES ({values}, {covered}, statement_timestamp())")

    def serialize_on(self, session: Session, location: str) -> None:
        """Let no other task work on the location until the transaction ends."""
        session.run(f"SELECT pg_advisory_xact_lock(hashtextextended({text_literal(location)}, {_SCHEMA_LOCK}))")

    def kind(self, session: Session, location: str) -> str | None:
        """What kind of rows the location holds; None when there is none."""
        found = session.run(f"SELECT kind FROM {self._list} WHERE location = {text_literal(location)}")
        return str(found[0][0]) if found else None

    def turn(self, session: Session, location: str, was: str, becomes: str) -> bool:
        """Make the location one of another kind, and keep it from being dropped until the transaction ends.

        :returns: whether there is such a location of the kind that it was.
        """
        # Not by UPDATE: a role that may list stages may not do that.
        ((turned,),) = session.run(
            f"WITH gone AS (DELETE FROM {self._list} WHERE location = {text_literal(location)} AND kind = {text_literal(was)} "
            f"RETURNING *) INSERT INTO {self._list} SELECT location, {text_literal(becomes)}, backfill_id, label, partition_keys, "
            "created_at FROM gone"
        )
        return bool(turned)

    def oid(self, location: str) -> str:
        """SQL of the oid of the location's table; NULL when there is none."""
        return f"to_regclass({text_literal(self.sql(location))})"

    def sql(self, location: str) -> str:
        """The table of the location, as SQL."""
        return quote_path(self.schema, location)

    def existing(self, session: Session, location: str) -> str:
        """The table of the location, as SQL.

        :raises WarehouseError: it is gone, or was never one of ours.
        """
        _refuse_foreign(location)
        ((tables,),) = session.run(
            f"SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass({text_literal(self.sql(location))})"
        )
        if not tables:
            raise WarehouseError(f"{location} is gone from the schema {self.schema}: it was dropped. Stage again.")
        return self.sql(location)

    def covered(self, session: Session, location: str) -> set[str]:
        """The keys that a backup covers."""
        return {
            key
            for (keys,) in session.run(
                f"SELECT partition_keys FROM {self._list} WHERE location = {text_literal(location)}"
            )
            for key in keys
        }

    def items(self, session: Session) -> tuple[StorageItem, ...]:
        """Every stage, sample, backup and set of spare tables there is, by location."""
        if not self._exists(session):
            return ()
        return tuple(
            StorageItem(backfill_id, kind, location, size, at.replace(tzinfo=UTC))
            for backfill_id, kind, location, size, at in session.run(
                "SELECT i.backfill_id, i.kind, i.location, (pg_total_relation_size(c.oid) + coalesce((SELECT "
                "sum(pg_total_relation_size(h.inhrelid)) FROM pg_catalog.pg_inherits AS h WHERE h.inhparent = c.oid), 0))::bigint, "
                f"i.created_at FROM {self._list} AS i "
                "JOIN pg_catalog.pg_class AS c ON c.relname = i.location JOIN pg_catalog.pg_namespace AS n "
                f"ON n.oid = c.relnamespace AND n.nspname = {text_literal(self.schema)} ORDER BY i.location"
            )
        )

    def drop(self, session: Session, location: str) -> None:
        """Remove a stage, a backup or spare tables; silent when it is gone.

        :raises WarehouseError: it is not one of ours.
        """
        _refuse_foreign(location)
        if self._exists(session):
            with session.transaction():
                heirs = session.run(
                    f"SELECT inhrelid::regclass::text FROM pg_catalog.pg_inherits WHERE inhparent = {self.oid(location)}"
                )
                gone = [self.sql(location), quote_path(*self.receipts_of(location)), *(name for (name,) in heirs)]
                session.run(f"DROP TABLE IF EXISTS {', '.join(gone)}")
                session.run(f"DELETE FROM {self._list} WHERE location = {text_literal(location)}")

    def analyze(self, session: Session, location: str) -> None:
        """Tell the planner what is in it: without that, it takes a million rows for a few hundred and loops over them."""
        with session.transaction():
            session.run(f"ANALYZE {self.sql(location)}")

    def refuse_wider(self, session: Session, location: str, place: Place) -> None:
        """Refuse a table that somebody may read who may not read the published one.

        :raises WarehouseError: naming the roles.
        """
        may_read = "has_schema_privilege(r.oid, {schema}, 'USAGE') AND has_table_privilege(r.oid, {table}, 'SELECT')"
        # A stage has no policies, so where the table hides rows only those may read it from whom it hides none.
        sees_all = (
            "(NOT c.relrowsecurity OR r.rolsuper OR r.rolbypassrls "
            "OR NOT c.relforcerowsecurity AND pg_has_role(r.oid, c.relowner, 'USAGE'))"
        )
        sides = [
            may_read.format(schema=text_literal(schema), table=text_literal(quote_path(schema, name)))
            for schema, name in ((self.schema, location), (place.schema, place.name))
        ]
        wider = session.run(
            "SELECT r.rolname FROM pg_catalog.pg_roles AS r, pg_catalog.pg_class AS c "
            f"WHERE c.oid = {text_literal(place.sql)}::regclass AND r.rolname !~ '^pg_' AND {sides[0]} AND NOT ({sides[1]} AND {sees_all}) "
            "ORDER BY 1 LIMIT 10"
        )
        if wider:
            raise WarehouseError(
                f"{', '.join(name for (name,) in wider)} may read what is staged in {self.schema} and may not read {place}. "
                "Nothing was staged. Revoke USAGE on that schema from them, and look at its default privileges."
            )

    def _exists(self, session: Session) -> bool:
        # Not with to_regclass, which answers from a cache that another session's commit has not reached yet.
        ((tables,),) = session.run(DIALECT.count_tables("", self.schema, LIST))
        return bool(tables)


def _new_location(kind: str, backfill_id: str, label: str) -> str:
    """A name that no table has had before.

    :raises WarehouseError: the id or the label holds anything but letters, digits, ``-`` and ``_``.
    """
    for word in (backfill_id, label):
        if not _WORD.match(word):
            raise WarehouseError(
                f"{word!r} cannot name a table of a backfill: use at most 64 letters, digits, '-' and '_'."
            )
    return f"{kind}_{backfill_id[:40]}_{uuid4().hex[:12]}"


def _refuse_foreign(location: str) -> None:
    if not _LOCATION.match(location):
        raise WarehouseError(
            f"{location!r} is not the location of a stage, a sample, a backup, a shadow or spare tables."
        )
