"""The judgement of a run: what the feed says it sent, against what the messages table holds. Knows nothing of the product's code."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

# The feed sees the end of one socket and the opening of the next in two tasks: that much may be a delay of its own.
OVERLAP_TOLERANCE_MS = 500
# How long a message may be on its way from a socket to the table. A worker that is killed takes with it what it had not stored.
ON_THE_WAY_MS = 3_000


@dataclass
class Verdict:
    """Counts of messages, and what is wrong by connection."""

    sent: int = 0
    stored: int = 0
    lost: list[str] = field(default_factory=list)
    missed: int = 0
    unexplained: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    overlaps: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return (f"sent {self.sent}, stored {self.stored}, lost {len(self.lost)}, missed by feeds that cannot replay {self.missed}, "
                f"doubled {len(self.doubled)}, out of order {len(self.out_of_order)}, connections with two sockets at once {len(self.overlaps)}")


def judge(log: dict, messages: list[dict]) -> Verdict:
    """`log` is the feed's; `messages` are all rows of the messages table."""
    verdict = Verdict()
    stored = stored_payloads(messages)
    for channel in log["channels"]:
        assert not any(channel["forgotten"].values()) if isinstance(channel["forgotten"], dict) else not channel["forgotten"], \
            "the feed's log has forgotten something"
        judge_channel(channel, stored.get(channel["id"], []), verdict)
    return verdict


def stored_payloads(messages: list[dict]) -> dict[str, list[tuple[str, int | None]]]:
    """By connection, in the order of the keys: payload and number of each message."""
    found: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
    for message in sorted(messages, key=lambda message: (message["Pk"], message["Sk"])):
        body = json.loads(message["body"])
        found[message["Pk"].removeprefix("CONN#")].append((body["payload"], body.get("seq")))
    return found


def judge_channel(channel: dict, stored: list[tuple[str, int | None]], verdict: Verdict) -> None:
    payloads = [payload for payload, _ in stored]
    sent = [message["payload"] for message in channel["emitted"] if message["while_started"]]
    absent = sorted(set(sent) - set(payloads))
    verdict.sent += len(sent)
    verdict.stored += len(set(sent) & set(payloads))
    if channel["replay"]:
        verdict.lost += absent
    else:
        verdict.missed += len(absent)
        verdict.unexplained += [payload for payload in absent if was_delivered(payload, channel)]
    verdict.doubled += sorted({payload for payload in payloads if payloads.count(payload) > 1})
    numbers = [number for _, number in stored if number is not None]
    verdict.out_of_order += [f"{channel['id']}: {later} after {earlier}" for earlier, later in pairwise(numbers) if later <= earlier]
    longest = longest_overlap_ms(channel["sockets"])
    if longest > OVERLAP_TOLERANCE_MS:
        verdict.overlaps[channel["id"]] = longest


def was_delivered(payload: str, channel: dict) -> bool:
    """Whether the feed wrote it to a socket that lived long enough for it to be stored: what is on its way when a socket ends cannot be asked
    for again."""
    ends = {one["id"]: one["closed_at_ms"] for one in channel["sockets"]}
    writes = [write for write in channel["written"] if write["payload"] == payload]
    return any(ends[write["socket"]] is None or ends[write["socket"]] - write["at_ms"] >= ON_THE_WAY_MS for write in writes)


def longest_overlap_ms(sockets: list[dict]) -> int:
    """The longest time for which two sockets of a channel were open at once."""
    longest = 0
    for index, first in enumerate(sockets):
        for second in sockets[index + 1:]:
            ends = [socket["closed_at_ms"] for socket in (first, second) if socket["closed_at_ms"] is not None]
            begin = max(first["opened_at_ms"], second["opened_at_ms"])
            longest = max(longest, min(ends, default=begin) - begin)
            if not ends:
                raise AssertionError(f"two sockets are open at the end: {first['id']} and {second['id']}")
    return longest


def story_of(connection: str, log: dict, messages: list[dict]) -> str:
    """What happened to one connection, for people who look for the reason of a loss."""
    channel = next(channel for channel in log["channels"] if channel["id"] == connection)
    stored = stored_payloads(messages).get(connection, [])
    sent = [message["payload"] for message in channel["emitted"]]
    absent = sorted(set(sent) - {payload for payload, _ in stored}, key=sent.index)
    times = {message["payload"]: message["at_ms"] for message in channel["emitted"]}
    lines = [f"{connection}: sent {len(sent)}, stored {len(stored)}, absent {absent[:1]} at {times[absent[0]]} to {absent[-1:]} at {times[absent[-1]]}"]
    for socket in channel["sockets"]:
        written = sum(1 for write in channel["written"] if write["socket"] == socket["id"])
        lines.append(f"  socket {socket['id']} from {socket['peer']}: {socket['opened_at_ms']} to {socket['closed_at_ms']} ms, ended {socket['end']}, "
                     f"resume {socket['resume']}, {written} written")
    return "\n".join(lines)
