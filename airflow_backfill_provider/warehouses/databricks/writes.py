"""The one statement that a publish is: it replaces or merges the range, and proves in its own snapshot what it finds there
and what lands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.warehouses.base import Fingerprint, Publication, Target
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece, fingerprints

NOT_PROVEN = "safe_backfill: not what was validated"
"""What the error of a statement says whose proof failed."""
_GONE = SPELLING.quote("safe_backfill_gone")


def replacing(name: str, target: Target, publication: Publication, landing: Sequence[Piece]) -> str:
    """An INSERT that replaces the whole range of the table of that name. Its last SELECTs return no row, or end it: when the
    range is not ``before`` in the snapshot that it replaces, or what lands is not ``after``."""
    names = target.column_names
    within = SPELLING.within(
        DIALECT.ordered(SPELLING.quote(target.partition_by), target.clock), publication.partitions, target.clock
    )
    rows = [_rows(piece, _listed("r", names)) for piece in landing]
    proofs = _proofs(name, target, publication, landing, ["NULL"] * (len(names) - 1))
    return f"INSERT INTO {name} BY NAME REPLACE WHERE {within} {' UNION ALL '.join([*rows, *proofs])}"


def merging(name: str, target: Target, publication: Publication, landing: Sequence[Piece]) -> str:
    """A MERGE that writes only the rows of the range that differ, with the proofs of :func:`replacing`.

    Each row that is gone comes as a row of its own: WHEN NOT MATCHED BY SOURCE would read the whole table, and so conflict
    with appends anywhere in it.
    """
    names, key = target.column_names, target.key
    published = _published(name, target, publication)
    lands = [_rows(piece, f"{_listed('r', names)}, FALSE AS {_GONE}") for piece in landing]
    keys = " UNION ALL ".join(_rows(piece, _listed("r", key)) for piece in landing)
    gone = (
        f"SELECT {_listed('r', names)}, TRUE FROM {name} AS r LEFT ANTI JOIN ({keys}) AS s ON {_match(key)} "
        f"WHERE {published.predicate}"
    )
    proofs = _proofs(name, target, publication, landing, ["NULL"] * len(names))
    source = " UNION ALL ".join([*lands, gone, *proofs])
    # By the hash that fingerprints are made of, so that a merge and the check after it cannot disagree.
    changed = f"{DIALECT.row_hash(names)} <> {DIALECT.row_hash(names, 's.')}"
    assignments = ", ".join(f"{one} = s.{one}" for one in (SPELLING.quote(name) for name in names if name not in key))
    return (
        f"MERGE INTO {name} AS r USING ({source}) AS s ON {_match(key)} AND {published.predicate} "
        f"WHEN MATCHED AND s.{_GONE} THEN DELETE "
        + (f"WHEN MATCHED AND {changed} THEN UPDATE SET {assignments} " if assignments else "")
        + f"WHEN NOT MATCHED THEN INSERT ({SPELLING.quote_all(names)}) VALUES ({_listed('s', names)})"
    )


def count_identical(run: Run, name: str, target: Target, publication: Publication, landing: Sequence[Piece]) -> int:
    """How many published rows of the range a merge leaves as they are.

    :raises PublishRefused: published rows of the range share a key, or have none, so that a merge cannot match them.
    """
    published = _published(name, target, publication)
    keys = _listed("r", target.key)
    absent = " OR ".join(f"r.{SPELLING.quote(one)} IS NULL" for one in target.key)
    ((unmatched,),) = run(
        f"SELECT count(*) FROM ({_rows(published, f'{keys}, count(*) AS n')} GROUP BY {keys}) AS r WHERE n > 1 OR {absent}"
    )
    if unmatched:
        raise PublishRefused(
            f"Published rows of {target.table} in the range share their {', '.join(target.key)}, or have none, for {unmatched} "
            "keys, so a merge cannot match them; nothing was written. Use mechanism replace_partitions."
        )
    hashed = f"{DIALECT.row_hash(target.column_names)} AS h"
    new = " UNION ALL ".join(_rows(piece, hashed) for piece in landing)
    ((identical,),) = run(
        f"SELECT count(*) FROM ({_rows(published, hashed)}) AS r LEFT SEMI JOIN ({new}) AS s ON r.h = s.h"
    )
    return int(identical)


def _proofs(
    name: str, target: Target, publication: Publication, landing: Sequence[Piece], rest: Sequence[str]
) -> list[str]:
    published = _published(name, target, publication)
    return [
        _unproven(target, publication, pieces, expected, rest)
        for pieces, expected in (([published], publication.before), (landing, publication.after))
    ]


def _unproven(
    target: Target,
    publication: Publication,
    pieces: Sequence[Piece],
    expected: Mapping[str, Fingerprint],
    rest: Sequence[str],
) -> str:
    """A SELECT without rows, unless a partition has another fingerprint than expected: then it fails.

    :param rest: the columns after the first.
    """
    buckets = Buckets(publication.partitions, pieces)
    names = {key: bucket for bucket, key in buckets.keys.items()}
    values = ", ".join(
        f"({SPELLING.shown_literal(names[key])}, {mark.rows}, {SPELLING.text_literal(mark.digest)})"
        for key, mark in sorted(expected.items())
        if mark.rows
    )
    found = f"({fingerprints(DIALECT, buckets, pieces, target.column_names)}) AS f(b, n, d)"
    if values:
        differing = (
            f"(VALUES {values}) AS e(b, n, d) FULL JOIN {found} ON e.b = f.b "
            f"WHERE coalesce(e.n, 0) <> coalesce(f.n, 0) OR coalesce(e.d, '{EMPTY_DIGEST}') <> coalesce(f.d, '{EMPTY_DIGEST}')"
        )
    else:
        differing = found
    return f"SELECT {', '.join([f'raise_error({SPELLING.text_literal(NOT_PROVEN)})', *rest])} FROM {differing}"


def _published(name: str, target: Target, publication: Publication) -> Piece:
    return Piece.of(DIALECT, target, name, publication.partitions)


def _rows(piece: Piece, columns: str) -> str:
    return f"SELECT {columns} FROM {piece.table} AS r WHERE {piece.predicate}"


def _listed(alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{SPELLING.quote(name)}" for name in names)


def _match(key: Sequence[str]) -> str:
    return " AND ".join(f"r.{name} = s.{name}" for name in map(SPELLING.quote, key))
