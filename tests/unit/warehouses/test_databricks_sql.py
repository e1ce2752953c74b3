"""What Databricks SQL is told, as text: names, literals, predicates, and what its catalog says of a table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
import sqlglot
from databricks_local.fake import FakeConnection
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Target
from airflow_backfill_provider.warehouses.clocks import UTC_DATE, UTC_TIMESTAMP, Clock, ColumnKind
from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse
from airflow_backfill_provider.warehouses.databricks.aliases import aliases
from airflow_backfill_provider.warehouses.databricks.catalog import numbered, parse_description, refuse_kind
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.databricks.types import canonical, is_hashable, lossless
from airflow_backfill_provider.windows import Grain, Partition, Value, partition_at

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))


def only(sql: str) -> exp.Expression:
    tree = sqlglot.parse_one(sql, dialect="databricks")
    assert isinstance(tree, exp.Select)
    (found,) = tree.expressions
    return found


@settings(deadline=None)
@given(TEXT)
def test_a_text_literal_is_read_back_as_the_text(text: str) -> None:
    found = only(f"SELECT {SPELLING.text_literal(text)}")

    assert isinstance(found, exp.Literal)
    assert found.this == text


@settings(deadline=None)
@given(TEXT.filter(bool))
def test_any_name_is_quoted(name: str) -> None:
    found = only(f"SELECT {SPELLING.quote(name)}")

    assert isinstance(found, exp.Column)
    assert found.name == name


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (date(2024, 1, 2), "DATE '2024-01-02'"),
        (datetime.fromisoformat("2024-01-02T03:00"), "TIMESTAMP_NTZ '2024-01-02 03:00:00'"),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "TIMESTAMP '2024-01-02 03:00:00+00:00'"),
        (7, "7"),
    ],
)
def test_a_bound_is_a_literal_of_the_column_s_own_type(value: object, written: str) -> None:
    assert SPELLING.shown_literal(value) == written  # type: ignore[arg-type]


def test_numbers_keep_every_digit() -> None:
    assert SPELLING.literal(Decimal("1.10")) == "1.10"
    assert SPELLING.literal(0.1) == "CAST('0.1' AS DOUBLE)"


@pytest.mark.parametrize(
    ("clock", "wanted"),
    [
        (UTC_DATE, "((d >= DATE '2024-01-02' AND d < DATE '2024-01-03'))"),
        (UTC_TIMESTAMP, "((d >= TIMESTAMP_NTZ '2024-01-02 00:00:00' AND d < TIMESTAMP_NTZ '2024-01-03 00:00:00'))"),
    ],
)
def test_a_range_is_bounded_on_both_sides(clock: Clock, wanted: str) -> None:
    assert SPELLING.within("d", [partition_at(date(2024, 1, 2), Grain.DAY)], clock) == wanted


def test_a_range_of_nothing_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="needs at least one"):
        SPELLING.within("d", [], UTC_DATE)


def test_values_of_a_list_are_escaped() -> None:
    predicate = SPELLING.within("c", [Partition("here", Value("it's \\ here"))], Clock(ColumnKind.TEXT))

    assert predicate == "(c IN ('it\\'s \\\\ here'))"


def test_a_null_cannot_move_from_one_column_to_the_next_unseen() -> None:
    assert DIALECT.row_hash(["a", "b"]) == (
        "CAST(xxhash64(r.`a`, isnull(r.`a`), r.`b`, isnull(r.`b`)) AS DECIMAL(20, 0))"
    )


@pytest.mark.parametrize("kind", ["MAP<STRING, INT>", "struct<a:map<string,int>>", "VARIANT", "INTERVAL DAY TO SECOND"])
def test_a_type_without_a_hash_is_known(kind: str) -> None:
    assert not is_hashable(canonical(kind))


def test_the_names_of_fields_keep_their_case() -> None:
    assert canonical("struct<Amount:decimal(12,2)>") == "struct<Amount:decimal(12,2)>"
    assert canonical("decimal(12, 2)") == "DECIMAL(12,2)"


@pytest.mark.parametrize(
    ("source", "target"), [("timestamp", "timestamp_ntz"), ("timestamp_ntz", "timestamp"), ("string", "binary")]
)
def test_what_hangs_on_a_session_is_not_lossless(source: str, target: str) -> None:
    assert not lossless(source, target)


def described(kind: str, provider: str = "delta") -> list[tuple[str, str, str | None]]:
    return [
        ("id", "bigint", None),
        ("Day", "date", "the day"),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("Day", "date", None),
        ("", "", ""),
        ("# Detailed Table Information", "", ""),
        ("Catalog", "main", ""),
        ("Database", "analytics", ""),
        ("Table", "orders", ""),
        ("Type", kind, ""),
        ("Provider", provider, ""),
    ]


def test_a_description_is_taken_apart() -> None:
    found = parse_description(described("MANAGED"))

    assert found.types == {"id": "BIGINT", "Day": "DATE"}
    assert found.place.sql == "`main`.`analytics`.`orders`"
    assert not found.place.is_view
    refuse_kind(found, "analytics.orders")


@pytest.mark.parametrize(
    ("kind", "provider", "told"),
    [
        ("STREAMING_TABLE", "delta", "a streaming table.*Backfill the table that the pipeline reads"),
        ("MATERIALIZED_VIEW", "delta", "a materialized view.*full refresh"),
        ("VIEW", "delta", "a view, which has no rows of its own"),
        ("EXTERNAL", "parquet", "a table of parquet files.*CONVERT TO DELTA"),
        ("EXTERNAL", "csv", "a table of csv files.*Copy its rows into a Delta table"),
        ("METRIC_VIEW", "delta", "of type METRIC_VIEW.*managed or external Delta table"),
        ("FOREIGN", "postgresql", "of type FOREIGN.*managed or external Delta table"),
        ("", "delta", "of a type that the catalog does not tell.*managed or external Delta table"),
    ],
)
def test_what_a_backfill_must_not_write_is_refused_with_the_right_way(kind: str, provider: str, told: str) -> None:
    with pytest.raises(SpecError, match=f"analytics.orders is {told}"):
        refuse_kind(parse_description(described(kind, provider)), "analytics.orders")


@pytest.mark.parametrize(
    ("veil", "told"),
    [
        pytest.param([("Row Filter", "main.sec.by_region ON (region)", "")], "a row filter", id="a row filter"),
        pytest.param(
            [("# Row Filter", "", ""), ("Function", "main.sec.by_region", "")], "a row filter", id="as a section"
        ),
        pytest.param([("# Column Masks", "", ""), ("email", "main.sec.mask", "")], "column masks", id="column masks"),
    ],
)
def test_a_table_that_not_every_login_sees_whole_is_refused(veil: list[tuple[str, str, str]], told: str) -> None:
    found = parse_description([*described("MANAGED"), *veil])

    with pytest.raises(SpecError, match=f"analytics.orders has {told}, so"):
        refuse_kind(found, "analytics.orders")


def test_a_column_may_be_called_as_a_row_filter_is() -> None:
    refuse_kind(parse_description([("Row Filter", "string", None), *described("MANAGED")]), "analytics.orders")


def test_a_column_that_the_client_s_catalog_call_does_not_list_is_not_taken_as_one_that_may_be_null() -> None:
    def answer(sql: str) -> list[dict[str, object]]:
        if sql == "GetColumns":
            there = {"TABLE_SCHEM": "analytics", "TABLE_NAME": "orders", "COLUMN_NAME": "id", "IS_NULLABLE": "NO"}
            return [there]
        if sql.startswith("DESCRIBE"):
            return [dict(zip("abc", row, strict=True)) for row in described("MANAGED")]
        return []

    warehouse = DatabricksWarehouse(lambda settings: FakeConnection(answer))

    with pytest.raises(WarehouseError, match=r"lists no column Day of analytics\.orders"):
        warehouse.describe("analytics.orders", "Day", ["id"])


def test_columns_that_delta_numbers_itself_are_read_from_the_definition() -> None:
    definition = """CREATE TABLE main.analytics.orders (
      id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 1 INCREMENT BY 1) COMMENT 'a, b',
      note STRING COMMENT 'GENERATED ALWAYS AS IDENTITY',
      `odd, (name` BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
      given BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 1 INCREMENT BY 1),
      amount DECIMAL(12,2),
      day DATE GENERATED ALWAYS AS ( CAST(at AS DATE) ))
    USING delta CLUSTER BY AUTO TBLPROPERTIES ('a' = 'b GENERATED ALWAYS AS IDENTITY')"""

    assert list(numbered(definition)) == ["id", "odd, (name"]


def test_a_view_is_seen_through_by_the_text_it_keeps_and_the_schema_it_was_made_in() -> None:
    texts = {
        "main.marts.known": "WITH latest AS (SELECT * FROM shown) SELECT * FROM latest",
        "main.marts.shown": "SELECT * FROM analytics.orders",
        "main.marts.itself": "SELECT * FROM itself",
        "main.marts.orders": "SELECT * FROM raw.events",
    }

    class Catalog:
        def run(self, sql: str) -> list[tuple[str, str, str | None]]:
            asked = [
                part.name for part in exp.to_table(sql.removeprefix("DESCRIBE TABLE EXTENDED "), "databricks").parts
            ]
            catalog, schema, name = ["main", *asked][-3:]
            text = texts.get(f"{catalog}.{schema}.{name}")
            facts = {"Catalog": catalog, "Database": schema, "Table": name, "Type": "VIEW" if text else "MANAGED"}
            if text:
                facts |= {"View Text": text, "View Catalog and Namespace": "main.marts"}
            return [
                ("id", "bigint", None),
                ("# Detailed Table Information", "", ""),
                *((*fact, "") for fact in facts.items()),
            ]

    names = ["marts.known", "main.marts.shown", "marts.itself", "marts.orders", "raw.events"]

    assert aliases(Catalog(), "analytics.orders", names) == ("marts.known", "main.marts.shown")  # type: ignore[arg-type]


def test_a_column_that_a_publish_could_not_take_back_is_refused_with_the_statement_that_adds_it() -> None:
    added = Column("tax", "decimal(12,2)", added="NULL: it's unknown")
    target = Target("shop.sales.orders", "day", UTC_DATE, ("id",), (Column("id", "bigint"), added))
    warehouse = DatabricksWarehouse(lambda _: None)  # type: ignore[arg-type, return-value]

    with pytest.raises(
        SpecError, match=r"Run: ALTER TABLE shop\.sales\.orders ADD COLUMNS \(`tax` decimal\(12,2\) COMMENT"
    ):
        warehouse.growth_cautions(target)
