"""The connections of a run, and what people and machines do to them."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field

import emulator
import verdict
from engine import Engine
from feed import Feed
from stack import Stack, wait_until

# How many of each kind. Every task holds some of both.
REPLAYING = 24
LIVE = 16
# Promised: 38 s after a silent death with the socket's own way back; 5 s where a task event tells of it. With room for a busy machine.
RECOVERED_WITHIN_S = 60


@dataclass
class Cast:
    """A stack, its feed, and the connections that should be open."""

    engine: Engine
    stack: Stack
    feed: Feed
    connections: list[str] = field(default_factory=list)

    def write_rows(self, replaying: int = REPLAYING, live: int = LIVE) -> None:
        """Rows as a user writes them: three attributes by hand, or with what it takes to resume."""
        for number in range(live):
            self.write_by_hand(f"live-{number}")
        for number in range(replaying):
            connection = f"feed-{number}"
            self.stack.write_row(connection, desired_state="STARTED", ws_url=self.feed.url(connection), sequence_pointer="/seq",
                                 resume={"query": "from={last_seq}"})
            self.connections.append(connection)

    def write_by_hand(self, connection: str) -> None:
        self.stack.write_row(connection, desired_state="STARTED", ws_url=self.feed.url(connection))
        if connection not in self.connections:
            self.connections.append(connection)

    def everything_is_connected(self) -> bool | str:
        """True if each connection has one open socket; otherwise which do not."""
        sockets = self.feed.open_sockets()
        wrong = {name: sockets.get(name, 0) for name in self.connections if sockets.get(name, 0) != 1}
        return not wrong or f"{len(wrong)} of {len(self.connections)} have not one socket, such as {dict(list(wrong.items())[:3])}"

    def wait_for_connections(self, what: str, timeout_s: float = RECOVERED_WITHIN_S) -> None:
        try:
            seconds = wait_until(self.everything_is_connected, timeout_s, f"{what}: everything is connected")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.last_words()}") from None
        self.say(f"{what}: everything connected after {seconds:.1f} s")

    def wait_for_first_messages(self) -> None:
        """Until each connection that can resume has something stored: before that there is no place to go on from, whatever dies."""
        replaying = {name for name in self.connections if not name.startswith("live-")}
        wait_until(lambda: replaying <= set(verdict.stored_payloads(self.stack.rows("MessagesTable"))), 30, "a message of each is stored")

    def versions(self) -> set[str]:
        """What the sessions that live say of their workers' version."""
        return {row["version"] for row in self.live_sessions()}

    def live_sessions(self) -> list[dict]:
        return [row for row in self.stack.rows("SessionsTable") if row.get("session_state") == "ACTIVE"]

    def held_by(self, session: str) -> list[str]:
        """The connections whose rows name this session."""
        return [row["Pk"].removeprefix("CONN#") for row in self.stack.rows("ConnectionsTable") if row.get("lease_owner") == session]

    def last_words(self) -> str:
        """What the workers and the functions last said, for people who look for the reason."""
        lines = [f"{group}: {line[:400]}" for group in ("worker", "desired-state", "reconcile") for line in self.stack.log_lines(group)[-6:]]
        return "\n".join(lines)

    def scale(self, count: int) -> None:
        self.stack.scale(count)
        wait_until(lambda: len(self.stack.tasks()) == count or self.stack.running_images(), 60, f"{count} tasks run")

    def kill_a_task(self, what: str) -> None:
        """SIGKILL for one task's container, as a host that dies; and until what it held is open again, and the task replaced.

        Its session is fenced because the task is reported to have ended: that is what the rule for task state changes is for.
        """
        count = len(self.stack.tasks())
        task = self.stack.tasks()[0]["taskArn"]
        session = next(row["session_id"] for row in self.stack.rows("SessionsTable") if row.get("task_arn") == task)
        held = self.held_by(session)
        killed_at_ms = self.feed.log()["now_ms"]
        self.engine.docker("kill", self.container_of(task))
        seconds = wait_until(lambda: self.are_open_again(held, killed_at_ms), RECOVERED_WITHIN_S, f"{what}: what the task held is open again")
        self.say(f"{what}: the {len(held)} connections of the killed task open again after {seconds:.1f} s")
        wait_until(lambda: self.was_fenced(session), 10, "reconcile says that it fenced the session for the report")
        wait_until(lambda: len(self.stack.tasks()) == count, 60, "the task is replaced")
        self.wait_for_connections(what)

    def are_open_again(self, connections: list[str], since_ms: int) -> bool | str:
        """Whether each has a socket that was opened after `since_ms`, by the feed's clock, and is open."""
        sockets = {channel["id"]: channel["sockets"] for channel in self.feed.log()["channels"]}
        missing = [name for name in connections
                   if not any(one["opened_at_ms"] > since_ms and one["closed_at_ms"] is None for one in sockets[name])]
        return not missing or f"{len(missing)} of {len(connections)} are not, such as {missing[:3]}"

    def was_fenced(self, session: str) -> bool:
        lines = self.stack.log_lines("reconcile", session)
        return any('"event":"fence"' in line and "its task is reported stopped" in line for line in lines)

    def container_of(self, task: str) -> str:
        found = self.engine.docker("ps", "--quiet", "--no-trunc", "--filter", f"label=com.amazonaws.ecs.task-arn={task}").split()
        assert len(found) == 1, f"{len(found)} containers of task {task}"
        return found[0]

    def containers(self) -> list[str]:
        """Containers of this stack's tasks that run."""
        cluster = f"label=com.amazonaws.ecs.cluster=arn:aws:ecs:{emulator.REGION}:{emulator.ACCOUNT}:cluster/{self.stack.outputs['Cluster']}"
        return self.engine.docker("ps", "--quiet", "--filter", cluster).split()

    def was_tried(self, image: str) -> bool:
        """Whether ECS has a stopped task that was to run this image."""
        ecs = self.stack.client("ecs")
        arns = ecs.list_tasks(cluster=self.stack.outputs["Cluster"], desiredStatus="STOPPED")["taskArns"][-100:]
        tasks = ecs.describe_tasks(cluster=self.stack.outputs["Cluster"], tasks=arns)["tasks"] if arns else []
        return any(container["image"] == image for task in tasks for container in task["containers"])

    def final_verdict(self) -> verdict.Verdict:
        """The feed falls silent, what it sent is stored, and then it is compared."""
        judged = verdict.judge(*self.fall_silent())
        self.say(str(judged))
        return judged

    def fall_silent(self) -> tuple[dict, list[dict]]:
        """Until what the feed sent is stored. Returns its log and the messages."""
        self.feed.stop_all_channels()
        wait_until(self.everything_is_stored, 30, "what replayable feeds sent is stored")
        # The rest of what was sent to sockets that cannot ask again.
        time.sleep(2)
        return self.feed.log(), self.stack.rows("MessagesTable")

    def everything_is_stored(self) -> bool | str:
        log, messages = self.feed.log(), self.stack.rows("MessagesTable")
        lost = verdict.judge(log, messages).lost
        return not lost or f"{len(lost)} are not:\n{verdict.story_of(lost[0].rsplit('-', 1)[0], log, messages)}"

    def say(self, line: str) -> None:
        print(line, flush=True)


def leasehold(program: object, stack: Stack, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    """The operator's command, told by its environment which stack it talks to."""
    names = {"CONNECTIONS_TABLE": "ConnectionsTable", "SESSIONS_TABLE": "SessionsTable", "MESSAGES_TABLE": "MessagesTable"}
    variables = {variable: stack.outputs[output] for variable, output in names.items()}
    return subprocess.run([str(program), *arguments], env={**environment, **variables, "AWS_ENDPOINT_URL": stack.endpoint},
                          capture_output=True, text=True, timeout=60)
