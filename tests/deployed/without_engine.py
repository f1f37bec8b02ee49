"""A pytest plugin for machines without a container engine: leaves out the tests that need one, and says how many."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needing = [item for item in items if "engine" in getattr(item, "fixturenames", ())]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
