"""The main job on the deployed stack, from the first deployment to the verdict: one story, told in order.

Rows are written as a user writes them, workers are ECS tasks in real containers from the real image, the feed is outside, and its log is
the truth. The story begins with the functions and the image of the version before, and ends with those of this one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import emulator
import places
from cast import Cast, leasehold
from conftest import Images
from emulator import Emulator
from engine import Engine
from feed import Feed
from stack import DeployFailed, Stack, wait_until, with_functions

# Overwritten rows may have two sockets while the old owner has not heard: 15 s, while events flow.
OVERWRITTEN_OVERLAP_MS = 15_000
OVERWRITTEN = "live-3"
STOPPED = "feed-5"
DELETED = ("feed-7", "live-7")


@pytest.fixture(scope="module")
def old_functions(scratch) -> object:
    """The built template with the functions of the version before."""
    return with_functions(places.BUILT, scratch / "old-functions", places.OLD_BINARIES)


@pytest.fixture(scope="module")
def cast(aws: Emulator, engine: Engine, feed: Feed, old_functions) -> Cast:
    return Cast(engine, Stack(aws, places.SAM, old_functions, "main-job"), feed)


def test_a_first_deployment_without_an_image_makes_everything_but_the_service(cast: Cast):
    cast.stack.deploy()
    assert "WorkerService" not in cast.stack.outputs
    assert cast.stack.outputs["WorkerRepositoryUri"]
    # Rows may be written before there is anybody to hold them.
    cast.write_rows()


def test_with_an_image_the_service_starts_one_task_and_people_scale_it(cast: Cast, worker_images: Images):
    cast.stack.deploy(WorkerImage=worker_images.old)
    wait_until(lambda: len(cast.stack.tasks()) == 1, 60, "one task runs")
    cast.scale(3)
    cast.wait_for_connections("first deployment, three workers")
    cast.wait_for_first_messages()


def test_a_killed_task_is_replaced_and_its_connections_are_open_again(cast: Cast):
    cast.kill_a_task("a task killed")


def test_a_stopped_row_closes_its_socket_within_10_s_and_a_started_one_opens_it_again(cast: Cast):
    # What the feed says while nobody wants to hear it is not asked for.
    cast.feed.stop_channel(STOPPED)
    time.sleep(1)
    cast.stack.set_desired_state(STOPPED, "STOPPED")
    seconds = wait_until(lambda: cast.feed.open_sockets().get(STOPPED, 0) == 0, 10, "the socket is closed")
    cast.say(f"stopped: socket closed after {seconds:.1f} s")
    cast.stack.set_desired_state(STOPPED, "STARTED")
    cast.wait_for_connections("started again")
    cast.feed.start_channel(STOPPED)


def test_a_row_that_is_overwritten_by_hand_is_connected_again_through_one_socket(cast: Cast):
    before = cast.stack.rows("ConnectionsTable")
    epoch = next(row["lease_epoch"] for row in before if row["Pk"] == f"CONN#{OVERWRITTEN}")
    cast.write_by_hand(OVERWRITTEN)

    def owned_again() -> bool:
        row = next(row for row in cast.stack.rows("ConnectionsTable") if row["Pk"] == f"CONN#{OVERWRITTEN}")
        return "lease_owner" in row and row["lease_epoch"] > epoch

    wait_until(owned_again, 60, "it is owned again, under a higher epoch")
    cast.wait_for_connections("overwritten by hand")


def test_the_operators_command_works_on_the_stack(cast: Cast):
    program, environment = places.BINARIES / "leasehold", emulator.credentials()
    # Not the home directory: a local system might run there.
    environment["LEASEHOLD_STATE_DIR"] = str(places.WORK_DIR / "no-local-system")
    listed = leasehold(program, cast.stack, environment, "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert OVERWRITTEN in listed.stdout
    started = leasehold(program, cast.stack, environment, "start", "feed-by-command", "--url", cast.feed.url("feed-by-command"),
                        "--sequence-pointer", "/seq", "--resume-query", "from={last_seq}")
    assert started.returncode == 0, started.stderr
    cast.connections.append("feed-by-command")
    cast.wait_for_connections("started by command")
    cast.wait_for_first_messages()


def test_rows_deleted_by_mistake_come_back_from_a_backup_as_the_docs_say(cast: Cast, scratch):
    dynamodb = cast.stack.client("dynamodb")
    backup, table = "connections-restored", cast.stack.outputs["ConnectionsTable"]
    # What a restore makes: a table of its own, with the rows of then, owners and epochs included.
    dynamodb.create_table(TableName=backup, BillingMode="PAY_PER_REQUEST", KeySchema=[{"AttributeName": "Pk", "KeyType": "HASH"}],
                          AttributeDefinitions=[{"AttributeName": "Pk", "AttributeType": "S"}])
    for row in dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]:
        dynamodb.put_item(TableName=backup, Item=row)
    epochs = {row["Pk"]: row["lease_epoch"] for row in cast.stack.rows("ConnectionsTable")}
    for connection in DELETED:
        cast.stack.delete_row(connection)
    wait_until(lambda: not set(DELETED) & set(cast.feed.open_sockets()), 30, "deleted rows have no sockets")
    program = scratch / "restore.py"
    program.write_text(code_of("restore.py", places.REPOSITORY / "docs" / "deploy.md"))
    environment = {**emulator.credentials(), "AWS_ENDPOINT_URL": cast.stack.endpoint}
    restored = subprocess.run([sys.executable, program, backup, table], env=environment, capture_output=True, text=True, timeout=60)
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith(f"{len(DELETED)} rows copied")
    cast.wait_for_connections("rows restored")
    now = {row["Pk"]: row["lease_epoch"] for row in cast.stack.rows("ConnectionsTable")}
    assert all(now[f"CONN#{connection}"] > epochs[f"CONN#{connection}"] for connection in DELETED)


def test_new_functions_work_with_old_workers(cast: Cast):
    cast.stack.built = places.BUILT
    cast.stack.deploy()
    assert len(cast.stack.tasks()) == 3, "an update of the stack sets no count"
    assert all(version.endswith("-before") for version in cast.versions()), cast.versions()
    cast.kill_a_task("new functions, old workers, a task killed")


def test_new_workers_take_over_from_old_ones_in_a_rolling_deployment(cast: Cast, worker_images: Images):
    cast.stack.deploy(WorkerImage=worker_images.new)
    wait_until(lambda: cast.stack.running_images() == [worker_images.new] * 3 or str(cast.stack.running_images()), 120,
               "three tasks of the new image, and no other")
    cast.wait_for_connections("new functions, new workers")
    assert not any(version.endswith("-before") for version in cast.versions()), cast.versions()


def test_old_functions_work_with_new_workers(cast: Cast, old_functions):
    cast.stack.built = old_functions
    cast.stack.deploy()
    cast.kill_a_task("old functions, new workers, a task killed")
    cast.stack.built = places.BUILT
    cast.stack.deploy()


def test_an_update_of_a_parameter_replaces_the_workers_and_keeps_their_number(cast: Cast, worker_images: Images):
    before = {task["taskArn"] for task in cast.stack.tasks()}
    cast.stack.deploy(Capacity="500")
    wait_until(lambda: len(tasks := {task["taskArn"] for task in cast.stack.tasks()}) == 3 and not tasks & before, 120, "three other tasks run")
    cast.wait_for_connections("capacity changed")
    capacities = {row["capacity"] for row in cast.live_sessions()}
    assert capacities == {500}


def test_an_image_that_is_not_there_leaves_the_old_workers_running(cast: Cast, worker_images: Images):
    missing = f"{worker_images.new.rsplit(':', 1)[0]}:never-pushed"
    sockets_before = open_since(cast)
    try:
        cast.stack.deploy(WorkerImage=missing)
        refused = False
    except DeployFailed as failure:
        refused = True
        cast.say(f"an image that is not there: {[line for line in str(failure).splitlines() if 'never-pushed' in line or 'Error' in line][-1:]}")
    assert refused or cast.was_tried(missing), "nobody tried the image that is not there"
    time.sleep(10)
    assert cast.stack.running_images().count(worker_images.new) == 3
    assert open_since(cast) == sockets_before, "a deployment that cannot succeed moved connections"
    # What docs/deploy.md says to do: back to the image that was there.
    cast.stack.deploy(WorkerImage=worker_images.new)
    wait_until(lambda: cast.stack.running_images() == [worker_images.new] * 3 or str(cast.stack.running_images()), 120, "three tasks again")
    cast.wait_for_connections("after an image that is not there")


def open_since(cast: Cast) -> dict[str, int]:
    """Since when each connection's socket is open, by the feed's clock."""
    return {channel["id"]: one["opened_at_ms"] for channel in cast.feed.log()["channels"] for one in channel["sockets"] if one["closed_at_ms"] is None}


def test_a_rollback_to_the_image_before_and_forward_again_loses_nobody(cast: Cast, worker_images: Images):
    for image in (worker_images.old, worker_images.again):
        cast.stack.deploy(WorkerImage=image)
        wait_until(lambda: cast.stack.running_images() == [image] * 3 or str(cast.stack.running_images()), 120, f"three tasks of {image}")
        cast.wait_for_connections(f"now {image.rsplit(':')[-1]}")


def test_scaled_in_to_one_worker_everything_is_still_connected(cast: Cast):
    cast.scale(1)
    cast.wait_for_connections("one worker")


def test_nothing_replayable_is_lost_nothing_is_doubled_and_nobody_had_two_sockets(cast: Cast):
    judged = cast.final_verdict()
    assert judged.sent > 1000, "the feed has hardly said anything"
    assert judged.lost == []
    assert judged.doubled == []
    assert judged.out_of_order == []
    assert judged.unexplained == [], "written to sockets that lived on, and not stored"
    # Allowed for the row that was overwritten, and for nobody else.
    assert judged.overlaps.pop(OVERWRITTEN, 0) <= OVERWRITTEN_OVERLAP_MS
    assert judged.overlaps == {}


def test_no_event_failed_and_no_claim_died(cast: Cast):
    assert cast.stack.queue_depth("FailedEventsQueueUrl") == 0
    assert cast.stack.queue_depth("ClaimsDeadQueueUrl") == 0
    errors = [line for group in ("reconcile", "desired-state") for line in cast.stack.log_lines(group) if '"level":"ERROR"' in line]
    # A session that is fenced is told of as an error or a warning; nothing else may be.
    assert [line for line in errors if '"event":"fence"' not in line] == []


def test_scaled_in_to_nothing_and_removed_the_stack_leaves_what_users_stored_and_no_task(cast: Cast):
    cast.scale(0)
    # A worker takes up to 19 s for its end: docs/settings.md.
    wait_until(lambda: not cast.containers() or str(cast.containers()), 60, "no container of a task runs")
    tables = [cast.stack.outputs[name] for name in ("ConnectionsTable", "MessagesTable")]
    cast.stack.delete()
    cloudformation = cast.stack.client("cloudformation")

    def gone() -> bool:
        stacks = cloudformation.list_stacks()["StackSummaries"]
        return all(stack["StackStatus"] == "DELETE_COMPLETE" for stack in stacks if stack["StackName"] == cast.stack.name)

    wait_until(gone, 120, "the stack is gone")
    assert set(tables) <= set(cast.stack.client("dynamodb").list_tables()["TableNames"])


def code_of(name: str, document: Path) -> str:
    """The block of Python in a document that begins with this name."""
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)
    return next(block for block in blocks if block.startswith(f'"""{name}'))
