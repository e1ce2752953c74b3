"""What a role may not do is said before anything is done; and nobody reads in a stage what the table hides from them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import postgres_server
import pytest
from postgres_shop import RANGE, Database, Shop, clean_server, pytestmark, raised

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses.base import Column
from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse
from airflow_backfill_provider.warehouses.postgres.storage import Storage

__all__ = ["clean_server", "pytestmark"]

EVERYTHING = ("SELECT", "INSERT", "UPDATE", "DELETE")


@pytest.fixture
def shop() -> Shop:
    return Shop.create()


@pytest.fixture
def role(shop: Shop) -> Iterator[str]:
    """A role that may read and write the table and nothing else."""
    role = shop.database.role("loader")
    shop.database.execute(
        f"GRANT USAGE ON SCHEMA analytics TO {role}", f"GRANT {', '.join(EVERYTHING)} ON analytics.orders TO {role}"
    )
    yield role
    shop.database.execute(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def _as(shop: Shop, role: str) -> PostgresWarehouse:
    return shop.database.warehouse(login={"user": role})


def _made_for(role: str) -> tuple[str, ...]:
    return tuple(
        f"CREATE SCHEMA {schema} AUTHORIZATION {role}" for schema in ("safe_backfill_staging", "safe_backfill")
    )


@pytest.mark.parametrize("right", EVERYTHING)
def test_a_right_on_the_table_that_is_missing_is_named_with_the_statement_that_grants_it(
    shop: Shop, role: str, right: str
) -> None:
    shop.database.execute(*_made_for(role), f"REVOKE {right} ON analytics.orders FROM {role}")

    with pytest.raises(
        WarehouseError, match=f'may not {right} on .* Run: GRANT {right} ON "analytics"."orders" TO "{role}"'
    ):
        _as(shop, role).describe("analytics.orders", "day", ["id"])


def test_a_role_that_may_not_make_schemas_is_told_which_to_have_made_and_then_works(shop: Shop, role: str) -> None:
    old = shop.amounts()
    warehouse = _as(shop, role)
    for statement in _made_for(role):
        with pytest.raises(WarehouseError, match="may not make the schema") as refused:
            warehouse.describe("analytics.orders", "day", ["id"])
        assert str(refused.value).endswith(
            statement.replace(role, f'"{role}"').replace("SCHEMA ", 'SCHEMA "').replace(" AUTH", '" AUTH')
        )
        shop.database.execute(statement)

    poor = Shop(shop.database, warehouse, warehouse.describe("analytics.orders", "day", ["id"]))
    warehouse.back_up(poor.target, "b1", RANGE, label="x")
    warehouse.replace_partitions(poor.target, poor.publication(poor.stage(*RANGE)))

    assert shop.amounts() == raised(old)
    assert len(warehouse.receipts(poor.target)) == 1


@pytest.mark.parametrize("schema", ["safe_backfill_staging", "safe_backfill"])
@pytest.mark.parametrize("granted", ["USAGE", "CREATE"])
def test_a_role_that_has_only_one_of_the_rights_on_a_schema_is_refused(
    shop: Shop, role: str, schema: str, granted: str
) -> None:
    shop.database.execute(
        *_made_for(role),
        f"ALTER SCHEMA {schema} OWNER TO CURRENT_USER",
        f"GRANT {granted} ON SCHEMA {schema} TO {role}",
    )

    with pytest.raises(WarehouseError, match=f'GRANT USAGE, CREATE ON SCHEMA "{schema}"'):
        _as(shop, role).describe("analytics.orders", "day", ["id"])


@pytest.mark.parametrize("table", ["safe_backfill_staging.stored_tables", "safe_backfill.receipts"])
def test_tables_of_ours_that_another_role_made_are_asked_for_by_name(shop: Shop, role: str, table: str) -> None:
    shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
    shop.database.execute(
        f"GRANT USAGE, CREATE ON SCHEMA safe_backfill_staging, safe_backfill TO {role}",
        f"GRANT ALL ON safe_backfill_staging.stored_tables, safe_backfill.receipts TO {role}",
        f"REVOKE INSERT ON {table} FROM {role}",
    )

    quoted = ".".join(f'"{part}"' for part in table.split("."))
    with pytest.raises(WarehouseError, match=f"Run: GRANT INSERT ON {quoted} TO"):
        _as(shop, role).describe("analytics.orders", "day", ["id"])


def test_receipts_that_only_another_role_may_read_are_an_error_and_never_none(shop: Shop, role: str) -> None:
    shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
    warehouse = _as(shop, role)

    with pytest.raises(WarehouseError, match="not allowed"):
        warehouse.receipts(shop.target)
    shop.database.execute(f"GRANT USAGE ON SCHEMA safe_backfill TO {role}")
    with pytest.raises(WarehouseError, match="not allowed"):
        warehouse.receipts(shop.target)


def test_stages_that_only_another_role_may_list_are_an_error_and_never_none(shop: Shop, role: str) -> None:
    shop.stage(*RANGE)

    with pytest.raises(WarehouseError, match="not allowed"):
        _as(shop, role).storage()


READABLE = (
    "ALTER DEFAULT PRIVILEGES IN SCHEMA safe_backfill_staging GRANT SELECT ON TABLES TO {role}",
    "GRANT USAGE ON SCHEMA safe_backfill_staging TO {role}",
)


def test_a_stage_or_a_backup_that_more_people_may_read_than_the_table_is_refused_naming_them(shop: Shop) -> None:
    role = shop.database.role("curious")
    shop.stage(*RANGE)
    shop.database.execute(*(statement.format(role=role) for statement in READABLE))
    stored = shop.warehouse.storage()

    with pytest.raises(WarehouseError, match=f"{role} may read what is staged"):
        shop.stage(*RANGE)
    with pytest.raises(WarehouseError, match=f"{role} may read what is staged"):
        shop.warehouse.back_up(shop.target, "b1", RANGE, label="x")

    assert shop.warehouse.storage() == stored
    shop.database.execute(f"GRANT USAGE ON SCHEMA analytics TO {role}", f"GRANT SELECT ON analytics.orders TO {role}")
    assert shop.stage(*RANGE)


def test_a_stage_of_a_table_with_row_level_security_is_refused_to_those_from_whom_it_hides_rows(shop: Shop) -> None:
    role = shop.database.role("tenant")
    shop.stage(*RANGE)
    shop.database.execute(
        *(statement.format(role=role) for statement in READABLE),
        f"GRANT USAGE ON SCHEMA analytics TO {role}",
        f"GRANT SELECT ON analytics.orders TO {role}",
    )
    shop.stage(*RANGE)
    shop.database.execute("ALTER TABLE analytics.orders ENABLE ROW LEVEL SECURITY")

    with pytest.raises(WarehouseError, match=f"{role} may read what is staged"):
        shop.stage(*RANGE)


def test_nobody_else_may_read_a_stage_unless_it_is_granted(shop: Shop, role: str) -> None:
    location = shop.stage(*RANGE).partitions[0].location

    may = f"has_schema_privilege('{role}', 'safe_backfill_staging', 'USAGE')"
    assert shop.rows(
        f"SELECT {may}, has_table_privilege('{role}', '{Storage('safe_backfill_staging').sql(location)}', 'SELECT')"
    ) == [(False, False)]


def test_a_role_from_which_policies_hide_rows_is_refused_when_the_table_is_described_and_when_it_is_published(
    shop: Shop, role: str
) -> None:
    shop.database.execute(*_made_for(role))
    warehouse = _as(shop, role)
    poor = Shop(shop.database, warehouse, warehouse.describe("analytics.orders", "day", ["id"]))
    publication = poor.publication(poor.stage(*RANGE))
    old = shop.amounts()
    shop.database.execute("ALTER TABLE analytics.orders ENABLE ROW LEVEL SECURITY")

    for call in (
        lambda: warehouse.describe("analytics.orders", "day", ["id"]),
        lambda: warehouse.replace_partitions(poor.target, publication),
    ):
        with pytest.raises(Exception, match="row-level security hides rows from this role"):
            call()
    assert shop.amounts() == old


@pytest.fixture
def standby() -> Iterator[Database]:
    """The server's own copy, which follows it and takes no writes."""
    url = postgres_server.start()
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))[-1]
    folder = Path(tempfile.mkdtemp(prefix="backfill-pg-standby-"))
    shutil.chown(folder, "postgres")
    runs = ["runuser", "-u", "postgres", "--"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        command = [*runs, str(programs / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    data = str(folder / "data")
    run(
        "pg_basebackup",
        "-h",
        str(url.host),
        "-p",
        str(url.port),
        "-U",
        str(url.username),
        "-D",
        data,
        "-R",
        "-c",
        "fast",
        "-X",
        "stream",
        "--no-sync",
    )
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} -c fsync=off -c max_connections=200 -c max_prepared_transactions=2"
    run("pg_ctl", "-w", "-D", data, "-l", str(folder / "log"), "-o", options, "start")
    yield Database("standby", {"host": "127.0.0.1", "port": port, "user": url.username})
    run("pg_ctl", "-w", "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)


def test_a_hot_standby_is_refused_before_anything_is_done(shop: Shop, standby: Database) -> None:
    shop.stage(*RANGE)
    warehouse = standby.warehouse(login={"dbname": shop.database.name})

    with pytest.raises(WarehouseError, match="hot standby"):
        warehouse.describe("analytics.orders", "day", ["id"])
    warehouse.close()


def test_a_column_is_added_by_the_owner_of_the_table_and_another_role_is_told_so_when_it_plans(
    shop: Shop, role: str
) -> None:
    shop.database.execute(*_made_for(role))
    warehouse = _as(shop, role)
    target = warehouse.describe("analytics.orders", "day", ["id"])
    target = replace(target, columns=(*target.columns, Column("tax", "bigint", added="NULL: nobody knows it")))

    with pytest.raises(
        SpecError, match=f'only its owner .* may, and the connection\'s role is {role}.* Run: GRANT .* TO "{role}"'
    ):
        warehouse.growth_cautions(target)
    assert "Nobody can read" in shop.database.warehouse().growth_cautions(target)[0]
