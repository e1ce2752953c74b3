"""The ledger's Airflow connection: what of it reaches the driver."""

from __future__ import annotations

import json

from airflow.sdk import Connection

from airflow_backfill_provider.connections import ledger_url


def postgres(**extra: object) -> dict[str, object]:
    """The parameters of the URL of a ledger on PostgreSQL whose connection has this extra."""
    connection = Connection(
        conn_id="ledger", conn_type="postgres", host="db", login="me", password="secret", schema="ledger", extra=json.dumps(extra)
    )  # fmt: skip
    url = ledger_url(connection)
    assert url.render_as_string(hide_password=False).startswith("postgresql+psycopg://me:secret@db/ledger")
    return dict(url.query)


def test_how_the_connection_is_secured_reaches_the_driver() -> None:
    asked = {"sslmode": "verify-full", "sslrootcert": "/etc/ssl/root.pem", "keepalives_idle": 30}
    assert postgres(**asked).items() >= {**asked, "keepalives_idle": "30"}.items()


def test_a_server_that_does_not_answer_is_not_waited_for_without_end() -> None:
    assert postgres() == {"connect_timeout": "10", "tcp_user_timeout": "60000"}
    assert postgres(connect_timeout=3) == {"connect_timeout": "3", "tcp_user_timeout": "60000"}


def test_what_is_meant_for_airflows_hook_alone_does_not_reach_the_driver() -> None:
    assert set(postgres(cursor="dictcursor", iam=True, options="-c lock_timeout=0")) == set(postgres())
