"""Writing the report's files where the deployment keeps them: local disk, or any store that Airflow knows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf

from airflow_backfill_provider.connections import SECTION
from airflow_backfill_provider.errors import ReportNotWritten

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_backfill_provider.ledger.store import Ledger

OPTION = "reports_folder"

log = logging.getLogger(__name__)


def reports_folder() -> str:
    """Where reports go."""
    return str(conf.get(SECTION, OPTION))


def write_report(ledger: Ledger, backfill_id: str, folder: str | None = None) -> str:
    """Write every file into ``<folder>/<backfill_id>/``, the page last, over what an earlier report left there.

    :param folder: instead of the configured one.
    :returns: where the page is.
    :raises LedgerError: there is no such backfill.
    :raises ReportNotWritten: the folder cannot be written to.
    """
    from airflow_backfill_provider.reporting.documents import documents

    files = documents(ledger, backfill_id)
    where = folder or reports_folder()
    try:
        into = _path(where) / backfill_id
        into.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (into / name).write_bytes(content)
            page = into / name
    except Exception as error:  # each store raises its own
        raise ReportNotWritten(
            f"The report of {backfill_id} could not be written to {where}: {type(error).__name__}: {error}. Set [{SECTION}] {OPTION} "
            f"to a folder that can be written, such as s3://aws_default@bucket/backfills, then run "
            f"`airflow safe-backfill report {backfill_id}`: the ledger holds all of it."
        ) from error
    return str(page)


def try_to_write_report(ledger: Ledger, backfill_id: str) -> str | None:
    """The same for a task, whose outcome it must not change: whatever goes wrong is a warning in the log, and None."""
    try:
        if ledger.find_backfill(backfill_id) is None:
            return None
        page = write_report(ledger, backfill_id)
    except Exception as error:
        log.warning("The backfill is what it is, but its report is not written. %s", error, exc_info=error)
        return None
    log.info("Report: %s", page)
    return page


def _path(folder: str) -> ObjectStoragePath:
    """The folder as Airflow's own kind of path.

    :raises ValueError: it is relative, so that it would depend on the worker's working directory.
    """
    from airflow.sdk import ObjectStoragePath

    if "://" not in folder and not folder.startswith("/"):
        raise ValueError("the path is relative; give an absolute one, or a URL")
    return ObjectStoragePath(folder if "://" in folder else f"file://{folder}")
