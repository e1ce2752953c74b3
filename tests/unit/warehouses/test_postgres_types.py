"""Columns of every type and tables of every kind: staged, published and undone unchanged, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from postgres_shop import Database, Shop, clean_server, day, days, pytestmark
from stage_writing import write_one

from airflow_backfill_provider.errors import BackfillError, PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import build_plan
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.warehouses.base import Action, Published, Recompute, Staged
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.windows import Grain, parse_key

__all__ = ["clean_server", "pytestmark"]

RANGE = days(2, 3)
TYPES = {
    "smallint": ["-32768", "7", "NULL"],
    "numeric": ["1.50", "'NaN'", "'Infinity'", "1e-20", "NULL"],
    "numeric(12,2)": ["1.50", "'NaN'", "NULL"],
    "numeric(5,-2)": ["1200"],
    "real": ["1.1", "'-0'", "'NaN'"],
    "double precision": ["0.1", "'-Infinity'", "'NaN'"],
    "boolean": ["true", "NULL"],
    "date": ["'infinity'", "'-infinity'", "'0044-03-15 BC'", "'9999-12-31'"],
    "timestamp(3)": ["'2024-03-10 05:59:59.999'", "'infinity'"],
    "timestamptz": ["'2024-03-10 06:00:00+00'", "'infinity'", "'-infinity'"],
    "time(2)": ["'23:59:59.99'"],
    "timetz": ["'23:59:59.99+05:30'"],
    "interval": ["'1 mon 2 days 03:04:05.678'", "'-1 year'"],
    "interval day to second(3)": ["'2 days 03:04:05.678'"],
    "bytea": [r"'\x00ff'", "''"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "char(4)": ["'ab'", "''"],
    "varchar(3)": ["'abc'"],
    '"char"': ["'x'"],
    "name": ["'n'"],
    "text": [r"'back\slash ''quote'", "''", "'é💥'"],
    "inet": ["'10.0.0.1/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "jsonb": ["""'{"b": 1, "a": [null, 1.50, "é"]}'""", "'null'", "NULL"],
    "integer[]": ["'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'"],
    "text[]": ["""'{"a,b", NULL, "q\\"uote"}'"""],
    "numeric(8,2)[]": ["'{1.25}'"],
    "int4range": ["'[1,5)'", "'empty'", "'(,3]'"],
    "tstzrange": ["'[2024-01-01 00:00+00,)'"],
    "datemultirange": ["'{[2024-01-01,2024-01-05),[2024-02-01,2024-02-02)}'"],
    "oid": ["4294967295"],
    "pg_lsn": ["'16/B374D848'"],
    "analytics.mood": ["'so so'", "NULL"],
    "analytics.mood[]": ["'{\"so so\",fine}'"],
    'analytics."Odd Name"': ["'a'"],
    "analytics.positive": ["3"],
    "analytics.required": ["'x'"],
    "analytics.narrower": ["4"],
    "analytics.pair": ["ROW(1, 'two')"],
    "citext": ["'AbC'"],
    "hstore": ["'a=>1'"],
}
SETUP = (
    "CREATE SCHEMA analytics",
    "CREATE EXTENSION citext",
    "CREATE EXTENSION hstore",
    "CREATE TYPE analytics.mood AS ENUM ('fine', 'so so')",
    "CREATE TYPE analytics.\"Odd Name\" AS ENUM ('a', 'b')",
    "CREATE DOMAIN analytics.positive AS integer CHECK (VALUE > 0)",
    "CREATE DOMAIN analytics.narrower AS analytics.positive CHECK (VALUE < 10)",
    "CREATE DOMAIN analytics.required AS varchar(5) NOT NULL",
    "CREATE TYPE analytics.pair AS (one integer, two text)",
)
ROWS = "SELECT i, DATE '2024-01-01' + i / 5, i FROM generate_series(0, 19) AS i"


def _round_trip(shop: Shop, selects: dict[str, str], mechanism: str = "replace_partitions") -> None:
    """Stage, publish, undo; after each, the fingerprints are what they must be."""
    warehouse, target = shop.warehouse, shop.target
    backup, baseline = warehouse.back_up(target, "b1", RANGE, label="x")
    assert baseline == warehouse.fingerprint(target, Published(), RANGE)
    with warehouse.open_stage(target, "b1", "x") as stage:
        staged = Staged(tuple(write_one(stage, day, selects[day.key]) for day in RANGE))
    publication = shop.publication(staged, RANGE)
    publish = getattr(warehouse, mechanism)
    publish(target, publication)
    assert warehouse.fingerprint(target, Published(), RANGE) == publication.after
    publish(target, replace(publication, action=Action.ROLLBACK, rows=backup, before=publication.after, after=baseline))
    assert warehouse.fingerprint(target, Published(), RANGE) == baseline


def _each_day(select: str) -> dict[str, str]:
    return {day.key: select.format(f"d = DATE '{day.key}'") for day in RANGE}


def test_every_type_is_staged_published_and_undone_to_the_same_rows_whatever_the_session() -> None:
    database = Database.create()
    database.execute(*SETUP)
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    database.execute(f"CREATE TABLE analytics.t (id integer, d date, {columns})")
    longest = max(map(len, TYPES.values()))
    for number in range(longest):
        values = ", ".join(own[number % len(own)] for own in TYPES.values())
        database.execute(
            f"INSERT INTO analytics.t VALUES ({number}, '2024-01-02', {values}), ({100 + number}, '2024-01-03', {values})"
        )
    everything = "SELECT t::text FROM analytics.t AS t ORDER BY id"
    old = database.rows(everything)
    marks = []
    for zone, style in (("Asia/Kolkata", "German"), ("America/Chicago", "SQL,DMY")):
        login = {"options": f"-c TimeZone={zone} -c DateStyle={style} -c IntervalStyle=sql_standard"}
        warehouse = database.warehouse(login=login)
        shop = Shop(database, warehouse, warehouse.describe("analytics.t", "d", ["id"]))
        assert [column.name for column in shop.target.columns if not column.hashable] == []
        lands = {column.name: column.type for column in shop.target.columns}
        produced = warehouse.select_columns("SELECT * FROM analytics.t")
        assert [one for one in produced if not warehouse.lossless(one.type, lands[one.name])] == []
        _round_trip(shop, _each_day("SELECT * FROM analytics.t WHERE {}"))
        with warehouse.open_stage(shop.target, "b1", "same") as stage:
            selects = _each_day("SELECT * FROM analytics.t WHERE {}")
            same = Staged(tuple(write_one(stage, day, selects[day.key]) for day in RANGE))
        diffs = warehouse.compare(shop.target, Published(), same, RANGE)
        assert [(diff.old, diff.identical) for diff in diffs.values()] == [(longest, longest)] * 2
        _round_trip(shop, _each_day("SELECT * FROM analytics.t WHERE {} AND id % 2 = 0"), "merge")
        marks.append(warehouse.fingerprint(shop.target, Published(), RANGE))
        assert database.rows(everything) == old

    assert marks[0] == marks[1]


@pytest.mark.parametrize("kind", ["json", "xml", "bit(3)", "point", "tsvector", "money", "json[]"])
def test_a_column_that_cannot_be_hashed_is_said_by_name_when_the_table_is_described(kind: str) -> None:
    database = Database.create()
    database.execute("CREATE SCHEMA analytics", f"CREATE TABLE analytics.t (id integer, d date, fine text, odd {kind})")
    warehouse = database.warehouse()

    target = warehouse.describe("analytics.t", "d", ["id"])

    assert [column.name for column in target.columns if not column.hashable] == ["odd"]
    with pytest.raises(SpecError, match="odd"):
        warehouse.describe("analytics.t", "d", ["odd"])


@pytest.mark.parametrize("identity", ["ALWAYS", "BY DEFAULT"])
@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
def test_identity_generated_and_default_columns_keep_their_values(identity: str, mechanism: str) -> None:
    database = Database.create()
    database.execute(
        f"CREATE TABLE t (id bigint GENERATED {identity} AS IDENTITY PRIMARY KEY, d date, v integer DEFAULT 7, "
        "twice integer GENERATED ALWAYS AS (v * 2) STORED, s serial, at timestamptz DEFAULT now())",
        "INSERT INTO t (d, v) SELECT DATE '2024-01-01' + i / 5, i FROM generate_series(0, 19) AS i",
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "d", ["id"]))
    old = database.rows("SELECT * FROM t ORDER BY id")

    assert [column.name for column in shop.target.columns if column.generated] == ["twice"]
    _round_trip(shop, _each_day("SELECT id, d, v + 1 AS v, s, at FROM t WHERE {}"), mechanism)

    assert database.rows("SELECT * FROM t ORDER BY id") == old


def test_a_merge_that_would_renumber_a_column_that_the_table_numbers_is_refused() -> None:
    database = Database.create()
    database.execute(
        "CREATE TABLE t (k integer, d date, n bigint GENERATED ALWAYS AS IDENTITY)",
        "INSERT INTO t (k, d) SELECT i, DATE '2024-01-01' + i / 5 FROM generate_series(0, 19) AS i",
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "d", ["k"]))
    selects = _each_day("SELECT k, d, n + 100 AS n FROM t WHERE {}")

    with pytest.raises(PublishRefused, match="numbers a column itself"):
        _round_trip(shop, selects, "merge")
    _round_trip(shop, selects)


@pytest.mark.parametrize(
    ("identity", "key", "mechanism", "is_planned"),
    [
        ("ALWAYS", "k", "merge", False),
        ("ALWAYS", "n", "merge", True),
        ("ALWAYS", "k", "replace_partitions", True),
        ("BY DEFAULT", "k", "merge", True),
    ],
)
def test_a_merge_is_not_even_planned_where_the_table_numbers_a_column_that_it_would_set(
    identity: str, key: str, mechanism: str, is_planned: bool
) -> None:
    database = Database.create()
    database.execute(
        f"CREATE TABLE t (k integer, d date, n bigint GENERATED {identity} AS IDENTITY)",
        "INSERT INTO t (k, d) SELECT i, DATE '2024-01-01' + i / 5 FROM generate_series(0, 19) AS i",
    )
    spec = BackfillSpec.model_validate(
        {
            "name": "t",
            "target": {"table": "public.t", "partition_by": "d", "key": [key]},
            "transform": {
                "sql": "SELECT k, d, n FROM t WHERE d = '{{ data_interval_start | ds }}'",
                "depends_on_past": False,
            },
            "compute": {"conn_id": "c"},
            "publish": {"mechanism": mechanism},
        }
    )
    request = Request(start_date="2024-01-02", end_date="2024-01-03")

    def plan() -> Plan:
        now = datetime(2024, 6, 1, tzinfo=UTC)
        return build_plan(spec, request, database.warehouse(), backfill_id="b1", now=now)

    if is_planned:
        assert plan().keys == ("2024-01-02", "2024-01-03")
    else:
        with pytest.raises(SpecError, match=r"numbers n itself.*GENERATED BY DEFAULT"):
            plan()


def test_names_that_need_quotes_and_names_of_63_bytes_work_everywhere() -> None:
    database = Database.create()
    long = "é" * 31 + "x"
    database.execute(
        'CREATE SCHEMA "Sele ct"',
        f'CREATE TABLE "Sele ct"."{long}" ("Id" integer PRIMARY KEY, "d" date, "order" text, "a ""b" text, "{"y" * 63}" text)',
        f"INSERT INTO \"Sele ct\".\"{long}\" SELECT i, DATE '2024-01-01' + i / 5, 'a', 'b', 'c' FROM generate_series(0, 19) AS i",
    )
    warehouse = database.warehouse(staging_schema="S" * 63)
    shop = Shop(database, warehouse, warehouse.describe(f"Sele ct.{long}", "D", ["id"]))

    # In another case, as SQL without quotes spells them; what the plan lets through fits here too.
    select = f'SELECT "Id" AS id, d, "order" AS "ORDER", "a ""b", "{"y" * 63}" FROM "Sele ct"."{long}" WHERE {{}}'
    _round_trip(shop, _each_day(select))

    assert {item.backfill_id for item in warehouse.storage()} == {"b1"}
    assert [receipt.sequence for receipt in warehouse.receipts(shop.target)] == [1, 2]
    with warehouse.open_stage(shop.target, "x" * 40, "y" * 64) as stage:
        assert write_one(stage, RANGE[0], _each_day(select)[RANGE[0].key]).fingerprint.rows == 5
        assert len(stage.location) <= 63


def test_a_staging_schema_that_postgresql_would_cut_off_is_refused() -> None:
    with pytest.raises(SpecError, match="64 bytes"):
        Database.create().warehouse(staging_schema="S" * 64)


def test_two_columns_that_differ_in_case_only_each_get_their_own_values() -> None:
    database = Database.create()
    database.execute(
        'CREATE TABLE t (id integer, d date, v integer, "V" integer)', "INSERT INTO t VALUES (1, '2024-01-02', 1, 2)"
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "d", ["id"]))

    with warehouse.open_stage(shop.target, "b1", "x") as stage:
        entry = write_one(stage, RANGE[0], "SELECT * FROM t")

    assert entry.fingerprint == shop.fingerprint(RANGE[0])[RANGE[0].key]


def test_a_bare_null_fits_a_column_of_any_type_also_beside_rows_that_are_kept() -> None:
    database = Database.create()
    database.execute(
        "CREATE TYPE mood AS ENUM ('fine')",
        "CREATE TABLE t (id integer, d date, m mood, v integer)",
        "INSERT INTO t VALUES (1, '2024-01-02', 'fine', 1), (2, '2024-01-02', 'fine', 2)",
    )
    warehouse = database.warehouse()
    target = warehouse.describe("t", "d", ["id"])

    with warehouse.open_stage(target, "b1", "x") as stage:
        select = "SELECT 1 AS id, d, NULL AS m, NULL AS v FROM t WHERE id = 1"
        (entry,) = stage.write(Recompute((RANGE[0],), select, keep_unmatched=True))
        rows = database.rows(f'SELECT id, m, v FROM safe_backfill_staging."{stage.location}" ORDER BY id')

    assert entry.fingerprint.rows == 2
    assert rows == [(1, None, None), (2, "fine", 2)]


def test_a_database_in_another_encoding_reads_and_writes_its_own_letters() -> None:
    database = Database.create("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    database.execute(
        'CREATE TABLE t (id integer, d date, "é" text)',
        "INSERT INTO t SELECT i, DATE '2024-01-01' + i / 5, 'ü' FROM generate_series(0, 19) AS i",
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "d", ["id"]))

    assert [one.name for one in warehouse.select_columns('SELECT id AS "ö" FROM t WHERE "é" = \'ü\'')] == ["ö"]
    _round_trip(shop, _each_day('SELECT id, d, "é" || \'ß\' AS "é" FROM t WHERE {}'))


def test_text_partitions_are_those_that_the_bounds_say_whatever_the_collation() -> None:
    database = Database.create()
    keys = [
        "2024-01-01",
        "2024-01-02",
        "2024-01-02a",
        "2024-01-03",
        "2024-01-04",
        "2024-1-02",
        "２０２４-01-02",
        "20240104",
    ]
    database.execute(
        # It reads past the hyphens, so that 20240104 lies within the day of 2024-01-04.
        "CREATE COLLATION own (provider = icu, locale = 'und-u-ka-shifted')",
        "CREATE TABLE t (id integer, d text COLLATE own)",
        *(f"INSERT INTO t VALUES ({number}, '{key}')" for number, key in enumerate(keys)),
    )
    warehouse = database.warehouse()
    target = warehouse.describe("t", "d", ["id"], Reading(column_format="iso_date"))
    shop = Shop(database, warehouse, target)
    old = database.rows("SELECT * FROM t ORDER BY id")
    only = days(4)

    assert [mark.rows for mark in shop.fingerprint(*days(1, 3, 4)).values()] == [1, 1, 1]
    with warehouse.open_stage(target, "b1", "x") as stage:
        staged = Staged((write_one(stage, only[0], "SELECT 77 AS id, '2024-01-04' AS d"),))
    receipt = warehouse.replace_partitions(target, shop.publication(staged, only))

    assert (receipt.deleted, receipt.inserted) == (1, 1)
    assert database.rows("SELECT * FROM t WHERE id <> 77 ORDER BY id") == [row for row in old if row[0] != 4]


@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
def test_keys_of_a_collation_of_their_own_are_matched_between_stage_and_table(mechanism: str) -> None:
    database = Database.create()
    database.execute(
        'CREATE TABLE t (k text COLLATE "C", other varchar(9) COLLATE "en-x-icu", d date)',
        "INSERT INTO t SELECT i, 'n' || i, DATE '2024-01-01' + i / 5 FROM generate_series(0, 19) AS i",
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "d", ["k", "other"]))
    selects = _each_day("SELECT k, other, d FROM t WHERE {}")

    _round_trip(shop, selects, mechanism)
    with warehouse.open_stage(shop.target, "b1", "same") as stage:
        same = Staged(tuple(write_one(stage, day, selects[day.key]) for day in RANGE))

    diffs = warehouse.compare(shop.target, Published(), same, RANGE)
    assert [(diff.old, diff.identical) for diff in diffs.values()] == [(5, 5)] * 2
    assert warehouse.changed_columns(shop.target, Published(), same, RANGE) == {day.key: {} for day in RANGE}
    assert warehouse.key_conflicts(shop.target, same).outside == 0
    assert shop.fingerprint(*RANGE) == {entry.partition.key: entry.fingerprint for entry in same.partitions}


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
def test_a_day_of_23_hours_is_the_same_rows_in_every_session_time_zone(kind: str) -> None:
    edges = ["2024-03-10 05:59:59.999999", "2024-03-10 06:00", "2024-03-11 04:59:59.999999", "2024-03-11 05:00"]
    rows = {
        "DATE": ["2024-03-09", "2024-03-10", "2024-03-10", "2024-03-11"],
        "TIMESTAMP": edges,
        "TIMESTAMPTZ": [f"{edge}Z" for edge in edges],
    }[kind]
    database = Database.create()
    database.execute(f"CREATE TABLE t (id integer, p {kind})")
    for number, value in enumerate([*rows, "infinity", "-infinity"]):
        database.execute(f"INSERT INTO t VALUES ({number}, '{value}')")
    marks = []
    day = parse_key("2024-03-10", Grain.DAY, "America/Chicago")
    for zone in ("UTC", "America/Chicago", "Asia/Kolkata"):
        warehouse = database.warehouse(login={"options": f"-c TimeZone={zone}"})
        target = warehouse.describe("t", "p", ["id"], Reading("America/Chicago"))
        marks.append(warehouse.fingerprint(target, Published(), [day]))
        with warehouse.open_stage(target, "b1", "x") as stage:
            staged = write_one(stage, day, "SELECT * FROM t WHERE id IN (1, 2)")
        assert {day.key: staged.fingerprint} == marks[-1]

    assert marks[0][day.key].rows == 2
    assert marks[0] == marks[1] == marks[2]


PLAIN = "CREATE TABLE t (id integer PRIMARY KEY, d date NOT NULL, v integer)"
KEYLESS = "CREATE TABLE t (id integer, d date NOT NULL, v integer) PARTITION BY RANGE (d)"
PARTED = "CREATE TABLE t (id integer, d date NOT NULL, v integer, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)"
JANUARY = "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM ('2024-01-01') TO ('2024-01-03')"
FUNCTION = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
FOREIGN = "CREATE EXTENSION postgres_fdw; CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw"
REFERS = "CREATE TABLE o (t_id integer REFERENCES t (id) {})"
REFERS_TO_PART = "CREATE TABLE o (a integer, b date, FOREIGN KEY (a, b) REFERENCES {} (id, d) ON DELETE CASCADE)"


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ((PLAIN, REFERS.format("ON DELETE CASCADE")), "delete rows of o"),
        ((PLAIN, REFERS.format("ON DELETE SET NULL")), "empty columns of rows of o"),
        ((PLAIN, REFERS.format("ON DELETE SET DEFAULT DEFERRABLE")), "reset columns of rows of o"),
        ((PLAIN, REFERS.format("")), "ALTER CONSTRAINT o_t_id_fkey DEFERRABLE"),
        ((PLAIN, REFERS.format("ON DELETE RESTRICT DEFERRABLE")), "restricts deleting"),
        ((PARTED, JANUARY, REFERS_TO_PART.format("t1")), "delete rows of o"),
        ((PARTED, JANUARY, REFERS_TO_PART.format("t")), "delete rows of o"),
        ((PLAIN, FUNCTION, "CREATE TRIGGER g AFTER DELETE ON t EXECUTE FUNCTION f()"), "its triggers g"),
        (
            (PARTED, JANUARY, FUNCTION, "CREATE TRIGGER g BEFORE INSERT ON t1 FOR EACH ROW EXECUTE FUNCTION f()"),
            "its triggers g",
        ),
        ((PLAIN, "CREATE RULE g AS ON DELETE TO t DO INSTEAD NOTHING"), "its rules g"),
        ((PLAIN, "CREATE TABLE child () INHERITS (t)"), "1 tables inherit"),
        ((FOREIGN, "CREATE FOREIGN TABLE t (id integer, d date) SERVER s"), "foreign table"),
        ((KEYLESS, FOREIGN, "CREATE FOREIGN TABLE t1 PARTITION OF t DEFAULT SERVER s"), "partitions t1 are foreign"),
        (
            (
                "CREATE COLLATION own (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
                PLAIN.replace("v integer", "v text COLLATE own"),
            ),
            "its columns v have a collation",
        ),
        (("CREATE VIEW t AS SELECT 1 AS id, DATE '2024-01-02' AS d",), "is a view"),
        (("CREATE MATERIALIZED VIEW t AS SELECT 1 AS id, DATE '2024-01-02' AS d",), "is a view"),
        (("CREATE TABLE t (id integer, b date, d date GENERATED ALWAYS AS (b) STORED)",), "generated column"),
    ],
)
def test_a_table_that_a_publish_would_do_more_or_less_to_is_refused_when_it_is_described(
    statements: tuple[str, ...], said: str
) -> None:
    database = Database.create()
    database.execute(*statements)

    with pytest.raises(SpecError, match=said) as refused:
        database.warehouse().describe("public.t", "d", ["id"])

    assert str(refused.value).count("foreign key") <= 1


def test_the_partition_of_a_table_that_others_refer_to_is_refused_as_the_whole_table_is() -> None:
    database = Database.create()
    database.execute(PARTED, JANUARY, REFERS_TO_PART.format("t"))

    with pytest.raises(SpecError, match="delete rows of o"):
        database.warehouse().describe("public.t1", "d", ["id"])


@pytest.mark.parametrize(
    "statements",
    [
        (PLAIN, "ALTER TABLE t SET UNLOGGED"),
        (PARTED, JANUARY, "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM ('2024-01-03') TO ('2024-02-01')"),
        (PARTED, JANUARY, "CREATE TABLE rest PARTITION OF t DEFAULT"),
        (
            KEYLESS,
            "CREATE TABLE t1 PARTITION OF t DEFAULT PARTITION BY LIST (v)",
            "CREATE TABLE t3 PARTITION OF t1 DEFAULT",
        ),
        (PLAIN, REFERS.format("DEFERRABLE"), f"INSERT INTO t {ROWS}", "INSERT INTO o VALUES (1), (6)"),
        (PLAIN, FUNCTION, "CREATE TRIGGER g AFTER DELETE ON t EXECUTE FUNCTION f()", "ALTER TABLE t DISABLE TRIGGER g"),
        (
            "CREATE TABLE dim (v integer PRIMARY KEY)",
            "INSERT INTO dim SELECT * FROM generate_series(0, 30)",
            PLAIN.replace("v integer", "v integer REFERENCES dim (v)"),
        ),
        (PLAIN, "ALTER TABLE t ADD EXCLUDE USING btree (id WITH =) DEFERRABLE"),
        ("CREATE TABLE t (id integer, d date NOT NULL, v integer, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)",),
        (PLAIN, "CREATE VIEW w AS SELECT * FROM t", "CREATE MATERIALIZED VIEW m AS SELECT * FROM t"),
        (PLAIN, "ALTER TABLE t ENABLE ROW LEVEL SECURITY"),
        (PARTED.replace("TABLE t", "TABLE parent"), "CREATE TABLE t PARTITION OF parent DEFAULT"),
    ],
)
@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
def test_tables_of_other_kinds_are_published_and_undone(statements: tuple[str, ...], mechanism: str) -> None:
    database = Database.create()
    database.execute(*statements)
    if not database.rows("SELECT 1 FROM t"):
        database.execute(f"INSERT INTO t {ROWS}")
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("public.t", "d", ["id"]))
    old = database.rows("SELECT * FROM t ORDER BY id")

    _round_trip(shop, _each_day("SELECT id, d, v + 1 AS v FROM t WHERE {}"), mechanism)

    assert database.rows("SELECT * FROM t ORDER BY id") == old


def test_a_row_that_other_tables_refer_to_may_not_go_and_nothing_is_written() -> None:
    database = Database.create()
    database.execute(PLAIN, REFERS.format("DEFERRABLE"), f"INSERT INTO t {ROWS}", "INSERT INTO o VALUES (6)")
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("public.t", "d", ["id"]))
    old = database.rows("SELECT * FROM t ORDER BY id")

    with pytest.raises(PublishRefused, match="o_t_id_fkey"):
        _round_trip(shop, _each_day("SELECT * FROM t WHERE id <> 6 AND {}"))

    assert database.rows("SELECT * FROM t ORDER BY id") == old
    assert warehouse.receipts(shop.target) == ()


@pytest.mark.parametrize(
    ("select", "error"),
    [
        ("SELECT 1 AS id, DATE '2024-01-02' AS d, 'abcdef' AS v", "too long"),
        ("SELECT 99999999999 AS id, DATE '2024-01-02' AS d, 'a' AS v", "out of range"),
        ("SELECT 1 AS id, DATE '2024-01-02' AS d, 'a' AS v, 3 AS x", "returns x"),
        ("SELECT 1 AS id, DATE '2024-01-02' AS d, 'a' AS v; DROP TABLE t", "one SELECT"),
        ("SELECT 1 AS id, DATE '2024-01-02' AS d, 'a' AS v) AS s; DROP TABLE t; SELECT (1", "one SELECT"),
        ("WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone", "WITH|one SELECT"),
    ],
)
def test_a_select_that_does_not_fit_or_is_more_than_a_select_keeps_nothing(select: str, error: str) -> None:
    database = Database.create()
    database.execute("CREATE TABLE t (id integer, d date, v varchar(3))", "INSERT INTO t VALUES (1, '2024-01-02', 'a')")
    warehouse = database.warehouse()
    target = warehouse.describe("t", "d", ["id"])

    with pytest.raises(BackfillError, match=error), warehouse.open_stage(target, "b1", "x") as stage:
        write_one(stage, day(2), select)

    assert database.rows("SELECT * FROM t") != []
    assert warehouse.storage() == ()


def test_a_row_that_no_partition_of_the_table_takes_is_a_refusal_and_nothing_is_written() -> None:
    database = Database.create()
    database.execute(PARTED, JANUARY, "INSERT INTO t VALUES (1, '2024-01-02', 1)")
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("public.t", "d", ["id"]))
    late = "SELECT 2 AS id, DATE '2024-01-03' AS d, 1 AS v"

    with pytest.raises((PublishRefused, WarehouseError), match="no partition of relation"):
        _round_trip(shop, {"2024-01-02": "SELECT * FROM t", "2024-01-03": late})

    assert database.rows("SELECT id FROM t") == [(1,)]
