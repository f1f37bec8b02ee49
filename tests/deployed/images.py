"""The images of the deployed tests: the bases, and the worker's own image.

A base is the public one where its registry can be reached. Elsewhere it is put together from the distribution's
packages: the same kind of root file system (C library, root certificates, for the functions a small shell).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from engine import Engine, EngineError
from places import REPOSITORY

DOCKERFILE = REPOSITORY / "worker" / "Dockerfile"
# The default of the Dockerfile's BASE.
PUBLIC_WORKER_BASE = "gcr.io/distroless/cc-debian12:nonroot"
# The name under which `sam local invoke --skip-pull-image` looks for the base of a `provided.al2023` function.
LAMBDA_BASE = "public.ecr.aws/lambda/provided:al2023-x86_64"
# What sam builds on it, and keeps.
LAMBDA_IMAGE = "public.ecr.aws/lambda/provided:al2023-rapid-x86_64"
PULL_TIMEOUT_S = 180
# What the worker may add to its base.
MAX_ADDED_BYTES = 25_000_000

# What distroless/cc consists of: https://github.com/GoogleContainerTools/distroless/blob/main/cc/README.md
WORKER_PACKAGES = ("libc6", "libgcc-s1", "ca-certificates", "tzdata")
# sam's own Dockerfile runs `mv` and `chmod` in a shell.
LAMBDA_PACKAGES = (*WORKER_PACKAGES, "busybox-static")
PASSWD = """root:x:0:0:root:/root:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
"""
LAMBDA_COMMANDS = ("sh", "mv", "chmod", "cp", "rm", "cat", "ls", "mkdir")


def worker_base(engine: Engine, work_dir: Path) -> str:
    """The name of the base for the worker's image: distroless, or the like of it from packages. Raises EngineError."""
    if engine.has_image(PUBLIC_WORKER_BASE) or _pull(engine, PUBLIC_WORKER_BASE):
        return PUBLIC_WORKER_BASE
    print(f"substituted: {PUBLIC_WORKER_BASE} by a base from packages, as no registry answers")
    return base_from_packages(engine, work_dir, "leasehold-worker-base", WORKER_PACKAGES)


def lambda_base(engine: Engine, work_dir: Path) -> str:
    """The base on which sam runs functions, under the name that sam looks for. Raises EngineError."""
    if engine.has_image(LAMBDA_BASE) or _pull(engine, LAMBDA_BASE):
        return LAMBDA_BASE
    print(f"substituted: {LAMBDA_BASE} by a base from packages, as no registry answers")
    image = base_from_packages(engine, work_dir, "leasehold-lambda-base", LAMBDA_PACKAGES, LAMBDA_COMMANDS)
    engine.docker("tag", image, LAMBDA_BASE)
    # Both names are Amazon's: they must not stay on an engine that is used for other things.
    engine.remove_image_at_stop(LAMBDA_BASE)
    engine.remove_image_at_stop(LAMBDA_IMAGE)
    return LAMBDA_BASE


def base_from_packages(
    engine: Engine, work_dir: Path, name: str, packages: tuple[str, ...], commands: tuple[str, ...] = ()
) -> str:
    """An image of these packages, unpacked and not configured; `commands` become links to busybox.

    Kept in the engine, and as a tar file in `work_dir`, until the list changes. Raises EngineError.
    """
    contents = hashlib.sha256(repr((packages, commands)).encode()).hexdigest()[:12]
    image = f"{name}:{contents}"
    if engine.has_image(image):
        return image
    archive = work_dir / f"{name}-{contents}.tar"
    if not archive.exists():
        work_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work_dir) as scratch:
            root = _unpacked(Path(scratch), packages, commands)
            unfinished = archive.with_suffix(".part")
            _call(["tar", "-C", root, "--owner=0", "--group=0", "--numeric-owner", "-cf", unfinished, "."])
            unfinished.rename(archive)
    engine.docker("import", archive, image)
    return image


def build_worker_image(
    engine: Engine, tag: str, binary: Path, base: str, build_args: dict[str, str] | None = None
) -> None:
    """Builds worker/Dockerfile with this binary, as the documented command does. Raises EngineError."""
    if not binary.is_file():
        raise EngineError(f"{binary} is not there: build the worker first")
    arguments = {"BASE": base, "BINARY": "worker", **(build_args or {})}
    options = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    # The context is a copy of the one file, because the target directory may lie anywhere.
    with tempfile.TemporaryDirectory() as context:
        shutil.copy(binary, Path(context) / "worker")
        engine.docker("build", "--file", DOCKERFILE, "--tag", tag, *options, context)


def size_bytes(engine: Engine, image: str) -> int:
    """An image's size with its base, uncompressed."""
    return engine.inspect(image)["Size"]


def added_bytes(engine: Engine, image: str, base: str) -> int:
    """What an image adds to its base, uncompressed."""
    return size_bytes(engine, image) - size_bytes(engine, base)


def _pull(engine: Engine, name: str) -> bool:
    """Whether a registry has given us the image."""
    try:
        return engine.run("pull", "--quiet", name, timeout_s=PULL_TIMEOUT_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _unpacked(scratch: Path, packages: tuple[str, ...], commands: tuple[str, ...]) -> Path:
    root, downloads = scratch / "root", scratch / "packages"
    downloads.mkdir()
    for folder in ("etc/ssl/certs", "home/nonroot", "tmp", "var/task", "var/runtime"):
        (root / folder).mkdir(parents=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise EngineError("no registry can be reached, and a base of packages needs apt-get and dpkg-deb")
    download = ["apt-get", "download", *packages]
    try:
        _call(download, cwd=downloads)
    except EngineError:
        # The lists may be old, or none.
        _call(["apt-get", "update"], cwd=downloads)
        _call(download, cwd=downloads)
    for package in sorted(downloads.glob("*.deb")):
        _call(["dpkg-deb", "-x", package, root])
    # What the package's own script would do, which is not run.
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.write_text("".join(certificate.read_text() for certificate in certificates))
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
    (root / "tmp").chmod(0o1777)
    for command in commands:
        (root / "bin" / command).symlink_to("busybox")
    return root


def _call(command: list[str | Path], cwd: Path | None = None) -> None:
    environment = dict(os.environ, LC_ALL="C")
    result = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        raise EngineError(f"{command[0]} failed ({result.returncode}): {result.stderr.strip()}")
