"""The report of one backfill as documents, made from the ledger alone: a page for people, tables for spreadsheets."""

from __future__ import annotations

from airflow_backfill_provider.reporting.documents import documents

__all__ = ["documents"]
