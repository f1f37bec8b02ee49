"""The container engine of the deployed tests: found where one answers, else started, and ended again if it was ours.

Standard library and the `docker` command only. What needs the engine gets `Engine.environment()`, with DOCKER_HOST.

    with Engine.find_or_start(Path("target/deployed/engine")) as engine:
        container = engine.start("image", "--read-only")
"""

from __future__ import annotations

import atexit
import hashlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# A fresh dockerd answered after 1 to 8 s; a loaded machine takes longer.
START_TIMEOUT_S = 60
# dockerd gives its containers 10 s, and they are gone by then.
STOP_TIMEOUT_S = 30
# `sun_path` holds 108 bytes, unix(7). containerd's socket lies deepest.
MAX_SOCKET_PATH = 107


class EngineError(Exception):
    """There is no engine, or it refused something. The text says what to do."""


class Engine:
    """A container engine that answers. `ours` tells whether `stop` ends it."""

    def __init__(self, host: str | None, pid: int | None = None, process: subprocess.Popen | None = None):
        """`host` is a DOCKER_HOST, or None for the command's own default. `pid` is dockerd's if it is ours."""
        self.host = host
        self._pid = pid
        self._process = process
        self._containers: list[str] = []
        self._tags: list[str] = []

    @property
    def ours(self) -> bool:
        """Whether this engine was started by these tests, now or by a run that was cut off."""
        return self._pid is not None

    @classmethod
    def find_or_start(cls, work_dir: Path, install: bool = False) -> Engine:
        """The engine that answers at DOCKER_HOST or the default place, else our own with its files in `work_dir`.

        `install` allows `apt-get install docker.io` where dockerd is missing. Raises EngineError.
        """
        if _answers(os.environ.get("DOCKER_HOST")):
            return cls(os.environ.get("DOCKER_HOST"))
        work_dir = _short(work_dir.resolve())
        host = f"unix://{work_dir / 'docker.sock'}"
        running = _pid_in(work_dir / "dockerd.pid", "dockerd")
        if running and _answers(host):
            if _pid_in(work_dir / "owner.pid") not in (None, os.getpid()):
                # Another run's, which is still at work.
                return cls(host)
            engine = cls(host, pid=running)
        else:
            _require_dockerd(install)
            if _answers(None):
                # The package has started a service of the system.
                return cls(None)
            engine = cls._start(work_dir, host)
        (work_dir / "owner.pid").write_text(str(os.getpid()))
        engine._end_with_this_process()
        return engine

    @classmethod
    def _start(cls, work_dir: Path, host: str) -> Engine:
        work_dir.mkdir(parents=True, exist_ok=True)
        log = work_dir / "dockerd.log"
        # The storage driver is dockerd's choice: overlay2 where the file system can, vfs where not.
        command = ["dockerd", "--data-root", work_dir / "data", "--exec-root", work_dir / "exec"]
        command += ["--pidfile", work_dir / "dockerd.pid", "-H", host]
        with log.open("wb") as out:
            # A session of its own: Ctrl-C is for us, who remove the containers first.
            quiet = dict(stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            process = subprocess.Popen(command, start_new_session=True, **quiet)
        engine = cls(host, pid=process.pid, process=process)
        try:
            engine._wait_until_it_answers(log)
        except BaseException:
            engine._end_dockerd()
            raise
        return engine

    def _wait_until_it_answers(self, log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(self.host):
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                last = log.read_text(errors="replace").splitlines()[-5:]
                what = "ended" if ended else f"has not answered for {START_TIMEOUT_S} s"
                raise EngineError(f"dockerd {what}; {log} ends with:\n" + "\n".join(last))
            time.sleep(0.2)

    def _end_with_this_process(self) -> None:
        """Has `stop` called at every end of this process but SIGKILL; after that, the next run adopts the engine."""
        atexit.register(self.stop)
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))

    @property
    def variables(self) -> dict[str, str]:
        """What tells another program where this engine is; nothing if it is at the default place."""
        return {"DOCKER_HOST": self.host} if self.host else {}

    def environment(self) -> dict[str, str]:
        """This process's environment with `variables`."""
        return {**os.environ, **self.variables}

    def run(self, *arguments: str | Path, timeout_s: float = 300) -> subprocess.CompletedProcess:
        """`docker` with these arguments, whatever its exit code. Output is text."""
        command = ["docker", *map(str, arguments)]
        quiet = dict(stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return subprocess.run(command, env=self.environment(), timeout=timeout_s, **quiet)

    def docker(self, *arguments: str | Path, timeout_s: float = 300) -> str:
        """Standard output of `docker` with these arguments. Raises EngineError if it fails."""
        result = self.run(*arguments, timeout_s=timeout_s)
        if result.returncode != 0:
            raise EngineError(f"docker {arguments[0]} failed ({result.returncode}): {result.stderr.strip()}")
        return result.stdout.strip()

    def inspect(self, name: str) -> dict:
        """What `docker inspect` says of an image or container."""
        return json.loads(self.docker("inspect", name))[0]

    def has_image(self, name: str) -> bool:
        """Whether an image of this name is there, without asking a registry."""
        return self.run("image", "inspect", name).returncode == 0

    def gateway(self) -> str:
        """The host's address on the default bridge: where containers reach what runs on the host."""
        config = json.loads(self.docker("network", "inspect", "bridge"))[0]["IPAM"]["Config"][0]
        # Docker 20.10 names no gateway before its first restart; it takes the first address.
        return config.get("Gateway") or str(ipaddress.ip_network(config["Subnet"])[1])

    def start(self, image: str, *options: str, command: tuple[str, ...] = ()) -> str:
        """Starts a container in the background and returns its id. `stop` removes it if nobody has."""
        container = self.docker("create", *options, image, *command)
        self._containers.append(container)
        self.docker("start", container)
        return container

    def logs(self, container: str) -> str:
        """Both outputs of a container so far."""
        result = self.run("logs", container)
        return result.stdout + result.stderr

    def wait(self, container: str, timeout_s: float) -> int:
        """Waits for the container to end; its exit code. Raises EngineError if it does not end in time."""
        try:
            return int(self.docker("wait", container, timeout_s=timeout_s))
        except subprocess.TimeoutExpired:
            logs = self.logs(container)
            raise EngineError(f"container {container[:12]} has not ended within {timeout_s} s:\n{logs}") from None

    def remove(self, container: str) -> None:
        """Kills and removes one container; one that is gone already is no error."""
        self.run("rm", "--force", "--volumes", container)
        if container in self._containers:
            self._containers.remove(container)

    def remove_image_at_stop(self, name: str) -> None:
        """Has `stop` take this name off again. An engine of our own keeps it for the next run."""
        self._tags.append(name)

    def stop(self) -> None:
        """Removes the containers that were made here, by id, and ends the engine if it is ours. May be called again."""
        atexit.unregister(self.stop)
        try:
            self._tidy()
        finally:
            if self.ours:
                self._end_dockerd()
                self._pid = None

    def _tidy(self) -> None:
        for container in list(self._containers):
            self.remove(container)
        if self.ours:
            # All that runs in an engine of our own is ours, whoever asked for it.
            for container in self.run("ps", "--all", "--quiet", "--no-trunc").stdout.split():
                self.remove(container)
            return
        for name in self._tags:
            self.run("rmi", name)
        self._tags.clear()

    def _end_dockerd(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._gone():
                return
            try:
                os.kill(self._pid, number)
            except ProcessLookupError:
                return
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while not self._gone() and time.monotonic() < deadline:
                time.sleep(0.1)

    def _gone(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        return self._pid is None or not _runs(self._pid, "dockerd")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_exception) -> None:
        self.stop()


def _short(work_dir: Path) -> Path:
    """`work_dir`, or where its path is too long for the engine's sockets a directory that is always the same for it."""
    if len(str(work_dir / "exec/containerd/containerd-debug.sock")) <= MAX_SOCKET_PATH:
        return work_dir
    name = hashlib.sha256(str(work_dir).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"leasehold-engine-{name}"


def _answers(host: str | None) -> bool:
    if shutil.which("docker") is None:
        return False
    environment = dict(os.environ, DOCKER_HOST=host) if host else None
    try:
        # `version` fails without a server; `info` of newer clients does not.
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        return subprocess.run(command, env=environment, capture_output=True, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _pid_in(file: Path, program: str | None = None) -> int | None:
    """The running process that a pid file names, or None. A pid may have gone to another `program` since."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return None
    return pid if _runs(pid, program) else None


def _runs(pid: int, program: str | None) -> bool:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return False
    return program is None or name == program


def _require_dockerd(install: bool) -> None:
    if os.geteuid() != 0:
        raise EngineError("no container engine answers, and only root can start one: start docker, or set DOCKER_HOST")
    missing = [name for name in ("docker", "dockerd") if shutil.which(name) is None]
    if not missing:
        return
    if not install or shutil.which("apt-get") is None:
        what = " and ".join(missing)
        raise EngineError(f"no container engine answers, and {what} is not installed: `apt-get install docker.io`")
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "docker.io"]):
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            raise EngineError(f"{' '.join(command)} failed:\n{result.stderr.strip()}")
