"""The local system and the stack are the same thing: tables, keys, indexes and queues."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import emulator
import places
from stack import Stack, wait_until

TABLES = {"connections": "ConnectionsTable", "sessions": "SessionsTable", "messages": "MessagesTable"}
QUEUES = {"claims": "ClaimsQueueUrl", "ticks": "TicksQueueUrl"}
ATTRIBUTES = ("VisibilityTimeout", "MessageRetentionPeriod")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """What `leasehold local` says of itself."""
    folder: Path = tmp_path_factory.mktemp("local")
    command = [str(places.BINARIES / "leasehold"), "--state-dir", str(folder), "local"]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    described = folder / "local.json"
    try:
        wait_until(described.is_file, 30, "the local system is up")
        yield json.loads(described.read_text())
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def shape_of(table: dict) -> dict:
    """What code depends on."""
    indexes = {
        index["IndexName"]: (index["KeySchema"], index["Projection"]["ProjectionType"], sorted(index["Projection"].get("NonKeyAttributes", [])))
        for index in table.get("GlobalSecondaryIndexes", [])
    }
    types = sorted((attribute["AttributeName"], attribute["AttributeType"]) for attribute in table["AttributeDefinitions"])
    return {"key": table["KeySchema"], "types": types, "indexes": indexes, "stream": table.get("StreamSpecification")}


@pytest.mark.parametrize("name", TABLES)
def test_a_local_table_has_the_keys_indexes_and_stream_of_the_stacks(local: dict, stack: Stack, name: str):
    here = emulator.client("dynamodb", local["dynamodb"]).describe_table(TableName=local["tables"][name])["Table"]
    there = stack.client("dynamodb").describe_table(TableName=stack.outputs[TABLES[name]])["Table"]
    assert shape_of(here) == shape_of(there)


@pytest.mark.parametrize("name", QUEUES)
def test_a_local_queue_has_the_times_of_the_stacks(local: dict, stack: Stack, name: str):
    wanted = [*ATTRIBUTES, "RedrivePolicy"]
    here = emulator.client("sqs", local["sqs"]).get_queue_attributes(QueueUrl=local["queues"][name], AttributeNames=wanted)["Attributes"]
    there = stack.client("sqs").get_queue_attributes(QueueUrl=stack.outputs[QUEUES[name]], AttributeNames=wanted)["Attributes"]
    assert {key: here[key] for key in ATTRIBUTES} == {key: there[key] for key in ATTRIBUTES}
    receives = [json.loads(found["RedrivePolicy"])["maxReceiveCount"] if "RedrivePolicy" in found else None for found in (here, there)]
    assert receives[0] == receives[1]
