"""Virtual environments of pinned tools, a clean environment for what we call, and children that are surely ended.

Standard library only: this is what makes everything else available.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
# The pinned packages have no versions for older ones.
LEAST_PYTHON = (3, 11)
# What a child gets to end by itself: tests end containers and emulators meanwhile.
END_TIMEOUT_S = 90
KILL_TIMEOUT_S = 5
# The caller's own AWS account, tool settings and Python have no place in a test.
NOT_INHERITED = ("AWS_", "SAM_", "CARGO_LAMBDA_", "CONNECTIONS_TABLE", "SESSIONS_TABLE", "MESSAGES_TABLE", "CLAIMS_QUEUE_URL",
                 "TICKS_QUEUE_URL", "ECS_", "PYTHONPATH", "PYTHONHOME", "PYTEST_", "VIRTUAL_ENV")


class StageFailed(Exception):
    """A stage came to nothing. The text says why."""


def clean_environment() -> dict[str, str]:
    """The caller's environment without its AWS settings, and with credentials that are none."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    environment |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    environment |= {"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "eu-central-1"}
    # Files in the home directory: profiles with keys, and settings of the SAM command.
    environment |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "SAM_CLI_TELEMETRY": "0"}
    return environment


class Children:
    """Runs one command after the other. Each is ended with all that it has started, by the group that was made for it."""

    def __init__(self) -> None:
        self._current: subprocess.Popen | None = None

    def run(self, command: list[str | Path], *, cwd: Path, environment: dict[str, str], timeout_s: float) -> int:
        """The exit code of a command that prints what it has to say. Raises StageFailed when it takes longer."""
        words = [str(word) for word in command]
        print("$", " ".join(words), flush=True)
        # A session of its own: Ctrl-C reaches us alone, and we hand it on.
        quiet = dict(stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            self._current = subprocess.Popen(words, cwd=cwd, env=environment, **quiet)
        except OSError as error:
            raise StageFailed(f"{words[0]} cannot be started: {error}") from error
        try:
            return self._current.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise StageFailed(f"{Path(words[0]).name} has not ended after {timeout_s:.0f} s") from None
        finally:
            self._end()

    def check(self, command: list[str | Path], *, cwd: Path, environment: dict[str, str], timeout_s: float) -> None:
        """Runs a command that has to succeed. Raises StageFailed otherwise."""
        code = self.run(command, cwd=cwd, environment=environment, timeout_s=timeout_s)
        if code != 0:
            raise StageFailed(f"{Path(command[0]).name} ended with exit code {code}")

    def _end(self) -> None:
        """Asks the child to end, as Ctrl-C does, and then ends what is left of its group."""
        child, self._current = self._current, None
        if child.poll() is None:
            # To the child alone: what it has started it ends itself, in the right order.
            child.send_signal(signal.SIGINT)
            try:
                child.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not _signal_group(child.pid, number):
                break
            deadline = time.monotonic() + KILL_TIMEOUT_S
            while time.monotonic() < deadline and _signal_group(child.pid, 0):
                child.poll()
                time.sleep(0.05)
        child.poll()


def _signal_group(group: int, number: int) -> bool:
    """Whether there was anybody in the group to be signalled."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def virtual_environment(children: Children, name: str, work_dir: Path) -> Path:
    """The directory of programs of a virtual environment with requirements/NAME.txt, made unless it is there already.

    Raises StageFailed.
    """
    if sys.version_info < LEAST_PYTHON:
        needed = ".".join(map(str, LEAST_PYTHON))
        raise StageFailed(f"the pinned tools need Python {needed} or later; this is {sys.version.split()[0]}")
    requirements = REQUIREMENTS / f"{name}.txt"
    home = work_dir / "tools" / name
    stamp = home / "made-of"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode() + str(home).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        print(f"{name}: {home} is as {requirements.name} says")
        return home / "bin"
    shutil.rmtree(home, ignore_errors=True)
    environment = clean_environment()
    rest = dict(cwd=work_dir, environment=environment)
    children.check([sys.executable, "-m", "venv", home], timeout_s=120, **rest)
    # Everything is pinned, so nothing is left to resolve; `check` says if a pin is missing.
    install = [home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", requirements]
    children.check(install, timeout_s=900, **rest)
    children.check([home / "bin/pip", "check", "--disable-pip-version-check"], timeout_s=60, **rest)
    stamp.write_text(wanted)
    return home / "bin"
