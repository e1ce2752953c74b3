"""The ledger's tables, on a MetaData of their own so that they never mix with Airflow's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
    false,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from airflow_backfill_provider.ledger.records import Decision, Gate
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState

PREFIX = "safe_backfill_"
VERSION_TABLE = f"{PREFIX}alembic_version"


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: aware going in, aware UTC coming out, on engines that forget the zone as well."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(f"The ledger stores instants; {value!r} has no time zone.")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StateText(TypeDecorator[StrEnum]):
    """A state by its value; plain text in the database, so that a new state needs no migration."""

    impl = String(32)
    cache_ok = True

    def __init__(self, states: type[StrEnum]) -> None:
        super().__init__()
        self.states = states

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:
        return None if value is None else self.states(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.states(value)


class JsonText(TypeDecorator[dict[str, Any]]):
    """A JSON object as text, the same on every engine; refuses what JSON cannot hold, NaN included."""

    impl = Text()
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:
        return None if value is None else json.loads(value)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        str: Text(),
        datetime: UtcDateTime(),
        dict[str, Any]: JsonText(),
        BackfillState: StateText(BackfillState),
        PartitionState: StateText(PartitionState),
        Gate: StateText(Gate),
        Decision: StateText(Decision),
    }


class BackfillRow(Base):
    __tablename__ = f"{PREFIX}backfill"

    backfill_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    target: Mapped[str]
    tenant: Mapped[str]
    dag_id: Mapped[str]
    run_id: Mapped[str]
    conn_id: Mapped[str]
    mode: Mapped[str]
    state: Mapped[BackfillState]
    reason: Mapped[str]
    requested_by: Mapped[str]
    revision: Mapped[int]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    backup_location: Mapped[str | None]
    backup_fingerprints: Mapped[dict[str, Any] | None]
    installation: Mapped[str] = mapped_column(server_default="")
    run_started_at: Mapped[datetime | None]
    clear_number: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (Index(None, "name", "created_at"), Index(None, "created_at"))


class PlanRow(Base):
    __tablename__ = f"{PREFIX}plan"

    backfill_id: Mapped[str] = mapped_column(ForeignKey(BackfillRow.backfill_id), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    plan_hash: Mapped[str]
    intent_hash: Mapped[str]
    spec_hash: Mapped[str]
    document: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    requested_by: Mapped[str] = mapped_column(server_default="")


class PartitionRow(Base):
    __tablename__ = f"{PREFIX}partition"

    backfill_id: Mapped[str] = mapped_column(ForeignKey(BackfillRow.backfill_id), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    window_start: Mapped[datetime | None]
    window_end: Mapped[datetime | None]
    value: Mapped[str | None]
    state: Mapped[PartitionState]
    attempt: Mapped[int]
    owner: Mapped[str | None]
    location: Mapped[str | None]
    rows: Mapped[int | None] = mapped_column(BigInteger)
    digest: Mapped[str | None]
    method: Mapped[str | None]
    staged_intent: Mapped[str | None]
    seconds: Mapped[float | None] = mapped_column(Double)
    reason: Mapped[str]
    updated_at: Mapped[datetime]


class EvidenceRow(Base):
    """One outcome of one check; ``key`` is NULL when it is about the whole range."""

    __tablename__ = f"{PREFIX}evidence"

    id: Mapped[int] = mapped_column(primary_key=True)
    backfill_id: Mapped[str] = mapped_column(ForeignKey(BackfillRow.backfill_id))
    key: Mapped[str | None]
    revision: Mapped[int]
    body: Mapped[dict[str, Any]]
    recorded_by: Mapped[str]
    recorded_at: Mapped[datetime]
    superseded_at: Mapped[datetime | None]

    __table_args__ = (
        ForeignKeyConstraint(["backfill_id", "key"], [PartitionRow.backfill_id, PartitionRow.key]),
        Index(None, "backfill_id", "key"),
    )


class EventRow(Base):
    __tablename__ = f"{PREFIX}event"

    sequence: Mapped[int] = mapped_column(primary_key=True)
    backfill_id: Mapped[str] = mapped_column(ForeignKey(BackfillRow.backfill_id))
    at: Mapped[datetime]
    action: Mapped[str]
    actor: Mapped[str]
    detail: Mapped[dict[str, Any]]

    __table_args__ = (Index(None, "backfill_id", "sequence"), Index(None, "backfill_id", "action", "sequence"))


class ApprovalRow(Base):
    """One question to a person; ``decision`` is NULL while nobody has answered."""

    __tablename__ = f"{PREFIX}approval"

    id: Mapped[int] = mapped_column(primary_key=True)
    backfill_id: Mapped[str] = mapped_column(ForeignKey(BackfillRow.backfill_id))
    gate: Mapped[Gate]
    content: Mapped[str]
    revision: Mapped[int]
    shown: Mapped[str]
    asked_for: Mapped[str]
    run_id: Mapped[str]
    clear_number: Mapped[int]
    asked_at: Mapped[datetime]
    decision: Mapped[Decision | None]
    decided_at: Mapped[datetime | None]
    decided_by: Mapped[str]
    reason: Mapped[str]

    __table_args__ = (Index(None, "backfill_id"),)


class TargetRow(Base):
    """One row per target, locked by whoever claims a range of it, so that two claims come one after the other."""

    __tablename__ = f"{PREFIX}target"

    target: Mapped[str] = mapped_column(primary_key=True)


class RangeLockRow(Base):
    """One claimed window or value; there is a row exactly as long as it is claimed."""

    __tablename__ = f"{PREFIX}range_lock"

    id: Mapped[int] = mapped_column(primary_key=True)
    backfill_id: Mapped[str] = mapped_column(ForeignKey(BackfillRow.backfill_id))
    target: Mapped[str] = mapped_column(ForeignKey(TargetRow.target))
    tenant: Mapped[str]
    window_start: Mapped[datetime | None]
    window_end: Mapped[datetime | None]
    value: Mapped[str | None]
    claimed_at: Mapped[datetime]
    reserved: Mapped[bool] = mapped_column(server_default=false())
    """Whether it keeps other backfills out only, and a live run may write it."""
    way_back: Mapped[bool] = mapped_column(server_default=false())
    """Whether the backfill is putting back what was there before, and so keeps it beyond its completion."""

    __table_args__ = (Index(None, "target", "tenant"), Index(None, "backfill_id"))


class LiveClaimRow(Base):
    """One window or value that a run of the scheduled pipeline is writing; there is a row exactly as long as it is."""

    __tablename__ = f"{PREFIX}live_claim"

    id: Mapped[int] = mapped_column(primary_key=True)
    claim_id: Mapped[str]
    dag_id: Mapped[str]
    run_id: Mapped[str]
    task_id: Mapped[str]
    attempt: Mapped[int]
    target: Mapped[str] = mapped_column(ForeignKey(TargetRow.target))
    window_start: Mapped[datetime | None]
    window_end: Mapped[datetime | None]
    value: Mapped[str | None]
    claimed_at: Mapped[datetime]
    installation: Mapped[str] = mapped_column(server_default="")
    run_started_at: Mapped[datetime | None]
    clear_number: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (Index(None, "target"), Index(None, "claim_id"))


class GivenUpClaimRow(Base):
    """A claim of a live run that a person released; what it ``held`` is in words."""

    __tablename__ = f"{PREFIX}given_up_claim"

    id: Mapped[int] = mapped_column(primary_key=True)
    claim_id: Mapped[str]
    dag_id: Mapped[str]
    run_id: Mapped[str]
    task_id: Mapped[str]
    installation: Mapped[str]
    held: Mapped[str]
    claimed_at: Mapped[datetime]
    at: Mapped[datetime]
    actor: Mapped[str]
    reason: Mapped[str]
