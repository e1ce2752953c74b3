"""SIGKILL before every statement, batch and commit of a Delta warehouse: what is left is all old or all new."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from delta_shop import RANGE, Shop, kill

from airflow_backfill_provider.warehouses.base import Action, Backup, Staged

STAGED = RANGE[:2]
pytestmark = pytest.mark.timeout(600)


def copies(prepared: Path) -> list[Path]:
    """A fresh copy of the folder for each kill point."""
    return [prepared.with_name(f"copy {number}") for number in range(100)]


@pytest.fixture(params=[None, "day"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "prepared"
    Shop.create(folder, partition_by=request.param)
    return folder


def test_a_publish_leaves_old_or_new_and_publishing_again_converges(prepared: Path) -> None:
    shop = Shop.open(prepared)
    old, outside = shop.amounts(), shop.outside()
    new = [(date, rows, amount + rows) for date, rows, amount in old]
    seen = set()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "publish", survived)
        shop = Shop.open(folder)
        left, receipts = shop.amounts(), shop.warehouse.receipts(shop.target)
        assert left == (new if receipts else old), f"a mixture after step {survived}"
        assert shop.outside() == outside
        seen.add(bool(receipts))
        if not receipts:
            shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
        assert shop.amounts() == new
        assert shop.outside() == outside
        assert len(shop.warehouse.receipts(shop.target)) == 1
        if ended:
            break
    assert ended
    assert survived > 5
    assert seen == {False, True}


def test_a_rollback_leaves_new_or_old_and_rolling_back_again_converges(prepared: Path) -> None:
    shop = Shop.open(prepared)
    old, outside = shop.amounts(), shop.outside()
    shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")
    shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
    new = shop.amounts()
    seen = set()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "rollback", survived)
        shop = Shop.open(folder)
        undone = shop.warehouse.receipts(shop.target)[-1].action is Action.ROLLBACK
        assert shop.amounts() == (old if undone else new), f"a mixture after step {survived}"
        seen.add(undone)
        if not undone:
            backup = next(Backup(item.location) for item in shop.warehouse.storage() if item.kind == "backup")
            kept = shop.warehouse.fingerprint(shop.target, backup, RANGE)
            undo = shop.publication(backup, action=Action.ROLLBACK, after=kept)
            shop.warehouse.replace_partitions(shop.target, undo)
        assert shop.amounts() == old
        assert shop.outside() == outside
        if ended:
            break
    assert ended
    assert survived > 5
    assert seen == {False, True}


def test_a_stage_keeps_whole_partitions_and_another_attempt_has_none_of_them(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    shop = Shop.create(prepared)
    old = shop.amounts()
    whole = {entry.partition.key: entry for entry in shop.stage(*STAGED).partitions}
    shop.warehouse.drop(next(iter(whole.values())).location)
    kept = set()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "stage", survived)
        shop = Shop.open(folder)
        assert shop.amounts() == old
        for item in shop.warehouse.storage():
            left = Staged(tuple(replace(entry, location=item.location) for entry in whole.values()))
            found = shop.warehouse.fingerprint(shop.target, left, STAGED)
            held = {key for key, mark in found.items() if mark.rows}
            kept.add(len(held))
            assert all(found[key] == whole[key].fingerprint for key in held), f"half a partition after step {survived}"
            shop.warehouse.drop(item.location)
        assert shop.warehouse.storage() == ()
        if ended:
            break
    assert ended
    assert kept == {1, 2}


def test_a_backup_is_whole_or_not_there(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    shop = Shop.create(prepared)
    old, before = shop.amounts(), shop.fingerprint(*RANGE)
    whole = set()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "back_up", survived)
        shop = Shop.open(folder)
        assert shop.amounts() == old
        items = shop.warehouse.storage()
        for item in items:
            assert shop.warehouse.fingerprint(shop.target, Backup(item.location), RANGE) == before
        whole.add(len(items))
        _, marks = shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")
        assert marks == before
        if ended:
            break
    assert ended
    assert whole == {0, 1}
