"""MiniStack, the AWS of these tests: started with our patches, one process, in memory, ended by its own pid.

It listens on the address that containers reach, or on loopback where there are none.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
# It waits for its own threads far longer than that, and keeps nothing anyway.
END_TIMEOUT_S = 2
REGION = "eu-central-1"
# MiniStack takes the key's digits for the account. With AUTH=true this one is its root.
ACCOUNT = "123456789012"
# With the port, what its containers are labelled with.
HOSTNAME = "leasehold-tests"
HERE = Path(__file__).parent


def credentials() -> dict[str, str]:
    """The environment of a user of the emulator who may do everything. Nothing of the caller's own AWS settings."""
    return {
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Emulator:
    """A running MiniStack."""

    def __init__(self, process: subprocess.Popen, endpoint: str, log: Path, docker: dict[str, str] | None = None):
        self._process = process
        self._docker = docker
        self.endpoint = endpoint
        self.log = log

    @classmethod
    def start(cls, python: Path, work_dir: Path, address: str = "127.0.0.1", docker: dict[str, str] | None = None,
              auth: bool = False) -> "Emulator":
        """Starts it with the interpreter `python` of the emulator's virtual environment. `docker` is the engine's environment.

        Raises RuntimeError with the end of its log when it does not answer.
        """
        work_dir.mkdir(parents=True, exist_ok=True)
        port = free_port(address)
        endpoint = f"http://{address}:{port}"
        log = work_dir / f"ministack-{port}.log"
        # A clean environment: functions inherit it.
        environment = {
            "MINISTACK_HOSTNAME": HOSTNAME,
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "HOME": str(work_dir),
            "BIND_HOST": address,
            "GATEWAY_PORT": str(port),
            "IOT_MTLS_ENABLED": "0",
            # How soon it sees that a container has ended: ECS is told by its agent.
            "ECS_REAP_INTERVAL_SECONDS": "1",
            "AWS_ENDPOINT_URL": endpoint,
            "AUTH": "true" if auth else "false",
            "AWS_SECRET_ACCESS_KEY": "test",
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **(docker or {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen([str(python), str(HERE / "patches.py")], env=environment, cwd=work_dir,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        emulator = cls(process, endpoint, log, docker)
        emulator._wait_until_it_answers()
        return emulator

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2).read()
                return
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"MiniStack does not answer at {self.endpoint}:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Ends tasks and functions, and then the process."""
        if self._process.poll() is not None:
            return
        try:
            request = urllib.request.Request(f"{self.endpoint}/_ministack/reset", method="POST")
            urllib.request.urlopen(request, timeout=STOP_TIMEOUT_S).read()
        except OSError:
            pass
        self._end()
        self._remove_containers()

    def _end(self) -> None:
        # Functions are its children, in the session that was made for it.
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, signal_number)
            except ProcessLookupError:
                pass
            try:
                self._process.wait(END_TIMEOUT_S)
                return
            except subprocess.TimeoutExpired:
                continue

    def _remove_containers(self) -> None:
        """Those of tasks that were left: a reset is bounded in time, and a worker may take its time to end."""
        if self._docker is None:
            return
        environment = {**os.environ, **self._docker}
        label = f"label=ministack.instance={HOSTNAME}:{self.endpoint.rsplit(':', 1)[1]}"
        found = subprocess.run(["docker", "ps", "--all", "--quiet", "--filter", label], env=environment, capture_output=True, text=True)
        if containers := found.stdout.split():
            subprocess.run(["docker", "rm", "--force", *containers], env=environment, capture_output=True)

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def client(service: str, endpoint: str):
    """A client of boto3 that may do everything."""
    return boto3.client(service, endpoint_url=endpoint, **client_settings())


def client_settings() -> dict:
    """What clients and resources of boto3 need besides the endpoint."""
    return {"region_name": REGION, "aws_access_key_id": ACCOUNT, "aws_secret_access_key": "test",
            "config": Config(retries={"mode": "standard", "max_attempts": 3}, read_timeout=60)}


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]
