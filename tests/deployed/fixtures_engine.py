"""Fixtures for tests of images. A conftest may define `engine` or `worker_binary` anew; its own ones win."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import emulator
import images
import places
from engine import Engine

WORK_DIR = places.WORK_DIR / "engine"
WORKER_IMAGE = "leasehold-worker:under-test"


@dataclass(frozen=True)
class Store:
    """Tables and a queue that a worker can start with, at an address that containers reach."""

    endpoint: str
    settings: dict[str, str]

    def session_states(self) -> list[str]:
        """What the rows of `sessions` say of themselves."""
        dynamodb = emulator.client("dynamodb", self.endpoint)
        rows = dynamodb.scan(TableName=self.settings["SESSIONS_TABLE"], ConsistentRead=True)["Items"]
        return [row["session_state"]["S"] for row in rows if "session_state" in row]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A container engine; installed only if LEASEHOLD_INSTALL_ENGINE is set."""
    with Engine.find_or_start(WORK_DIR, install=bool(os.environ.get("LEASEHOLD_INSTALL_ENGINE"))) as found:
        yield found


@pytest.fixture(scope="session")
def worker_binary() -> Path:
    """The worker under test: LEASEHOLD_WORKER_BINARY, or what the documented build command makes."""
    built = images.REPOSITORY / "target/x86_64-unknown-linux-gnu/release/worker"
    return Path(os.environ.get("LEASEHOLD_WORKER_BINARY") or built)


@pytest.fixture(scope="session")
def worker_base(engine: Engine) -> str:
    """The base of the worker's image."""
    return images.worker_base(engine, WORK_DIR / "bases")


@pytest.fixture(scope="session")
def worker_image(engine: Engine, worker_base: str, worker_binary: Path) -> str:
    """The worker's image as it is shipped."""
    images.build_worker_image(engine, WORKER_IMAGE, worker_binary, worker_base, {"VERSION": "1.2.3"})
    engine.remove_image_at_stop(WORKER_IMAGE)
    return WORKER_IMAGE


@pytest.fixture(scope="session")
def store_endpoint(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MiniStack on the bridge, where containers reach it."""
    work_dir = tmp_path_factory.mktemp("ministack")
    running = emulator.Emulator.start(Path(sys.executable), work_dir, engine.gateway(), engine.variables)
    try:
        yield running.endpoint
    finally:
        running.stop()


@pytest.fixture
def store(store_endpoint: str) -> Store:
    """Empty tables and a queue for one worker."""
    return Store(store_endpoint, _make_tables(store_endpoint, f"t{uuid.uuid4().hex[:8]}"))


def _make_tables(endpoint: str, prefix: str) -> dict[str, str]:
    """Makes what a worker needs; the settings that name it. The template's own tables are another test's matter."""
    dynamodb = emulator.client("dynamodb", endpoint)
    by_owner = {"IndexName": "by_owner", "KeySchema": _schema("lease_owner"), "Projection": {"ProjectionType": "ALL"}}
    names = {f"{name.upper()}_TABLE": f"{prefix}-{name}" for name in ("connections", "sessions", "messages")}
    _make_table(dynamodb, names["CONNECTIONS_TABLE"], ["Pk"], ["Pk", "lease_owner"], GlobalSecondaryIndexes=[by_owner])
    _make_table(dynamodb, names["SESSIONS_TABLE"], ["session_id"], ["session_id"])
    _make_table(dynamodb, names["MESSAGES_TABLE"], ["Pk", "Sk"], ["Pk", "Sk"])
    claims = emulator.client("sqs", endpoint).create_queue(QueueName=f"{prefix}-claims")["QueueUrl"]
    return {**names, "CLAIMS_QUEUE_URL": claims, "AWS_ENDPOINT_URL": endpoint, **emulator.credentials()}


def _make_table(dynamodb, name: str, key: list[str], attributes: list[str], **more) -> None:
    types = [{"AttributeName": attribute, "AttributeType": "S"} for attribute in attributes]
    schema = dict(KeySchema=_schema(*key), AttributeDefinitions=types)
    dynamodb.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **schema, **more)


def _schema(*attributes: str) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(attributes, kinds)]
