"""The report of one backfill as documents, made from the ledger alone: a page for people, tables for spreadsheets."""
