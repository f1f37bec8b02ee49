"""Containers as hosts: one is cut off from DynamoDB while another stands still past its lease; then one is cut off from the feed.

Five hosts, so that the silent ones are fewer than half. What the feed logged is the truth. Which ends of sockets the feed cannot see in time
is said by name below; everything else is judged as in any other run. One story, told in order.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import places
import verdict
from cast import RECOVERED_WITHIN_S, Cast
from conftest import Images, start_emulator
from emulator import Emulator
from engine import Engine
from feed import Feed
from hosts import Firewall, Host, hosts
from stack import Stack, wait_until

HOSTS = 5
# Sockets are dropped 14 s after the last renewal that was answered; within 20 s another host may hold them.
DROPPED_WITHIN_MS = 16_000
# A quiet socket is pinged after 20 s and given up 10 s later.
SILENCE_SEEN_S = 33
# A process that runs again may take this long to drop what it held.
RESUMED_WITHIN_MS = 2_000


@dataclass
class Faults:
    """Who was hit, and when, by the feed's clock."""

    without_store: Host
    paused: Host
    at_ms: int
    without_feed: Host | None = None
    without_feed_at_ms: int = 0


@pytest.fixture(scope="module")
def hosts_aws(engine: Engine) -> Iterator[Emulator]:
    with start_emulator(engine, auth=False) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def hosts_feed(engine: Engine) -> Iterator[Feed]:
    with Feed(places.BINARIES / "leasehold", engine.gateway()) as feed:
        yield feed


@pytest.fixture(scope="module")
def cast(hosts_aws: Emulator, engine: Engine, hosts_feed: Feed, worker_images: Images) -> Cast:
    """Five hosts, and everything connected."""
    cast = Cast(engine, Stack(hosts_aws, places.SAM, places.BUILT, "hosts"), hosts_feed)
    cast.stack.deploy(WorkerImage=worker_images.new)
    cast.scale(HOSTS)
    # As the schedule does, whose first minute may be a minute away. It goes on by ticks.
    cast.stack.client("lambda").invoke(FunctionName=cast.stack.outputs["ReconcileFunction"], Payload=b"{}")
    wait_until(lambda: len(active(cast)) == HOSTS, 60, "every host is registered")
    cast.write_rows(replaying=30, live=20)
    cast.wait_for_connections(f"{HOSTS} hosts")
    cast.wait_for_first_messages()
    wait_until(lambda: looks_regularly(cast), 60, "reconcile looks every ten seconds")
    return cast


@pytest.fixture(scope="module")
def firewall(engine: Engine) -> Firewall:
    return Firewall(engine, places.WORK_DIR / "engine" / "bases")


@pytest.fixture(scope="module")
def faults(cast: Cast, firewall: Firewall, engine: Engine) -> Faults:
    """The first two, at once, done to the hosts that hold most."""
    without_store, paused = hosts(cast)[:2]
    faults = Faults(without_store, paused, at_ms=cast.feed.log()["now_ms"])
    firewall.cut(without_store, cast.stack.endpoint)
    engine.docker("pause", paused.container)
    cast.say(f"{len(without_store.connections)} connections without DynamoDB, {len(paused.connections)} paused")
    assert without_store.connections and paused.connections
    return faults


def test_what_a_host_without_dynamodb_and_a_paused_one_held_is_open_elsewhere(cast: Cast, faults: Faults):
    for name, host in (("without DynamoDB", faults.without_store), ("paused", faults.paused)):
        wait_until(lambda: cast.are_open_again(host.connections, faults.at_ms), RECOVERED_WITHIN_S, f"{name}: what it held is open elsewhere")
        seconds = (cast.feed.log()["now_ms"] - faults.at_ms) / 1000
        cast.say(f"{name}: open elsewhere {seconds:.1f} s after the fault")
        assert session_state(cast, host) == "FENCED"


def test_a_host_without_dynamodb_drops_its_sockets_before_another_may_open_them(cast: Cast, faults: Faults):
    ends = ends_of(cast.feed.log(), faults.without_store.sockets)
    assert None not in ends, "a socket is still open"
    cast.say(f"without DynamoDB: the last socket was dropped after {(max(ends) - faults.at_ms) / 1000:.1f} s")
    assert max(ends) - faults.at_ms <= DROPPED_WITHIN_MS


