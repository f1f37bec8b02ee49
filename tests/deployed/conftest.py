"""What the scenarios share: the emulator on the bridge, images of both versions, the feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import images
import places
from emulator import Emulator
from engine import Engine
from feed import Feed
from stack import Stack

pytest_plugins = ["fixtures_engine"]

# As people name them: the registry's address of this account, and a tag a version. No registry is asked: the images are local.
REPOSITORY_URI = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/leasehold-worker"


@dataclass(frozen=True)
class Images:
    """Names of the worker's image: the version before, this one, and this one built again under another tag."""

    old: str
    new: str
    again: str


@pytest.fixture(scope="session")
def aws(engine: Engine) -> Iterator[Emulator]:
    """An emulator where containers reach it, which checks no permissions."""
    with start_emulator(engine, auth=False) as emulator:
        yield emulator


def start_emulator(engine: Engine, auth: bool) -> Emulator:
    docker = {"DOCKER_HOST": engine.host} if engine.host else {}
    return Emulator.start(places.EMULATOR_PYTHON, places.WORK_DIR / "emulator", engine.gateway(), docker, auth)


@pytest.fixture(scope="session")
def worker_images(engine: Engine, worker_base: str) -> Images:
    """The real images, built by the real Dockerfile."""
    binaries = {"old": places.OLD_BINARIES, "new": places.BINARIES, "again": places.BINARIES}
    for tag, folder in binaries.items():
        images.build_worker_image(engine, f"{REPOSITORY_URI}:{tag}", folder / "worker", worker_base, {"VERSION": tag})
        engine.remove_image_at_stop(f"{REPOSITORY_URI}:{tag}")
    return Images(*(f"{REPOSITORY_URI}:{tag}" for tag in binaries))


@pytest.fixture(scope="session")
def stack(aws: Emulator) -> Stack:
    """The stack as a first deployment makes it: no image, no service."""
    stack = Stack(aws, places.SAM, places.BUILT)
    stack.deploy()
    return stack


@pytest.fixture(scope="session")
def feed(engine: Engine) -> Iterator[Feed]:
    """The upstream, on the host: outside of everything that is killed."""
    with Feed(places.BINARIES / "leasehold", engine.gateway()) as feed:
        yield feed


@pytest.fixture(scope="session")
def scratch() -> Path:
    """For copies of what was built."""
    folder = places.WORK_DIR / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
