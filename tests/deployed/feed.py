"""The upstream: `leasehold feed` as a process of its own, whose log is the truth."""

from __future__ import annotations

import json
import select
import subprocess
import urllib.request
from pathlib import Path

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 20


class Feed:
    """A running feed. Channels whose ids begin with `live-` neither number nor replay; all others do both."""

    def __init__(self, program: Path, address: str, interval_ms: int = 500):
        command = [str(program), "feed", "--listen", f"{address}:0", "--control", "127.0.0.1:0", "--interval-ms", str(interval_ms)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise RuntimeError(f"{' '.join(command)} does not say where it listens")
        said = json.loads(line)
        self._url, self._control = said["feed"], said["control"]

    def url(self, channel: str) -> str:
        return f"{self._url}/feed/{channel}"

    def log(self) -> dict:
        return self._ask("GET", "/log")

    def open_sockets(self) -> dict[str, int]:
        """Open sockets by channel."""
        return self._ask("GET", "/sockets")["by_channel"]

    def stop_channel(self, channel: str) -> None:
        """The channel says nothing more; its sockets stay open."""
        self._ask("POST", f"/channels/{channel}/stop")

    def start_channel(self, channel: str) -> None:
        self._ask("POST", f"/channels/{channel}/start")

    def stop_all_channels(self) -> None:
        self._ask("POST", "/stop")

    def _ask(self, method: str, path: str) -> dict:
        request = urllib.request.Request(f"{self._control}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
