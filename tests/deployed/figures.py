"""Sizes, cold and warm invocations, and memory of the functions that were built. Run by `tests/deployed/run --only build figures`.

A function is started as Lambda starts it: a process that asks a runtime API for its events. The API is our own, so that what is
measured is the function: "Using the Lambda runtime API". Its DynamoDB and SQS are the embedded ones of `leasehold local`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import artifacts
import emulator
import images
from engine import Engine, EngineError
from places import BINARIES, BUILT, WORK_DIR
from runtime import EVENTS, FUNCTIONS
from toolbox import clean_environment

# One of each function's most frequent events.
EVENT_OF = {"desired-state": "stream-insert.json", "reconcile": "tick.json"}
COLD_STARTS = 10
WARM_INVOCATIONS = 50
TIMEOUT_S = 30
# As in the template.
TIMEOUT_OF_FUNCTION_S = 60


@dataclass
class Measured:
    """A function's figures. Times in milliseconds, sizes in bytes."""

    zip_bytes: int
    # From the start of the process to its first question for an event: Lambda's init.
    init_ms: float
    # From there to the first answer: what a first invocation takes.
    first_ms: float
    cold_ms: float
    warm_ms: float
    peak_memory_bytes: int


class QuietServer(ThreadingHTTPServer):
    """A server that expects its caller to be killed in the middle of a request."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


class RuntimeApi:
    """The part of the Lambda runtime API that a function uses: the next event, its answer, its errors."""

    def __init__(self, event: bytes):
        """Serves `event`, again and again, each time that `offer` is called."""
        self._event = event
        self._offers = threading.Semaphore(0)
        self._asked = threading.Semaphore(0)
        self._answered = threading.Semaphore(0)
        self.errors: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Without it, an answer of two parts waits 40 ms for the first one's acknowledgement.
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_GET(self) -> None:
                api._asked.release()
                api._offers.acquire()
                deadline_ms = int((time.time() + TIMEOUT_OF_FUNCTION_S) * 1000)
                arn = f"arn:aws:lambda:{emulator.REGION}:{emulator.ACCOUNT}:function:f"
                headers = {"Lambda-Runtime-Aws-Request-Id": "8476a536-e9f4-11e8-9739-2dfe598c3fcd", "Lambda-Runtime-Deadline-Ms": deadline_ms}
                self._answer(200, api._event, {**headers, "Lambda-Runtime-Invoked-Function-Arn": arn})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path.endswith("/error"):
                    api.errors.append(body.decode(errors="replace"))
                self._answer(202, b"{}", {})
                api._answered.release()

            def _answer(self, status: int, body: bytes, headers: dict[str, object]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Type": "application/json", "Content-Length": len(body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait_until_asked(self) -> None:
        """Returns when the function has asked for its next event."""
        self._wait(self._asked, "has not asked for an event")

    def invoke(self) -> None:
        """Hands the event out; returns when the answer is there. RuntimeError if it is an error."""
        self._offers.release()
        self._wait(self._answered, "has not answered")
        if self.errors:
            raise RuntimeError(f"the function failed: {self.errors[0]}")

    def _wait(self, happened: threading.Semaphore, otherwise: str) -> None:
        if not happened.acquire(timeout=TIMEOUT_S):
            raise RuntimeError(f"the function {otherwise} for {TIMEOUT_S} s")

    def close(self) -> None:
        # Whoever still waits for an event gets it, and finds nobody to answer.
        self._offers.release()
        self._server.shutdown()
        self._server.server_close()


def start_once(binary: Path, event: bytes, variables: dict[str, str], warm: int) -> tuple[float, float, list[float], int]:
    """Starts the function and invokes it: init, first and warm times in milliseconds, peak memory in bytes."""
    api = RuntimeApi(event)
    # What Lambda sets: "Using Lambda environment variables".
    lambda_sets = {"AWS_LAMBDA_RUNTIME_API": api.address, "AWS_LAMBDA_FUNCTION_NAME": binary.name, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
                   "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST"}
    environment = {"PATH": os.environ["PATH"], **emulator.credentials(), **lambda_sets, **variables}
    began = time.perf_counter()
    process = subprocess.Popen([binary], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        api.wait_until_asked()
        ready = time.perf_counter()
        api.invoke()
        first = time.perf_counter()
        times = []
        for _ in range(warm):
            api.wait_until_asked()
            before = time.perf_counter()
            api.invoke()
            times.append((time.perf_counter() - before) * 1000)
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
        return (ready - began) * 1000, (first - ready) * 1000, times, peak_kib * 1024
    finally:
        process.kill()
        process.wait()
        api.close()


def measure(function: str, variables: dict[str, str]) -> Measured:
    """Medians of several cold starts, and of the warm invocations of one."""
    folder = BUILT / FUNCTIONS[function]
    event = (EVENTS / EVENT_OF[function]).read_bytes()
    # Once for the page cache, as Lambda keeps packages near.
    start_once(folder / "bootstrap", event, variables, 0)
    colds = [start_once(folder / "bootstrap", event, variables, 0) for _ in range(COLD_STARTS)]
    _, _, warm, memory = start_once(folder / "bootstrap", event, variables, WARM_INVOCATIONS)
    init, first = (statistics.median(cold[part] for cold in colds) for part in (0, 1))
    total = statistics.median(cold[0] + cold[1] for cold in colds)
    return Measured(artifacts.zip_bytes(folder), init, first, total, statistics.median(warm), memory)


class Local:
    """`leasehold local`, in a directory of its own."""

    def __init__(self, directory: Path):
        command = [BINARIES / "leasehold", "--state-dir", directory, "local", "--workers", "1"]
        output = (directory / "log").open("wb")
        quiet = dict(stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        self._process = subprocess.Popen(command, env=clean_environment(), **quiet)
        self._wait_for(directory)
        described = json.loads((directory / "local.json").read_text())
        self.variables = {
            "AWS_ENDPOINT_URL_DYNAMODB": described["dynamodb"],
            "AWS_ENDPOINT_URL_SQS": described["sqs"],
            "CONNECTIONS_TABLE": described["tables"]["connections"],
            "SESSIONS_TABLE": described["tables"]["sessions"],
            "CLAIMS_QUEUE_URL": described["queues"]["claims"],
            "TICKS_QUEUE_URL": described["queues"]["ticks"],
        }

    def _wait_for(self, directory: Path) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not (directory / "local.json").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"leasehold local does not start: {(directory / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self._process.send_signal(number)
                self._process.wait(TIMEOUT_S)
                return
            except subprocess.TimeoutExpired:
                continue

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def image_bytes(engine: Engine) -> int:
    """What the worker's image adds to its base."""
    base = images.worker_base(engine, WORK_DIR / "engine" / "bases")
    images.build_worker_image(engine, "leasehold-worker:measured", BINARIES / "worker", base)
    engine.remove_image_at_stop("leasehold-worker:measured")
    return images.added_bytes(engine, "leasehold-worker:measured", base)


