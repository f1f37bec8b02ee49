"""Every sample event, and those that the SAM command makes, through the functions as they were built.

Once in the runtime emulator of cargo-lambda, and once in the containers of `sam local invoke`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import emulator
import images
import template
from emulator import Emulator
from engine import Engine
from places import BUILT, EMULATOR_PYTHON, WORK_DIR
from runtime import EVENTS, FUNCTION_OF, FUNCTIONS, GENERATED, SamLocal, Watch, generate, with_tools

pytest_plugins = ["fixtures_engine"]

@dataclass(frozen=True)
class Expected:
    """What an event must lead to, where the `rows` are STARTED and nobody's. `answer` has more than is said here."""

    answer: dict[str, object]
    rows: tuple[str, ...] = ()
    claims: list[str] = field(default_factory=list)


ACCEPTED = {"batchItemFailures": []}
# What the summary of a run of reconcile that finds nothing wrong says in any case.
IN_ORDER = {"failed": 0, "bad_rows": 0, "bad_sessions": 0, "cut_short": 0, **ACCEPTED}
EXPECTED = {
    "ecs-task-stopped.json": Expected({"minute": False, "bad_ticks": 0, **IN_ORDER}),
    "empty.json": Expected({"minute": True, "claimed": 0, **IN_ORDER}),
    # Nobody has told desired-state of the row. It may still hear of it, so the claim is sent with a delay.
    "schedule.json": Expected({"minute": True, "stamped": 1, "claimed": 1, **IN_ORDER}, rows=("forgotten",)),
    "stream-insert.json": Expected(ACCEPTED, rows=("meeting-42",), claims=["meeting-42"]),
    # The poisonous record would be no better the next time: it is said in the log, and holds nobody up.
    "stream-mixed-with-poison.json": Expected(ACCEPTED, rows=("device-1", "device-2"), claims=["device-1", "device-2"]),
    "stream-modify-stopped.json": Expected(ACCEPTED),
    "stream-remove.json": Expected(ACCEPTED, rows=("somebody-else",)),
    "tick.json": Expected({"minute": False, "bad_ticks": 0, **IN_ORDER}),
    # Another table's records.
    "dynamodb update": Expected(ACCEPTED, rows=("somebody-else",)),
    # "Hello from SQS!" is no tick. It is deleted.
    "sqs receive-message": Expected({"bad_ticks": 1, **ACCEPTED}),
    "cloudwatch scheduled-event": Expected({"minute": True, "claimed": 0, **IN_ORDER}),
}


