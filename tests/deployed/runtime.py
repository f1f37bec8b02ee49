"""The functions outside AWS: which sample event is whose, the runtime emulator of cargo-lambda, and `sam local`.

Each way of invoking has `invoke(function, event)`, with the function's name in cargo and the path of a JSON file.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import emulator
from places import BUILT, REPOSITORY, TARGET, TOOLS
from toolbox import clean_environment

EVENTS = REPOSITORY / "events"
# Name in cargo and in AWS's runtime emulators, and logical id in the template.
FUNCTIONS = {"desired-state": "DesiredStateFunction", "reconcile": "ReconcileFunction"}
# Whose every sample event is.
FUNCTION_OF = {
    "ecs-task-stopped.json": "reconcile",
    "empty.json": "reconcile",
    "schedule.json": "reconcile",
    "stream-insert.json": "desired-state",
    "stream-mixed-with-poison.json": "desired-state",
    "stream-modify-stopped.json": "desired-state",
    "stream-remove.json": "desired-state",
    "tick.json": "reconcile",
}
# The same triggers, as `sam local generate-event SERVICE EVENT` makes them.
GENERATED = {
    ("dynamodb", "update"): "desired-state",
    ("sqs", "receive-message"): "reconcile",
    ("cloudwatch", "scheduled-event"): "reconcile",
}
START_TIMEOUT_S = 60
# The first request of a function goes through `cargo run`, which looks at every file first.
INVOKE_TIMEOUT_S = 300
STOP_TIMEOUT_S = 10


@dataclass(frozen=True)
class Answer:
    """What became of an invocation. `value` is the JSON that the function gave, or None; `log` is all else that was printed."""

    code: int
    value: object
    log: str


def generate(service: str, event: str, file: Path) -> Path:
    """Has the SAM command make an event, in that file."""
    command = [TOOLS / "bin/sam", "local", "generate-event", service, event]
    result = subprocess.run(command, env=clean_environment(), cwd=file.parent, capture_output=True, text=True, check=True)
    file.write_text(result.stdout)
    return file


class Watch:
    """`cargo lambda watch`, with the release binaries, and their environment."""

    def __init__(self, variables: dict[str, str], log: Path):
        """Starts it. `variables` are the functions'. Raises RuntimeError with the end of its log."""
        self._log = log
        self._port = emulator.free_port("127.0.0.1")
        self._environment = with_tools() | emulator.credentials()
        # The flags of the build, so that nothing is compiled again.
        options = ["--release", "--target", TARGET, "--ignore-changes", "-A", "127.0.0.1", "-P", str(self._port)]
        command = [TOOLS / "bin/cargo-lambda", "lambda", "watch", *options]
        with log.open("wb") as output:
            quiet = dict(stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            self._process = subprocess.Popen(command, cwd=REPOSITORY, env=self._environment | variables, **quiet)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers("127.0.0.1", self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"cargo lambda watch does not answer:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def invoke(self, function: str, event: Path) -> Answer:
        """`cargo lambda invoke`."""
        address = ["-A", "127.0.0.1", "-P", str(self._port)]
        command = [TOOLS / "bin/cargo-lambda", "lambda", "invoke", *address, function, "--data-file", event]
        result = subprocess.run(command, cwd=REPOSITORY, env=self._environment, capture_output=True, text=True, timeout=INVOKE_TIMEOUT_S)
        log = self._log.read_text(errors="replace")
        return Answer(result.returncode, as_json(result.stdout), f"{result.stdout}{result.stderr}\n{log[-4000:]}")

    def close(self) -> None:
        """Ends it and the functions, which are in the session that was made for it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_TIMEOUT_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


class SamLocal:
    """`sam local invoke`: each invocation in a container of its own."""

    def __init__(self, variables: dict[str, str], docker: dict[str, str], work_dir: Path):
        """`variables` are the functions', `docker` those that name the engine."""
        self._environment = with_tools() | emulator.credentials() | docker
        self._work_dir = work_dir
        self._endpoint = variables["AWS_ENDPOINT_URL"]
        # Without a stack, a Ref of a table is its logical id: the names have to be said.
        self._variables = work_dir / "variables.json"
        self._variables.write_text(json.dumps({name: variables for name in FUNCTIONS.values()}))

    def invoke(self, function: str, event: Path) -> Answer:
        """`sam local invoke`."""
        options = ["--template", BUILT / "template.yaml", "--event", event.resolve(), "--env-vars", self._variables, "--skip-pull-image"]
        options += ["--parameter-overrides", f"AwsEndpointUrl={self._endpoint}", "--region", emulator.REGION]
        command = [TOOLS / "bin/sam", "local", "invoke", FUNCTIONS[function], *options]
        # Not the repository: its samconfig.toml would be read.
        rest = dict(cwd=self._work_dir, env=self._environment, capture_output=True, text=True, timeout=INVOKE_TIMEOUT_S)
        result = subprocess.run(command, **rest)
        return Answer(result.returncode, as_json(result.stdout), result.stdout + result.stderr)


def with_tools() -> dict[str, str]:
    """A clean environment in which `cargo lambda` and `sam` are found."""
    environment = clean_environment()
    return environment | {"PATH": f"{TOOLS / 'bin'}:{environment['PATH']}"}


def as_json(text: str) -> object:
    """The last line that is JSON, or the whole text if it is; else None."""
    for candidate in (text, *reversed(text.strip().splitlines())):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return None


def answers(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0
