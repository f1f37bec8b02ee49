"""The worker's image as it is shipped: who runs in it, how it ends, what it needs, how large it is."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import images
from engine import Engine

if TYPE_CHECKING:
    from fixtures_engine import Store

pytest_plugins = ["fixtures_engine"]

START_TIMEOUT_S = 30
# docs/settings.md: what a shutdown takes at most. The task definition gives it 120 s.
SHUTDOWN_TIMEOUT_S = 19
# As strict as a task definition can be: nothing to write on, no capability, no way to new rights.
STRICT = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@pytest.fixture
def worker(engine: Engine, worker_image: str, store: Store) -> Iterator[str]:
    """A running worker under the strictest settings, whose session is registered."""
    container = engine.start(worker_image, *STRICT, "--health-interval", "1s", *environment(store.settings))
    try:
        wait_until(lambda: '"registered"' in engine.logs(container), "registered", lambda: engine.logs(container))
        yield container
    finally:
        engine.remove(container)


def test_pid_1_is_the_worker_and_sigterm_leads_to_exit_0_in_time(engine: Engine, worker: str, store: Store):
    # https://github.com/aws-samples/aws-ecs-opentelemetry-sidecar/issues/2: a shell as PID 1 does not hand SIGTERM on,
    # so each stop waits for the whole time-out and ends with SIGKILL.
    processes = engine.docker("top", worker, "-o", "pid,args").splitlines()[1:]
    first = engine.inspect(worker)["State"]["Pid"]
    assert [line.split() for line in processes] == [[str(first), "/worker"]]
    assert store.session_states() == ["ACTIVE"]

    engine.docker("kill", "--signal", "TERM", worker)
    assert engine.wait(worker, SHUTDOWN_TIMEOUT_S) == 0
    # Not only ended: ended in order, so that others may take over at once.
    assert store.session_states() == ["ENDED"]


def test_docker_stop_sends_sigterm_too(engine: Engine, worker: str, store: Store):
    # `docker stop`, and ECS, send the image's STOPSIGNAL.
    engine.docker("stop", "--time", str(SHUTDOWN_TIMEOUT_S), worker)
    assert engine.inspect(worker)["State"]["ExitCode"] == 0
    assert store.session_states() == ["ENDED"]


def test_the_image_runs_as_non_root_with_a_read_only_root_file_system_and_no_shell(
    engine: Engine, worker_image: str, worker: str
):
    config = engine.inspect(worker_image)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/worker"]
    assert engine.inspect(worker)["HostConfig"]["ReadonlyRootfs"]
    assert engine.docker("top", worker, "-o", "pid,uid,gid").splitlines()[1].split()[1:] == ["65532", "65532"]
    # What it runs without is not there to be used: the base has no shell.
    shell = engine.run("run", "--rm", "--entrypoint", "/bin/sh", worker_image, "-c", "exit 0")
    assert shell.returncode == 127, shell.stderr


def test_the_image_has_the_root_certificates_that_tls_needs(engine: Engine, worker_image: str, tmp_path: Path):
    container = engine.docker("create", worker_image)
    try:
        engine.docker("cp", "--follow-link", f"{container}:/etc/ssl/certs/ca-certificates.crt", tmp_path / "roots")
    finally:
        engine.remove(container)
    assert (tmp_path / "roots").read_text().count("BEGIN CERTIFICATE") > 50


def test_the_image_adds_less_than_25_mb_to_its_base(
    engine: Engine, worker_image: str, worker_base: str, worker_binary: Path, record_property
):
    if "debug" in worker_binary.parts:
        pytest.skip("a debug build is larger: say it of the release build")
    added = images.added_bytes(engine, worker_image, worker_base)
    record_property("added_bytes", added)
    assert worker_binary.stat().st_size <= added < images.MAX_ADDED_BYTES


def test_the_image_says_what_it_is_and_which_version(engine: Engine, worker_image: str):
    labels = engine.inspect(worker_image)["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "leasehold-worker"
    assert labels["org.opencontainers.image.version"] == "1.2.3"
    assert labels["org.opencontainers.image.licenses"] == "MIT OR Apache-2.0"


def test_the_health_check_of_the_image_answers(engine: Engine, worker: str):
    # ECS runs the task definition's ["CMD", "/worker", "healthcheck"], which is this.
    answer = engine.docker("exec", worker, "/worker", "healthcheck")
    assert json.loads(answer)["held"] == 0
    # And Docker the image's.
    wait_until(lambda: engine.inspect(worker)["State"]["Health"]["Status"] == "healthy", "healthy")


def test_the_health_check_of_the_image_fails_where_no_worker_runs(engine: Engine, worker_image: str):
    assert engine.run("run", "--rm", *STRICT, worker_image, "healthcheck").returncode == 1


@pytest.mark.parametrize(
    ("setting", "value", "what_belongs_there"),
    [
        ("CONNECTIONS_TABLE", "", "name of a DynamoDB table"),
        ("GIVE_UP_MS", "30000", "LEASE_MS"),
        ("CAPACITY", "many", "100000"),
        ("ON_STORE_OUTAGE", "pray", "hold"),
    ],
)
def test_a_wrong_setting_ends_with_exit_code_2_and_a_sentence(
    engine: Engine, worker_image: str, setting: str, value: str, what_belongs_there: str
):
    endpoint = "http://127.0.0.1:9"
    right = {"CONNECTIONS_TABLE": "connections", "SESSIONS_TABLE": "sessions", "MESSAGES_TABLE": "messages"}
    right |= {"CLAIMS_QUEUE_URL": f"{endpoint}/000000000000/claims", "AWS_ENDPOINT_URL": endpoint}
    result = engine.run("run", "--rm", *STRICT, *environment({**right, setting: value}), worker_image)
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert setting in last and what_belongs_there in last


def test_a_table_that_is_not_there_ends_with_exit_code_3_and_a_sentence(
    engine: Engine, worker_image: str, store: Store
):
    settings = {**store.settings, "SESSIONS_TABLE": "no-such-table"}
    result = engine.run("run", "--rm", *STRICT, *environment(settings), worker_image, timeout_s=START_TIMEOUT_S)
    assert result.returncode == 3
    assert "no such table" in result.stderr and "SESSIONS_TABLE" in result.stderr


def test_the_documented_build_context_holds_the_binaries_and_nothing_else(
    engine: Engine, tmp_path: Path, worker_base: str, worker_binary: Path
):
    # A checkout as a user has it: sources, secrets, and what cargo leaves beside the binary.
    checkout = tmp_path / "checkout"
    release = checkout / "target/x86_64-unknown-linux-gnu/release"
    (release / "deps").mkdir(parents=True)
    (checkout / "worker").mkdir()
    for name in (".env", "Cargo.toml", "worker/secret", "target/large"):
        (checkout / name).write_text("not for the image")
    (release / "deps/large").write_text("not for the image")
    (release / "worker").write_bytes(worker_binary.read_bytes())
    (release / "worker").chmod(0o755)
    (checkout / ".dockerignore").write_text((images.REPOSITORY / ".dockerignore").read_text())
    (checkout / "worker/Dockerfile").write_text(images.DOCKERFILE.read_text())
    everything = tmp_path / "Dockerfile"
    everything.write_text("FROM scratch\nCOPY . /context\nCMD [\"none\"]\n")

    engine.docker("build", "--file", everything, "--tag", "leasehold-context:under-test", checkout)
    engine.remove_image_at_stop("leasehold-context:under-test")
    container = engine.docker("create", "leasehold-context:under-test")
    try:
        engine.docker("cp", f"{container}:/context", tmp_path / "context")
    finally:
        engine.remove(container)
    found = [path.relative_to(tmp_path / "context") for path in (tmp_path / "context").rglob("*") if path.is_file()]
    assert [str(path) for path in found] == ["target/x86_64-unknown-linux-gnu/release/worker"]

    # The command of the Dockerfile's head, in that checkout.
    command = ["docker", "build", "-f", "worker/Dockerfile", "-t", "leasehold-worker:documented"]
    command += ["--build-arg", f"BASE={worker_base}", "."]
    subprocess.run(command, cwd=checkout, env=engine.environment(), check=True, capture_output=True)
    engine.remove_image_at_stop("leasehold-worker:documented")
    version = engine.docker("run", "--rm", *STRICT, "leasehold-worker:documented", "--version")
    assert version.startswith("worker ")


def environment(settings: dict[str, str]) -> list[str]:
    """Settings as options of `docker run`."""
    return [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]


def wait_until(holds, what: str, explain=lambda: "") -> None:
    """Asks `holds` until it is true; fails with `what` and an explanation after START_TIMEOUT_S."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"not {what} after {START_TIMEOUT_S} s: {explain()}"
        time.sleep(0.1)
