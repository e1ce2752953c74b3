"""The connection type ``delta``: without a hook that bears it, Airflow's command line and UI would not take it."""

from __future__ import annotations

from contextlib import closing

from airflow.sdk.bases.hook import BaseHook

from airflow_backfill_provider.errors import BackfillError


class DeltaHook(BaseHook):
    """Delta tables under one folder, as a connection: its host is the folder or its URL, and delta-rs's options are in the extra.

    A backfill opens the tables through :mod:`airflow_backfill_provider.connections`; for other code there is ``deltalake``.

    :param delta_conn_id: the connection, such as ``warehouse_backfill``.
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta Lake on a path"

    def __init__(self, delta_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.delta_conn_id = delta_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Whether the folder can be opened, and why not; read only."""
        # Airflow imports every hook to list the types of connections.
        from airflow_backfill_provider.connections import warehouse_at

        try:
            with closing(warehouse_at(self.delta_conn_id)) as warehouse:
                warehouse.storage()
        except BackfillError as error:
            return False, str(error)
        return True, "The folder can be read."
