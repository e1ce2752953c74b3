"""The orders of the shop in a table that PostgreSQL partitions by day: for the tests of publish.swap."""

from __future__ import annotations

from typing import Any

from postgres_shop import RANGE, Database, Shop

from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Publication

WIDE = (("MINVALUE", "'2024-01-02'"), ("'2024-01-02'", "'2024-01-05'"), ("'2024-01-05'", "MAXVALUE"))
"""One child holds the three planned days."""
DAILY = tuple((f"'2024-01-{day:02}'", f"'2024-01-{day + 1:02}'") for day in range(1, 11))


def partitioned(
    *more: str, bounds: tuple[tuple[str, str], ...] = WIDE, rest: bool = True, size: int = 10, **settings: Any
) -> Shop:
    """Children are called ``orders_1`` and so on; ``rest`` adds a DEFAULT one, with a row that has no day."""
    database = Database.create()
    database.execute(
        "CREATE SCHEMA analytics",
        "CREATE TABLE analytics.orders (id BIGINT, day DATE, amount BIGINT, note VARCHAR) PARTITION BY RANGE (day)",
        *(
            f"CREATE TABLE analytics.orders_{number} PARTITION OF analytics.orders FOR VALUES FROM ({low}) TO ({high})"
            for number, (low, high) in enumerate(bounds, 1)
        ),
        *(["CREATE TABLE analytics.orders_rest PARTITION OF analytics.orders DEFAULT"] if rest else []),
        f"INSERT INTO analytics.orders SELECT i, DATE '2024-01-01' + i / {size}, i, 'n' || i FROM generate_series(0, 10 * {size} - 1) AS t(i)",
        *(["INSERT INTO analytics.orders VALUES (-1, NULL, 1, 'no day')"] if rest else []),
        *more,
    )
    return Shop.open(database, **settings)


def fill(shop: Shop, *, before: dict[str, Fingerprint] | None = None) -> Publication:
    """Stage and fill the range; what to publish then."""
    staged = shop.stage(*RANGE)
    after = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
    return shop.publication(shop.warehouse.fill_children(shop.target, "b1", staged), before=before, after=after)


def way_back(publication: Publication) -> Publication:
    """The rollback of that publish."""
    return Publication(
        "b1", Action.ROLLBACK, "p1", publication.partitions, publication.rows, publication.after, publication.before
    )


def files(shop: Shop, table: str = "analytics.orders") -> dict[str, int]:
    """Which file each child has: another one when another table took its place."""
    return dict(
        shop.rows(
            "SELECT c.relname, c.relfilenode::bigint FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
            f"WHERE i.inhparent = '{table}'::regclass"
        )
    )


def held(shop: Shop, publication: Publication) -> dict[str, Fingerprint]:
    """What is kept beside the table."""
    assert isinstance(publication.rows, Backup)
    return shop.warehouse.fingerprint(shop.target, publication.rows, publication.partitions)
