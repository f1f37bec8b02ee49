"""Workers' containers as hosts: what one holds, and what can be done to its ways and its clock.

A way is cut in the container's own network namespace, by a container beside it: packets are dropped in both directions, and nobody is told.
What was under way is sent again and again, and arrives when the way is mended.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import images
from cast import Cast
from engine import Engine

# What `iptables` over nf_tables consists of.
FIREWALL_PACKAGES = ("iptables", "libc6", "libmnl0", "libnftnl11", "libxtables12")


@dataclass(frozen=True)
class Host:
    """A worker's container, and what it held when somebody looked."""

    container: str
    session: str
    connections: list[str]
    # The feed's numbers of their sockets.
    sockets: set[int]


def hosts(cast: Cast) -> list[Host]:
    """One for each running task that has a session, those that hold most first."""
    open_sockets = {channel["id"]: [one["id"] for one in channel["sockets"] if one["closed_at_ms"] is None] for channel in cast.feed.log()["channels"]}
    sessions = {row["task_arn"]: row["session_id"] for row in cast.live_sessions()}
    found = []
    for task in cast.stack.tasks():
        session = sessions.get(task["taskArn"])
        if session is None:
            continue
        held = cast.held_by(session)
        sockets = {socket for connection in held for socket in open_sockets[connection]}
        found.append(Host(cast.container_of(task["taskArn"]), session, held, sockets))
    return sorted(found, key=lambda host: -len(host.connections))


class Firewall:
    """Cuts and mends ways of containers."""

    def __init__(self, engine: Engine, work_dir: Path):
        self._engine = engine
        self._image = images.base_from_packages(engine, work_dir, "leasehold-firewall", FIREWALL_PACKAGES)

    def cut(self, host: Host, url: str) -> None:
        """Drops what the host sends to the port of this URL, and what comes from it."""
        self._both_ways("-A", host, url)

    def mend(self, host: Host, url: str) -> None:
        self._both_ways("-D", host, url)

    def _both_ways(self, action: str, host: Host, url: str) -> None:
        port = str(urlsplit(url).port)
        for chain, match in (("OUTPUT", "--dport"), ("INPUT", "--sport")):
            beside = ["--rm", "--network", f"container:{host.container}", "--cap-add", "NET_ADMIN"]
            rule = [action, chain, "-p", "tcp", match, port, "-j", "DROP"]
            self._engine.docker("run", *beside, self._image, "/usr/sbin/xtables-nft-multi", "iptables", *rule)
