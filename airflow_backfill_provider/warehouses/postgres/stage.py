"""Writing a stage: partitions of one batch attempt, in a table that no other attempt writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from airflow_backfill_provider.errors import PartitionOverrun, WarehouseError
from airflow_backfill_provider.warehouses.base import Fingerprint, Recompute, StagedPartition, Target
from airflow_backfill_provider.warehouses.postgres.catalog import locate
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.errors import translated
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece
from airflow_backfill_provider.warehouses.sql import quote, quote_all
from airflow_backfill_provider.windows import Partition, describe, merge

NUMBER = "safe_backfill_statement"
"""The column of a stage that tells which statement wrote a row, so that each is held to its own partitions."""
_NUMBER = quote(NUMBER)