def test_a_paused_host_drops_what_it_held_as_soon_as_it_runs(cast: Cast, faults: Faults, engine: Engine):
    assert set(ends_of(cast.feed.log(), faults.paused.sockets)) == {None}, "a socket of a paused host ended"
    resumed_ms = cast.feed.log()["now_ms"]
    engine.docker("unpause", faults.paused.container)
    wait_until(lambda: None not in ends_of(cast.feed.log(), faults.paused.sockets), 10, "what the paused host held is dropped")
    last_ms = max(ends_of(cast.feed.log(), faults.paused.sockets)) - resumed_ms
    cast.say(f"paused: the last socket was dropped {last_ms} ms after it ran again")
    assert last_ms <= RESUMED_WITHIN_MS


def test_a_host_without_the_feed_keeps_its_lease_and_connects_again_when_the_way_is_mended(cast: Cast, faults: Faults, firewall: Firewall):
    firewall.mend(faults.without_store, cast.stack.endpoint)
    # One of those that were not hit before: the others have lost what they held.
    host = faults.without_feed = hosts(cast)[0]
    faults.without_feed_at_ms = cast.feed.log()["now_ms"]
    firewall.cut(host, cast.feed.url(""))
    time.sleep(SILENCE_SEEN_S)
    assert set(cast.held_by(host.session)) == set(host.connections), "a connection was given up, though nobody else is nearer to the feed"
    mended_ms = cast.feed.log()["now_ms"]
    firewall.mend(host, cast.feed.url(""))
    # A back-off is 30 s at most.
    seconds = wait_until(lambda: cast.are_open_again(host.connections, mended_ms), 45, "connected again")
    cast.say(f"without the feed: {len(host.connections)} connections, connected again {seconds:.1f} s after the way was mended")
    assert session_state(cast, host) == "ACTIVE"


def test_all_hosts_take_part_again_those_that_lost_their_lease_under_new_sessions(cast: Cast, faults: Faults):
    wait_until(lambda: len(active(cast)) == HOSTS or str(len(active(cast))), 45, "every host has a session")
    assert {faults.without_store.session, faults.paused.session}.isdisjoint(active(cast))
    # The feed learns that a socket is gone when it next sends over the way that is mended: up to a minute.
    cast.wait_for_connections("all hosts are back", timeout_s=75)


def test_nothing_replayable_is_lost_nothing_is_doubled_and_nobody_had_two_sockets_that_the_design_forbids(cast: Cast, faults: Faults):
    log, messages = cast.fall_silent()
    # A paused process cannot drop its sockets. The end of a socket without its way to the feed cannot be seen there before the way is mended.
    unseen = dict.fromkeys(faults.paused.sockets, faults.at_ms) | dict.fromkeys(faults.without_feed.sockets, faults.without_feed_at_ms)
    judged = verdict.judge(as_if_ended(log, unseen), messages)
    cast.say(str(judged))
    assert judged.sent > 2000, "the feed has hardly said anything"
    assert judged.lost == []
    assert judged.doubled == []
    assert judged.out_of_order == []
    assert judged.overlaps == {}
    # What was sent to hosts that could not store it, or did not get it, is missed where it cannot be asked for again. Nothing else is.
    unseen |= dict.fromkeys(faults.without_store.sockets, faults.at_ms)
    assert verdict.judge(as_if_ended(log, unseen), messages).unexplained == []


def looks_regularly(cast: Cast) -> bool:
    """Whether reconcile has looked again after its first look, which fences nobody: it cannot know how long it did not look."""
    remembered = next((row for row in cast.stack.rows("SessionsTable") if row["session_id"] == "#reconcile"), {})
    return remembered.get("last_look_ms", 0) > remembered.get("grace_until_ms", 0)


def active(cast: Cast) -> set[str]:
    """The sessions that live."""
    return {row["session_id"] for row in cast.live_sessions()}


def session_state(cast: Cast, host: Host) -> str:
    return next(row["session_state"] for row in cast.stack.rows("SessionsTable") if row["session_id"] == host.session)


def ends_of(log: dict, sockets: set[int]) -> list[int | None]:
    """When each of these sockets ended, as the feed saw it."""
    return [one["closed_at_ms"] for channel in log["channels"] for one in channel["sockets"] if one["id"] in sockets]


def as_if_ended(log: dict, ends_ms: dict[int, int]) -> dict:
    """The log of a feed that had seen these sockets end then."""
    changed = copy.deepcopy(log)
    for channel in changed["channels"]:
        for one in channel["sockets"]:
            one["closed_at_ms"] = ends_ms.get(one["id"], one["closed_at_ms"])
    return changed
