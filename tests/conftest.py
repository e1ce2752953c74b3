"""How the tests are spread over processes: those that need Spark share one, and begin at once; a file keeps together."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(getattr(parameter, "name", "") == "databricks" for parameter in parameters):
            item.add_marker(pytest.mark.spark)
        spark = item.get_closest_marker("spark") is not None
        item.add_marker(pytest.mark.xdist_group("spark" if spark else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
