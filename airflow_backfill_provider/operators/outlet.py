"""The live DAG's outlet: the table that it says it writes is the one that is rebuilt, or nothing is planned."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from airflow.sdk import Asset, Connection

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.operators.announce import ANNOUNCED
from airflow_backfill_provider.spec.model import BackfillSpec

_POSTGRES, _ITS_PORT = "postgres", 5432


def require_outlet(spec: BackfillSpec) -> None:
    """Refuse another table than the live DAG's; nothing where the spec names no outlet.

    The asset's URI has to end with the table's name, and where it is PostgreSQL's, to name the database of ``compute.conn_id``. Airflow tells
    that some active DAG refers to the asset, not which one, nor whether it writes it, reads it or waits for it.

    :raises SpecError: it does not, no active DAG refers to such an asset, or it is one that backfills announce.
    """
    outlet, table = spec.target.outlet, spec.target.table
    if outlet is None:
        return
    uri = urlsplit(_uri_of(outlet))
    if uri.scheme == ANNOUNCED:
        raise SpecError(
            f"target.outlet {outlet!r} is {uri.geturl()}, which backfills announce: it says nothing of where the live DAG writes. Nothing was "
            "planned. Write an asset of the live DAG itself, as it stands in its outlets=, or leave target.outlet out."
        )
    words = [word for word in re.split(r"[/.]", f"{uri.netloc}{uri.path}".casefold()) if word]
    wanted = table.casefold().split(".")
    if words[-len(wanted) :] != wanted:
        raise _wrong_target(outlet, uri, f"target.table is {table}")
    connection = Connection.get(spec.compute.conn_id)
    if uri.scheme == connection.conn_type == _POSTGRES:
        host, port, database = connection.host or "", connection.port or _ITS_PORT, connection.schema or ""
        named = uri.hostname, uri.port or _ITS_PORT, uri.path.removeprefix("/").split("/")[0].casefold()
        if named != (host.casefold(), port, database.casefold()):
            leads = f"{host}:{port}/{database}" if database else f"{host}:{port}, and its schema names no database"
            raise _wrong_target(outlet, uri, f"compute.conn_id leads to {leads}")


def _wrong_target(outlet: str, uri: SplitResult, here: str) -> SpecError:
    return SpecError(
        f"Wrong target? {here}, and the asset {outlet!r}, which target.outlet calls the outlet of the live DAG, is "
        f"{uri.geturl()}. Nothing was planned. Mend the one that is wrong; leave target.outlet out where both are the same "
        "table by other names."
    )


def _uri_of(outlet: str) -> str:
    """The URI of the asset, to which some active DAG refers.

    :raises SpecError: none does.
    """
    from airflow.sdk.execution_time.comms import AssetResult, GetAssetByName, GetAssetByUri
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    asked = GetAssetByUri(uri=Asset(uri=outlet).uri) if "://" in outlet else GetAssetByName(name=outlet)
    found = SUPERVISOR_COMMS.send(asked)
    if not isinstance(found, AssetResult):
        raise SpecError(
            f"target.outlet {outlet!r}: no active DAG refers to such an asset. Write its name or URI as it stands in outlets= of the "
            "live DAG, or leave target.outlet out; of a DAG that is new, Airflow knows a minute later. Nothing was planned."
        )
    return found.uri
