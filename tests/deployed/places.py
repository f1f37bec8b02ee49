"""Where the tests find what `run` has made. The places that are no part of the work directory can be named by environment variables."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# `cargo lambda` builds for a target by name, and so does whoever wants to share what it compiles.
TARGET = "x86_64-unknown-linux-gnu"
WORK_DIR = Path(os.environ.get("LEASEHOLD_WORK_DIR", REPOSITORY / "target" / "deployed"))
# The shipped binaries, and those of the version before (made by `run`, stage `old`).
BINARIES = Path(os.environ.get("LEASEHOLD_BINARIES", REPOSITORY / "target" / TARGET / "release"))
OLD_BINARIES = Path(os.environ.get("LEASEHOLD_OLD_BINARIES", WORK_DIR / "old"))
# What `sam build` has made.
BUILT = Path(os.environ.get("LEASEHOLD_BUILT", REPOSITORY / ".aws-sam" / "build"))
# The virtual environment of the tools, and the interpreter of the emulator's, which runs these tests.
TOOLS = Path(os.environ.get("LEASEHOLD_TOOLS", WORK_DIR / "tools" / "tools"))
SAM = Path(shutil.which("sam") or TOOLS / "bin" / "sam")
EMULATOR_PYTHON = Path(sys.executable)