def table(functions: dict[str, Measured], image: int | None) -> str:
    """The figures as a table for the documentation."""
    lines = ["| | zip | init | first invocation | cold start | warm invocation | peak memory |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, of in functions.items():
        sizes = f"{of.zip_bytes / 1e6:.2f} MB"
        times = f"{of.init_ms:.0f} ms | {of.first_ms:.0f} ms | {of.cold_ms:.0f} ms | {of.warm_ms:.1f} ms"
        lines.append(f"| `{name}` | {sizes} | {times} | {of.peak_memory_bytes / 1e6:.0f} MB |")
    if image is not None:
        lines.append(f"\nThe worker's image adds {image / 1e6:.1f} MB to its base.")
    return "\n".join(lines)


def too_much(functions: dict[str, Measured], image: int | None) -> list[str]:
    """What is beyond its limit."""
    wrong = [f"{name}: zip of {of.zip_bytes} bytes" for name, of in functions.items() if of.zip_bytes >= artifacts.MAX_ZIP_BYTES]
    return wrong + ([f"image: {image} bytes over its base"] if image is not None and image >= images.MAX_ADDED_BYTES else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-dir", type=Path, default=WORK_DIR)
    parser.add_argument("--no-containers", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Local(Path(directory)) as local:
        functions = {name: measure(name, local.variables) for name in FUNCTIONS}
    image = None
    if not options.no_containers:
        try:
            with Engine.find_or_start(options.work_dir / "engine") as engine:
                image = image_bytes(engine)
        except EngineError as error:
            print(f"the image is not measured: {error}", file=sys.stderr)
            return 1
    (options.work_dir / "figures.json").write_text(json.dumps(
        {"functions": {name: asdict(of) for name, of in functions.items()}, "image_added_bytes": image}, indent=1) + "\n")
    print(table(functions, image))
    wrong = too_much(functions, image)
    for line in wrong:
        print(f"beyond its limit: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