@dataclass(frozen=True)
class Data:
    """Tables as in the template, and queues, on an emulator on which nothing else runs."""

    variables: dict[str, str]

    def client(self, service: str):
        return emulator.client(service, self.variables["AWS_ENDPOINT_URL"])

    def started(self, connection: str) -> None:
        """Writes a row as a user does, by hand."""
        item = {"Pk": f"CONN#{connection}", "desired_state": "STARTED", "ws_url": "wss://feed.example.com/v1/stream"}
        row = {name: {"S": value} for name, value in item.items()}
        self.client("dynamodb").put_item(TableName=self.variables["CONNECTIONS_TABLE"], Item=row)

    def clear(self) -> None:
        """Removes every row and every message."""
        dynamodb, table = self.client("dynamodb"), self.variables["CONNECTIONS_TABLE"]
        for row in dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]:
            dynamodb.delete_item(TableName=table, Key={"Pk": row["Pk"]})
        for queue in ("CLAIMS_QUEUE_URL", "TICKS_QUEUE_URL"):
            self.client("sqs").purge_queue(QueueUrl=self.variables[queue])

    def claims(self) -> list[str]:
        """Takes the claims out of their queue that can be received now: ids of connections."""
        sqs, url, ids = self.client("sqs"), self.variables["CLAIMS_QUEUE_URL"], []
        while received := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in received:
                ids.append(json.loads(message["Body"])["connection_id"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return ids

    def delayed(self, queue: str) -> int:
        """How many messages cannot be received yet."""
        name = "ApproximateNumberOfMessagesDelayed"
        told = self.client("sqs").get_queue_attributes(QueueUrl=self.variables[queue], AttributeNames=[name])
        return int(told["Attributes"][name])


def make_data(aws: Emulator) -> Data:
    """Makes the tables with the keys and indexes of the template."""
    variables = {"AWS_ENDPOINT_URL": aws.endpoint, "LOG_LEVEL": "info"}
    data = Data(variables)
    source = template.read()
    deployment = template.Deployment(source.deployed)
    for name, variable in (("ConnectionsTable", "CONNECTIONS_TABLE"), ("SessionsTable", "SESSIONS_TABLE")):
        properties = deployment.resources[name]["Properties"]
        wanted = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
        described = {key: properties[key] for key in wanted if key in properties}
        data.client("dynamodb").create_table(TableName=name.lower(), **described)
        variables[variable] = name.lower()
    for queue in ("claims", "ticks"):
        variables[f"{queue.upper()}_QUEUE_URL"] = data.client("sqs").create_queue(QueueName=queue)["QueueUrl"]
    return data


@pytest.fixture(scope="module")
def native_data() -> Iterator[Data]:
    with Emulator.start(EMULATOR_PYTHON, WORK_DIR / "invoke") as aws:
        yield make_data(aws)


@pytest.fixture(scope="module")
def native(native_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    watch = Watch(native_data.variables, tmp_path_factory.mktemp("watch") / "log")
    yield watch
    watch.close()


@pytest.fixture(scope="module")
def container_data(engine: Engine) -> Iterator[Data]:
    with Emulator.start(EMULATOR_PYTHON, WORK_DIR / "invoke", engine.gateway()) as aws:
        yield make_data(aws)


@pytest.fixture(scope="module")
def containers(engine: Engine, container_data: Data, tmp_path_factory: pytest.TempPathFactory) -> SamLocal:
    images.lambda_base(engine, WORK_DIR / "engine" / "bases")
    return SamLocal(container_data.variables, engine.variables, tmp_path_factory.mktemp("sam"))


class Invocations:
    """What has to hold in either way. `way` invokes, on `data`."""

    @pytest.mark.parametrize("event", sorted(EXPECTED))
    def test_an_event_has_the_right_answer_and_the_right_effect(self, event: str, way: Watch | SamLocal, data: Data, event_file):
        expected = EXPECTED[event]
        function, file = event_file(event)
        data.clear()
        for connection in expected.rows:
            data.started(connection)
        answer = way.invoke(function, file)
        assert answer.code == 0, answer.log
        assert isinstance(answer.value, dict), answer.log
        assert {name: answer.value.get(name) for name in expected.answer} == expected.answer, answer.log
        assert sorted(data.claims()) == expected.claims, answer.log
        # LOOK_INTERVAL_MS is 10 s: a run of a whole minute sends for looks at 10, 20 ... 50 s.
        assert data.delayed("TICKS_QUEUE_URL") == (5 if expected.answer.get("minute") else 0), answer.log


class TestInTheRuntimeEmulator(Invocations):
    """`cargo lambda watch` and `cargo lambda invoke`: native processes, no container."""

    @pytest.fixture
    def data(self, native_data: Data) -> Data:
        return native_data

    @pytest.fixture
    def way(self, native: Watch) -> Watch:
        return native


class TestInContainers(Invocations):
    """`sam local invoke`: the packed functions, in the runtime's container."""

    @pytest.fixture
    def data(self, container_data: Data) -> Data:
        return container_data

    @pytest.fixture
    def way(self, containers: SamLocal) -> SamLocal:
        return containers


@pytest.mark.parametrize("function", FUNCTIONS)
def test_without_the_name_of_its_table_a_function_does_not_start_and_names_it(function: str):
    # Of a container that ends at once, `sam local invoke` shows an empty answer, and sometimes the log.
    variables = {"AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9", "SESSIONS_TABLE": "sessions"}
    result = subprocess.run([BUILT / FUNCTIONS[function] / "bootstrap"], env=with_tools() | variables, capture_output=True, text=True, timeout=20)
    assert result.returncode != 0
    assert "CONNECTIONS_TABLE" in result.stdout + result.stderr


def test_every_sample_event_is_known_here_with_its_function():
    assert sorted(file.name for file in EVENTS.iterdir()) == sorted(FUNCTION_OF)
    generated = [" ".join(names) for names in GENERATED]
    assert sorted([*FUNCTION_OF, *generated]) == sorted(EXPECTED)


@pytest.fixture(scope="session")
def event_file(tmp_path_factory: pytest.TempPathFactory):
    """Function and file of an event, which is made if it is one of the SAM command's."""
    folder = tmp_path_factory.mktemp("generated")

    def find(event: str) -> tuple[str, Path]:
        if event in FUNCTION_OF:
            return FUNCTION_OF[event], EVENTS / event
        service, name = event.split(" ")
        file = folder / f"{service}-{name}.json"
        return GENERATED[service, name], file if file.exists() else generate(service, name, file)

    return find
