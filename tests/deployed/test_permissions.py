"""The stack where permissions are checked, and what people see when one is missing.

The emulator runs with AUTH=true: functions act as their roles, tasks as the task role. One story, told in order: each test deploys the
template that it needs over that of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import places
from cast import Cast
from conftest import Images, start_emulator
from emulator import Emulator
from engine import Engine
from feed import Feed
from stack import Stack, wait_until, without_permission


@pytest.fixture(scope="module")
def strict_aws(engine: Engine) -> Iterator[Emulator]:
    with start_emulator(engine, auth=True) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def strict_feed(engine: Engine) -> Iterator[Feed]:
    with Feed(places.BINARIES / "leasehold", engine.gateway()) as feed:
        yield feed


@pytest.fixture(scope="module")
def cast(strict_aws: Emulator, engine: Engine, strict_feed: Feed) -> Cast:
    return Cast(engine, Stack(strict_aws, places.SAM, places.BUILT, "strict"), strict_feed)


def test_every_part_has_the_permissions_that_it_needs_and_none_is_refused(cast: Cast, worker_images: Images):
    cast.stack.deploy(WorkerImage=worker_images.new)
    cast.scale(2)
    cast.write_rows(replaying=8, live=4)
    cast.wait_for_connections("with permissions checked")
    cast.wait_for_first_messages()
    cast.kill_a_task("with permissions checked, a task killed")
    cast.feed.stop_channel("feed-1")
    cast.stack.set_desired_state("feed-1", "STOPPED")
    wait_until(lambda: cast.feed.open_sockets().get("feed-1", 0) == 0, 10, "a stopped row closes its socket")
    cast.stack.set_desired_state("feed-1", "STARTED")
    cast.write_by_hand("live-2")
    cast.wait_for_connections("with permissions checked, a row started again and one overwritten")
    refused = [line for group in ("worker", "desired-state", "reconcile") for line in cast.stack.log_lines(group) if "refuses access" in line]
    assert refused == []


def test_a_worker_that_may_not_register_says_so_and_ends_with_exit_code_3(cast: Cast, worker_images: Images, scratch):
    cast.stack.built = without_permission(places.BUILT, scratch / "no-register", "WorkerRole", "Sessions", "dynamodb:PutItem")
    cast.stack.deploy(WorkerImage=worker_images.again)
    wait_until(lambda: said(cast, "worker", "refuses access", "PutItem"), 60, "the worker says what it is refused", interval_s=1)
    wait_until(lambda: stopped_with(cast, 3), 30, "a task ended with exit code 3", interval_s=1)


def test_messages_that_may_not_be_stored_are_told_of_and_stored_once_they_may(cast: Cast, worker_images: Images, scratch):
    cast.stack.built = without_permission(places.BUILT, scratch / "no-messages", "WorkerRole", "Messages", "dynamodb:PutItem")
    cast.stack.deploy(WorkerImage=worker_images.new)
    wait_until(lambda: said(cast, "worker", "message_write_retry", "refuses access"), 90, "the worker says that it cannot store", interval_s=1)
    cast.stack.built = places.BUILT
    cast.stack.deploy()
    cast.wait_for_connections("the permission is back")
    judged = cast.final_verdict()
    assert judged.lost == []
    assert judged.doubled == []


def test_a_function_that_may_not_claim_fails_its_events_end_in_the_failure_queue_and_reconcile_makes_up_for_it(cast: Cast, scratch):
    cast.stack.built = without_permission(places.BUILT, scratch / "no-claims", "DesiredStateRole", "Queues", resource="ClaimsQueue")
    cast.stack.deploy()
    cast.write_by_hand("live-without-claim")
    wait_until(lambda: said(cast, "desired-state", "refuses access", ""), 60, "the function says what it is refused", interval_s=1)
    wait_until(lambda: cast.stack.queue_depth("FailedEventsQueueUrl") > 0, 60, "the event is in the failure queue", interval_s=1)
    cast.wait_for_connections("without claims of desired-state", timeout_s=120)


def said(cast: Cast, group: str, *parts: str) -> bool:
    """Whether one line of the log has all these parts."""
    return any(all(part in line for part in parts) for line in cast.stack.log_lines(group))


def stopped_with(cast: Cast, exit_code: int) -> bool:
    """Whether ECS tells of a stopped task whose container ended with this code."""
    ecs = cast.stack.client("ecs")
    arns = ecs.list_tasks(cluster=cast.stack.outputs["Cluster"], desiredStatus="STOPPED")["taskArns"]
    tasks = ecs.describe_tasks(cluster=cast.stack.outputs["Cluster"], tasks=arns[:100])["tasks"] if arns else []
    return exit_code in [container.get("exitCode") for task in tasks for container in task["containers"]]
