"""Exchanging the children of a partitioned table: what is exchanged, what is refused, what is carried over, and the way back."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from partitioned_shop import DAILY, WIDE, files, fill, held, partitioned, way_back
from postgres_shop import RANGE, Database, Shop, clean_server, days, pytestmark, raised
from stage_writing import write_one

from airflow_backfill_provider.errors import PublishRefused, SpecError, StageChanged, TargetMoved, WarehouseError
from airflow_backfill_provider.warehouses.base import Action, Backup, Publication, Published, Staged
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse, swappable
from airflow_backfill_provider.windows import Grain, partition_at
from airflow_backfill_provider.windows.keys import parse_key

__all__ = ["clean_server", "pytestmark"]


@pytest.mark.parametrize(("bounds", "exchanged"), [(WIDE, ["orders_2"]), (DAILY, ["orders_2", "orders_3", "orders_4"])])
@pytest.mark.parametrize("rest", [True, False])
def test_whole_children_are_exchanged_and_kept_as_the_backup(
    bounds: tuple[tuple[str, str], ...], exchanged: Sequence[str], rest: bool
) -> None:
    shop = partitioned(bounds=bounds, rest=rest)
    old, outside, baseline, before = shop.amounts(), shop.outside(), shop.fingerprint(*RANGE), files(shop)

    planned = shop.warehouse.plan_swap(shop.target, RANGE)
    publication = fill(shop)
    assert (shop.amounts(), files(shop)) == (old, before)
    receipt = shop.warehouse.swap_children(shop.target, publication)

    assert planned.children == tuple(f"analytics.{name}" for name in exchanged)
    assert planned.losses == ()
    assert shop.amounts() == raised(old)
    assert shop.outside() == outside
    after = files(shop)
    assert sorted(name for name in before if before[name] != after.pop(name)) == list(exchanged)
    assert after == {}
    assert (receipt.deleted, receipt.inserted) == (30, 30)
    assert receipt.locked_for is not None
    assert 0 < receipt.locked_for.total_seconds() < 5
    assert held(shop, publication) == baseline
    assert [(item.kind, item.backfill_id) for item in shop.warehouse.storage()] == [("backup", "b1"), ("stage", "b1")]


def test_a_rollback_exchanges_them_again_for_the_very_tables_that_were_there() -> None:
    shop = partitioned(bounds=DAILY)
    old, outside, before = shop.amounts(), shop.outside(), files(shop)
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    shop.database.execute("INSERT INTO analytics.orders VALUES (999, '2024-01-09', 5, 'later')")

    receipt = shop.warehouse.swap_children(shop.target, way_back(publication))

    assert shop.amounts() == old
    assert len(shop.outside()) == len(outside) + 1
    assert files(shop) == before
    assert receipt.locked_for is not None
    assert held(shop, publication) == publication.after
    assert [receipt.action for receipt in shop.warehouse.receipts(shop.target)] == ["publish", "rollback"]


def test_attaching_reads_no_row_of_a_child_and_none_of_the_default_partition() -> None:
    shop = partitioned(bounds=DAILY)
    said: list[str] = []

    def connect() -> psycopg.Connection[Any]:
        connection = shop.database.connect(options="-c client_min_messages=debug1")
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        return connection

    publication = fill(shop)
    shop.warehouse = PostgresWarehouse(connect)
    shop.database.opened.append(shop.warehouse)
    for one in (publication, way_back(publication)):
        said.clear()
        shop.warehouse.swap_children(shop.target, one)
        implied = [message for message in said if "implied by existing constraints" in message]
        for number in (2, 3, 4):
            assert f'partition constraint for table "orders_{number}" is implied by existing constraints' in implied
        assert sum("default partition" in message or '"orders_rest"' in message for message in implied) == 3, said


@pytest.mark.parametrize("change", ["CREATE INDEX more ON {child} (note)", "GRANT SELECT ON {child} TO PUBLIC"])
def test_a_rollback_replaces_the_rows_where_the_old_child_is_not_as_the_new_one_is_now(change: str) -> None:
    shop = partitioned()
    old, outside = shop.amounts(), shop.outside()
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    after = files(shop)
    shop.database.execute(change.format(child="analytics.orders_2"))

    receipt = shop.warehouse.swap_children(shop.target, way_back(publication))

    assert shop.amounts() == old
    assert shop.outside() == outside
    assert files(shop) == after
    assert receipt.locked_for is None


def test_a_rollback_replaces_the_rows_where_the_children_were_cut_anew() -> None:
    shop = partitioned()
    old = shop.amounts()
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    shop.database.execute(
        "ALTER TABLE analytics.orders DETACH PARTITION analytics.orders_2",
        "CREATE TABLE analytics.first PARTITION OF analytics.orders FOR VALUES FROM ('2024-01-02') TO ('2024-01-03')",
        "CREATE TABLE analytics.second PARTITION OF analytics.orders FOR VALUES FROM ('2024-01-03') TO ('2024-01-05')",
        "INSERT INTO analytics.orders SELECT * FROM analytics.orders_2",
    )

    shop.warehouse.swap_children(shop.target, way_back(publication))

    assert shop.amounts() == old


def test_a_rollback_of_a_range_that_changed_is_refused() -> None:
    shop = partitioned()
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    shop.database.execute("UPDATE analytics.orders SET amount = 0 WHERE id = 25")
    found = shop.amounts()

    with pytest.raises(TargetMoved, match="2024-01-03"):
        shop.warehouse.swap_children(shop.target, way_back(publication))

    assert shop.amounts() == found
    assert [item.kind for item in shop.warehouse.storage()] == ["backup", "stage"]


def test_two_backfills_after_another_are_rolled_back_in_turn() -> None:
    shop = partitioned()
    old = shop.amounts()
    first = fill(shop)
    shop.warehouse.swap_children(shop.target, first)
    staged = shop.stage(*RANGE, backfill_id="b2")
    marks = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
    filled = shop.warehouse.fill_children(shop.target, "b2", staged)
    second = replace(shop.publication(filled, after=marks), backfill_id="b2")
    shop.warehouse.swap_children(shop.target, second)
    assert shop.amounts() == raised(old, 2)

    shop.warehouse.swap_children(shop.target, replace(way_back(second), backfill_id="b2"))
    assert shop.amounts() == raised(old)
    shop.warehouse.swap_children(shop.target, way_back(first))

    assert shop.amounts() == old


CUTS = {
    "PARTITION BY RANGE (day)": [
        ("FOR VALUES FROM ('2024-01-01') TO ('2024-01-04')", "t_1 holds FROM .* has only a part of it"),
        ("FOR VALUES FROM ('2024-01-03') TO ('2024-01-06')", "t_1 holds FROM .* has only a part of it"),
        ("FOR VALUES FROM ('2024-01-02') TO (MAXVALUE)", "has only a part of it"),
        ("FOR VALUES FROM ('2024-01-02') TO ('infinity')", "has only a part of it"),
        ("FOR VALUES FROM ('2024-01-02') TO ('2024-01-04')", "no partition for 2024-01-04 and after"),
        ("FOR VALUES FROM ('2024-01-03') TO ('2024-01-05')", "no partition for 2024-01-02 and after"),
        ("FOR VALUES FROM ('2025-01-03') TO ('2025-01-05')", "no partition for 2024-01-02 and after"),
        ("DEFAULT", "in its DEFAULT partition analytics.t_1"),
        ("FOR VALUES FROM ('2024-01-02') TO ('2024-01-05') PARTITION BY LIST (id)", "t_1 is partitioned itself"),
    ],
    "PARTITION BY LIST (day)": [
        ("FOR VALUES IN ('2024-01-02', '2024-01-03', '2024-01-04', '2024-01-05')", "also holds 2024-01-05"),
        ("FOR VALUES IN ('2024-01-02', '2024-01-03', '2024-01-04', NULL)", "also holds None"),
        ("FOR VALUES IN ('2024-01-02', '2024-01-03')", "no partition for 2024-01-04"),
        ("DEFAULT", "in its DEFAULT partition analytics.t_1"),
    ],
    "PARTITION BY HASH (day)": [
        ("FOR VALUES WITH (MODULUS 1, REMAINDER 0)", "not partitioned by RANGE or LIST of day")
    ],
    "PARTITION BY RANGE (day, id)": [
        ("FOR VALUES FROM ('2024-01-02', 0) TO ('2024-01-05', 0)", "not partitioned by RANGE or LIST of day alone")
    ],
    "PARTITION BY RANGE (id)": [("FOR VALUES FROM (0) TO (5)", "not partitioned by RANGE or LIST of day")],
    "PARTITION BY RANGE (date_trunc('day', day::timestamp))": [("DEFAULT", "not partitioned by RANGE or LIST of day")],
}


@pytest.mark.parametrize(("how", "bound", "why"), [(how, *case) for how, cases in CUTS.items() for case in cases])
def test_a_range_that_whole_children_do_not_hold_is_refused_when_it_is_planned(how: str, bound: str, why: str) -> None:
    database = Database.create()
    database.execute(
        "CREATE SCHEMA analytics",
        f"CREATE TABLE analytics.t (id BIGINT, day DATE) {how}",
        f"CREATE TABLE analytics.t_1 PARTITION OF analytics.t {bound}",
    )
    warehouse = database.warehouse()

    with pytest.raises(SpecError, match=f"{why}.*set publish.swap: false"):
        warehouse.plan_swap(warehouse.describe("analytics.t", "day", ["id"]), RANGE)


def test_a_table_without_children_is_refused() -> None:
    shop = Shop.create()

    with pytest.raises(SpecError, match=r"not partitioned by PostgreSQL.*publish.swap: false"):
        shop.warehouse.plan_swap(shop.target, RANGE)


WHOLE = {
    "DATE by value": (
        "DATE",
        "LIST (day)",
        ["IN ('2024-01-02', '2024-01-04')", "IN ('2024-01-03')", "IN ('2024-01-09')"],
        {},
    ),
    "TIMESTAMP": ("TIMESTAMP", "RANGE (day)", ["FROM ('2024-01-02') TO ('2024-01-05 00:00')"], {}),
    "TIMESTAMPTZ": ("TIMESTAMPTZ", "RANGE (day)", ["FROM ('2024-01-02 00:00+00') TO ('2024-01-05 00:00+00')"], {}),
    "INTEGER": ("INTEGER", "RANGE (day)", ["FROM (20240102) TO (20240105)"], {"column_format": "yyyymmdd"}),
    "TEXT": (
        'VARCHAR COLLATE "C"',
        "RANGE (day)",
        ["FROM ('2024-01-02') TO ('2024-01-05')"],
        {"column_format": "iso_date"},
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_bounds_are_compared_as_values_of_every_type_that_a_partition_column_may_have(case: str) -> None:
    kind, how, bounds, reading = WHOLE[case]
    database = Database.create()
    database.execute(
        "CREATE SCHEMA analytics",
        f"CREATE TABLE analytics.t (id BIGINT, day {kind}) PARTITION BY {how}",
        *(
            f"CREATE TABLE analytics.t_{number} PARTITION OF analytics.t FOR VALUES {bound}"
            for number, bound in enumerate(bounds, 1)
        ),
    )
    warehouse = database.warehouse()
    target = warehouse.describe("analytics.t", "day", ["id"], Reading(**reading))

    planned = warehouse.plan_swap(target, RANGE)

    assert planned.children == tuple(f"analytics.t_{number}" for number in range(1, min(len(bounds), 2) + 1))
    with pytest.raises(SpecError, match=r"publish\.swap"):
        warehouse.plan_swap(target, days(2, 3))


def test_values_of_a_list_are_exchanged_by_the_children_that_list_them() -> None:
    database = Database.create()
    database.execute(
        "CREATE SCHEMA analytics",
        "CREATE TABLE analytics.t (id BIGINT, region VARCHAR) PARTITION BY LIST (region)",
        "CREATE TABLE analytics.eu PARTITION OF analytics.t FOR VALUES IN ('de', 'fr')",
        "CREATE TABLE analytics.us PARTITION OF analytics.t FOR VALUES IN ('us')",
        "CREATE TABLE analytics.rest PARTITION OF analytics.t DEFAULT",
        "INSERT INTO analytics.t VALUES (1, 'de'), (2, 'fr'), (3, 'us'), (4, 'it'), (5, NULL)",
    )
    warehouse = database.warehouse()
    target = warehouse.describe("analytics.t", "region", ["id"], Reading(by_value=True))
    chosen = tuple(parse_key(key, Grain.LIST) for key in ("de", "fr"))

    assert warehouse.plan_swap(target, chosen).children == ("analytics.eu",)
    with pytest.raises(SpecError, match="eu also holds fr"):
        warehouse.plan_swap(target, chosen[:1])


def test_a_month_that_is_many_children_is_exchanged() -> None:
    shop = partitioned(bounds=DAILY)
    month = partition_at(days(1)[0].window.start.date(), Grain.MONTH)

    with pytest.raises(SpecError, match=r"DEFAULT partition analytics\.orders_rest"):
        shop.warehouse.plan_swap(shop.target, [month])
    shop.database.execute(
        "CREATE TABLE analytics.late PARTITION OF analytics.orders FOR VALUES FROM ('2024-01-11') TO ('2024-02-01')"
    )

    assert len(shop.warehouse.plan_swap(shop.target, [month]).children) == 11


OBSTACLES = {
    "foreign keys, or those that refer to it .broken.": "CREATE TABLE days (day DATE PRIMARY KEY); "
    "INSERT INTO days SELECT DISTINCT day FROM analytics.orders WHERE day IS NOT NULL; "
    "ALTER TABLE analytics.orders ADD CONSTRAINT broken FOREIGN KEY (day) REFERENCES days",
    "foreign keys, or those that refer to it .lines": "ALTER TABLE analytics.orders_2 ADD CONSTRAINT own UNIQUE (id); "
    "CREATE TABLE lines (id BIGINT CONSTRAINT lines_key REFERENCES analytics.orders_2 (id) DEFERRABLE)",
    "publication told": "CREATE PUBLICATION told FOR TABLE analytics.orders",
    "publication single": "CREATE PUBLICATION single FOR TABLE analytics.orders_2",
    "january would go on reading": "CREATE VIEW january AS SELECT * FROM analytics.orders_2",
    "function newest.* would go on": "CREATE FUNCTION newest() RETURNS SETOF analytics.orders_2 LANGUAGE sql "
    "AS 'SELECT NULL::analytics.orders_2'",
    "orders_2 are unlogged": "ALTER TABLE analytics.orders_2 SET UNLOGGED",
    "sequences analytics.counted": "CREATE SEQUENCE analytics.counted OWNED BY analytics.orders_2.id",
    "itself a partition": "CREATE TABLE analytics.every (LIKE analytics.orders) PARTITION BY RANGE (day); "
    "ALTER TABLE analytics.orders DETACH PARTITION analytics.orders_rest; "
    "ALTER TABLE analytics.every ATTACH PARTITION analytics.orders FOR VALUES FROM (MINVALUE) TO (MAXVALUE)",
}


@pytest.mark.parametrize("why", OBSTACLES)
def test_what_an_exchange_would_break_is_refused_by_name_when_it_is_planned(why: str) -> None:
    shop = partitioned()
    assert shop.warehouse.plan_swap(shop.target, RANGE).children == ("analytics.orders_2",)
    shop.database.execute(OBSTACLES[why])

    with pytest.raises(SpecError, match=f"{why}.*set publish.swap: false"):
        shop.warehouse.plan_swap(shop.target, RANGE)


def test_what_breaks_an_exchange_since_it_was_filled_is_refused_with_nothing_written() -> None:
    shop = partitioned()
    publication = fill(shop)
    old = shop.amounts()
    shop.database.execute("CREATE VIEW january AS SELECT * FROM analytics.orders_2")

    with pytest.raises(PublishRefused, match="january would go on reading"):
        shop.warehouse.swap_children(shop.target, publication)

    assert shop.amounts() == old
    assert shop.warehouse.receipts(shop.target) == ()


def test_a_large_default_partition_is_refused_because_attaching_would_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = partitioned()
    monkeypatch.setattr(swappable, "LARGEST_DEFAULT", 100)

    with pytest.raises(SpecError, match=r"DEFAULT partition analytics.orders_rest has .* MiB"):
        shop.warehouse.plan_swap(shop.target, RANGE)


def test_more_locks_than_the_server_has_room_for_are_refused_when_it_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = partitioned()
    monkeypatch.setattr(swappable, "SHARE_OF_LOCKS", 0.00001)

    with pytest.raises(SpecError, match=r"1 partitions need 6 locks in one commit, .* raise max_locks_per_transaction"):
        shop.warehouse.plan_swap(shop.target, RANGE)


def test_only_the_owner_of_the_table_may_plan_an_exchange() -> None:
    shop = partitioned()
    role = shop.database.role("clerk")
    shop.database.execute(
        f"GRANT USAGE ON SCHEMA analytics TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON analytics.orders TO {role}",
        f"GRANT CREATE ON DATABASE {shop.database.name} TO {role}",
    )
    warehouse = shop.database.warehouse(login={"user": role})

    with pytest.raises(SpecError) as refused:
        warehouse.plan_swap(warehouse.describe("analytics.orders", "day", ["id"]), RANGE)

    assert "only the owner can exchange them, and this role is not that of analytics.orders" in str(refused.value)
    assert f'GRANT CREATE ON SCHEMA "analytics" TO "{role}"' in str(refused.value)


DRESS = (
    "ALTER TABLE analytics.orders_2 ALTER COLUMN amount SET NOT NULL",
    "ALTER TABLE analytics.orders_2 ALTER COLUMN note SET DEFAULT 'none'",
    "ALTER TABLE analytics.orders_2 ALTER COLUMN note SET STORAGE EXTERNAL",
    "ALTER TABLE analytics.orders_2 ALTER COLUMN note SET STATISTICS 7",
    "ALTER TABLE analytics.orders_2 ALTER COLUMN note SET (n_distinct = -0.5)",
    "ALTER TABLE analytics.orders_2 ADD CONSTRAINT positive CHECK (amount >= 0)",
    "COMMENT ON CONSTRAINT positive ON analytics.orders_2 IS 'no debts'",
    "CREATE INDEX by_amount ON analytics.orders (amount)",
    "CREATE UNIQUE INDEX single ON analytics.orders_2 (id) INCLUDE (note) WITH (fillfactor = 60) WHERE amount >= 0",
    "COMMENT ON INDEX analytics.single IS 'one each'",
    "ALTER TABLE analytics.orders_2 ALTER COLUMN id SET NOT NULL",
    "ALTER TABLE analytics.orders_2 ADD CONSTRAINT own_key UNIQUE (id) DEFERRABLE",
    "CREATE UNIQUE INDEX by_id ON analytics.orders_2 (id)",
    "ALTER TABLE analytics.orders_2 REPLICA IDENTITY USING INDEX by_id",
    "ALTER TABLE analytics.orders_2 CLUSTER ON by_id",
    "CREATE STATISTICS analytics.together (dependencies) ON id, amount FROM analytics.orders_2",
    "COMMENT ON TABLE analytics.orders_2 IS 'the first days'",
    "COMMENT ON COLUMN analytics.orders_2.note IS 'anything'",
    "ALTER TABLE analytics.orders_2 SET (fillfactor = 70, toast.autovacuum_enabled = false)",
    "ALTER TABLE analytics.orders_2 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    "CREATE POLICY small ON analytics.orders_2 AS RESTRICTIVE FOR UPDATE TO {clerk} USING (amount < 10) WITH CHECK (amount < 20)",
    "COMMENT ON POLICY small ON analytics.orders_2 IS 'only small ones'",
    "GRANT SELECT ON analytics.orders_2 TO {clerk} WITH GRANT OPTION",
    "GRANT UPDATE (note) ON analytics.orders_2 TO PUBLIC",
    "ALTER TABLE analytics.orders_2 OWNER TO {owner}",
)
LOOKS = (
    "SELECT obj_description('analytics.orders_2'::regclass), col_description('analytics.orders_2'::regclass, 4), "
    "obj_description('analytics.single'::regclass)",
    "SELECT relrowsecurity, relforcerowsecurity, relreplident, reloptions, relowner::regrole::text FROM pg_class "
    "WHERE oid = 'analytics.orders_2'::regclass",
    "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'orders_2' ORDER BY 1",
    "SELECT conname, pg_get_constraintdef(oid), convalidated, coninhcount, conislocal FROM pg_constraint "
    "WHERE conrelid = 'analytics.orders_2'::regclass ORDER BY 1",
    "SELECT * FROM pg_policies WHERE tablename = 'orders_2'",
    "SELECT grantee, privilege_type, is_grantable FROM information_schema.role_table_grants WHERE table_name = 'orders_2' ORDER BY 1, 2",
    "SELECT grantee, column_name, privilege_type FROM information_schema.column_privileges "
    "WHERE table_name = 'orders_2' AND grantee = 'PUBLIC' ORDER BY 1, 2, 3",
    "SELECT attname, attnotnull, attstorage, attstattarget, attoptions, attislocal, attinhcount FROM pg_attribute "
    "WHERE attrelid = 'analytics.orders_2'::regclass AND attnum > 0 ORDER BY 1",
    "SELECT stxrelid::regclass::text, stxnamespace::regnamespace::text, stxname, stxkind FROM pg_statistic_ext "
    "WHERE stxrelid = 'analytics.orders_2'::regclass",
    "SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid IN ('analytics.orders_2'::regclass, "
    "'analytics.orders_2_amount_idx'::regclass) ORDER BY 1",
    "SELECT relispartition, pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = 'analytics.orders_2'::regclass",
)


def test_what_a_child_has_beside_its_rows_is_carried_over_there_and_back() -> None:
    shop = partitioned()
    roles = {name: shop.database.role(name) for name in ("clerk", "owner")}
    shop.database.execute(
        f"GRANT CREATE, USAGE ON SCHEMA analytics TO {roles['owner']}", *(step.format(**roles) for step in DRESS)
    )
    shop = Shop.open(shop.database)
    looked = [shop.rows(look) for look in LOOKS]
    old = shop.amounts()
    assert shop.warehouse.plan_swap(shop.target, RANGE).losses == ()

    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    assert shop.amounts() == raised(old)
    assert [shop.rows(look) for look in LOOKS] == looked
    shop.warehouse.swap_children(shop.target, way_back(publication))

    assert [shop.rows(look) for look in LOOKS] == looked
    assert isinstance(publication.rows, Backup)
    shop.warehouse.drop(publication.rows.location)
    assert [shop.rows(look) for look in LOOKS] == looked
    shop.database.execute(*(f"DROP OWNED BY {role} CASCADE" for role in roles.values()))


def test_rights_that_a_schema_gives_away_by_default_are_not_added() -> None:
    shop = partitioned()
    clerk = shop.database.role("clerk")
    shop.database.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {clerk}")

    shop.warehouse.swap_children(shop.target, fill(shop))

    assert shop.rows(f"SELECT has_table_privilege('{clerk}', 'analytics.orders_2', 'SELECT')") == [(False,)]
    shop.database.execute(f"DROP OWNED BY {clerk}")


def test_what_cannot_be_carried_over_is_named_when_it_is_planned() -> None:
    shop = partitioned(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER idle BEFORE INSERT ON analytics.orders_2 FOR EACH ROW EXECUTE FUNCTION f()",
        "ALTER TABLE analytics.orders_2 DISABLE TRIGGER idle",
    )

    (loss,) = shop.warehouse.plan_swap(shop.target, RANGE).losses

    assert loss == "Triggers of single partitions will be lost: idle of analytics.orders_2."
    shop.warehouse.swap_children(shop.target, fill(shop))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("CREATE INDEX late ON analytics.orders_2 (note)", "index 1"),
        ("GRANT SELECT ON analytics.orders_2 TO PUBLIC", "grant"),
        ("ALTER TABLE analytics.orders_2 ENABLE ROW LEVEL SECURITY", "row-level security"),
        ("COMMENT ON TABLE analytics.orders_2 IS 'late'", "comment"),
    ],
)
def test_a_child_that_changed_since_its_table_was_filled_is_refused_and_filled_again(change: str, named: str) -> None:
    shop = partitioned()
    old, baseline = shop.amounts(), shop.fingerprint(*RANGE)
    publication = fill(shop)
    shop.database.execute(change)

    with pytest.raises(PublishRefused, match=named):
        shop.warehouse.swap_children(shop.target, publication)
    assert shop.amounts() == old
    assert shop.warehouse.receipts(shop.target) == ()
    shop.warehouse.swap_children(shop.target, fill(shop, before=baseline))

    assert shop.amounts() == raised(old)


def test_staged_rows_that_break_a_constraint_of_a_child_are_refused_while_they_are_filled() -> None:
    shop = partitioned("ALTER TABLE analytics.orders_2 ADD CONSTRAINT below CHECK (amount < 40)")
    old = shop.amounts()

    with pytest.raises(PublishRefused, match=r"(?s)break a constraint.*nothing was written.*below") as refused:
        fill(shop)

    assert "Failing row" not in "".join(traceback.format_exception(refused.value))
    assert shop.amounts() == old
    assert [item.kind for item in shop.warehouse.storage()] == ["stage"]


def test_filled_tables_that_do_not_hold_what_was_validated_are_refused() -> None:
    shop = partitioned()
    old = shop.amounts()
    publication = fill(shop)
    (name,) = [name for (name,) in shop.rows("SELECT relname FROM pg_class WHERE relname ~ '^spare_.*_1$'")]
    shop.database.execute(f'UPDATE safe_backfill_staging."{name}" SET amount = 0 WHERE id = 25')

    with pytest.raises(StageChanged, match="2024-01-03"):
        shop.warehouse.swap_children(shop.target, publication)

    assert shop.amounts() == old
    shop.warehouse.swap_children(shop.target, fill(shop))
    assert shop.amounts() == raised(old)


def test_a_backup_is_never_filled_over() -> None:
    shop = partitioned()
    baseline = shop.fingerprint(*RANGE)
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)

    with pytest.raises(PublishRefused, match="it published before"):
        fill(shop)

    assert held(shop, publication) == baseline


def test_tables_that_were_dropped_are_said_to_be_gone() -> None:
    shop = partitioned()
    publication = fill(shop)
    old = shop.amounts()
    shop.warehouse.drop("spare_b1_7dc96f776c84")
    assert [item.kind for item in shop.warehouse.storage()] == ["stage"]
    assert shop.rows("SELECT count(*) FROM pg_class WHERE relname ~ '^spare'") == [(0,)]

    with pytest.raises(WarehouseError, match="is gone"):
        shop.warehouse.swap_children(shop.target, publication)

    assert shop.amounts() == old


def test_names_stay_within_what_postgresql_keeps_of_them() -> None:
    shop = partitioned(bounds=DAILY)
    staged = shop.stage(*RANGE)
    filled = shop.warehouse.fill_children(shop.target, "b" * 64, staged)

    assert len(f"{filled.location}_99999".encode()) == 63
    assert shop.warehouse.fingerprint(shop.target, filled, RANGE) == {
        entry.partition.key: entry.fingerprint for entry in staged.partitions
    }


@pytest.mark.parametrize("member", [False, True], ids=["the owner", "a member of the owner"])
def test_the_owner_needs_no_other_rights_to_exchange_and_back(member: bool) -> None:
    shop = partitioned(bounds=DAILY)
    clerk, owner = shop.database.role("clerk"), shop.database.role("owner")
    of_table = owner if member else clerk
    shop.database.execute(
        f"GRANT {owner} TO {clerk}",
        f"GRANT CREATE ON DATABASE {shop.database.name} TO {clerk}",
        f"GRANT USAGE, CREATE ON SCHEMA analytics TO {clerk}, {owner}",
        f"ALTER TABLE analytics.orders OWNER TO {of_table}",
        *(f"ALTER TABLE analytics.{child} OWNER TO {of_table}" for child in files(shop)),
    )
    old = shop.amounts()
    owners = "SELECT relname, relowner::regrole::text FROM pg_class WHERE relname ~ '^orders' ORDER BY 1"
    before = shop.rows(owners)
    shop = Shop.open(shop.database, staging_schema="of_the_clerk")
    shop.warehouse.close()
    shop.warehouse = shop.database.warehouse(login={"user": clerk}, staging_schema="of_the_clerk")

    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    assert shop.amounts() == raised(old)
    assert shop.rows(owners) == before
    back = shop.warehouse.swap_children(shop.target, way_back(publication))

    assert back.locked_for is not None
    assert shop.amounts() == old
    assert shop.rows(owners) == before
    assert isinstance(publication.rows, Backup)
    shop.warehouse.drop(publication.rows.location)
    shop.warehouse.close()
    shop.database.execute(*(f"DROP OWNED BY {role} CASCADE" for role in (clerk, owner)))


def test_columns_of_every_make_and_order_land_by_name() -> None:
    database = Database.create()
    database.execute(
        "CREATE SCHEMA \"Ana\"; CREATE TYPE mood AS ENUM ('good', 'bad')",
        'CREATE TABLE "Ana"."Orders" ("Id" BIGINT GENERATED ALWAYS AS IDENTITY, gone INT, "Day" DATE, how mood, '
        "amount NUMERIC(10, 2), twice NUMERIC GENERATED ALWAYS AS (amount * 2) STORED, more JSONB, tags TEXT[]) "
        'PARTITION BY RANGE ("Day")',
        'ALTER TABLE "Ana"."Orders" DROP COLUMN gone',
        'CREATE TABLE "Ana"."Orders\'s first" (tags TEXT[], "Day" DATE, more JSONB, nothing INT, "Id" BIGINT NOT NULL, '
        "amount NUMERIC(10, 2), how mood, twice NUMERIC GENERATED ALWAYS AS (amount * 2) STORED)",
        'ALTER TABLE "Ana"."Orders\'s first" DROP COLUMN nothing',
        'ALTER TABLE "Ana"."Orders" ATTACH PARTITION "Ana"."Orders\'s first" FOR VALUES FROM (\'2024-01-02\') TO (\'2024-01-05\')',
        'INSERT INTO "Ana"."Orders" ("Day", how, amount, more, tags) '
        "SELECT DATE '2024-01-02' + i % 3, 'good', i + 0.50, '{\"a\": [1]}', ARRAY['x', NULL] FROM generate_series(1, 9) AS t(i)",
    )
    warehouse = database.warehouse()
    target = warehouse.describe("Ana.Orders", "Day", ["Id"])
    look = 'SELECT "Id", "Day", how, amount, twice, more, tags FROM "Ana"."Orders" ORDER BY 1'
    old = database.rows(look)
    before = warehouse.fingerprint(target, Published(), RANGE)
    with warehouse.open_stage(target, "b1", "x") as stage:
        staged = Staged(
            tuple(
                write_one(
                    stage,
                    one,
                    'SELECT "Id", "Day", \'bad\'::mood AS how, (amount + 1)::numeric(10, 2) AS amount, more, tags '
                    f'FROM "Ana"."Orders" WHERE "Day" = \'{one.key}\'',
                )
                for one in RANGE
            )
        )
    after = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
    filled = warehouse.fill_children(target, "b1", staged)
    publication = Publication("b1", Action.PUBLISH, "p1", RANGE, filled, before, after)

    warehouse.swap_children(target, publication)

    assert [(row[0], row[2], row[4]) for row in database.rows(look)] == [(row[0], "bad", row[4] + 2) for row in old]
    database.execute(
        'INSERT INTO "Ana"."Orders" ("Day", amount) VALUES (\'2024-01-02\', 1)',
        'DELETE FROM "Ana"."Orders" WHERE "Id" = 10',
    )
    warehouse.swap_children(target, way_back(publication))
    assert database.rows(look) == old


def test_who_may_read_a_partition_alone_may_not_read_what_will_take_its_place_before_it_does() -> None:
    shop = partitioned()
    clerk = shop.database.role("clerk")
    shop.stage(*RANGE)
    shop.database.execute(
        f"GRANT USAGE ON SCHEMA safe_backfill_staging TO {clerk}", f"GRANT SELECT ON analytics.orders_2 TO {clerk}"
    )

    with pytest.raises(WarehouseError, match=f"{clerk} may read what is staged"):
        fill(shop)

    assert [item.kind for item in shop.warehouse.storage()] == ["stage", "stage"]
    shop.database.execute(f"DROP OWNED BY {clerk}")
