"""What was built, measured: zip sizes, and the C library that a binary needs."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

# "Deploying Rust functions to Lambda" names no version; Amazon Linux 2023, on which provided.al2023 is based, has glibc 2.34:
# https://docs.aws.amazon.com/linux/al2023/ug/core-glibc.html
AL2023_GLIBC = (2, 34)
# What a function may weigh.
MAX_ZIP_BYTES = 5_000_000


def zip_bytes(folder: Path) -> int:
    """Size of a function's package as `sam deploy` uploads it: a zip of the folder, deflated."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return len(packed.getvalue())


def glibc_versions(binary: Path) -> set[tuple[int, ...]]:
    """Versions of the C library that the binary asks the dynamic linker for. Needs objdump, which comes with the linker."""
    listed = subprocess.run(["objdump", "--private-headers", binary], capture_output=True, text=True, check=True).stdout
    words = [word for line in listed.splitlines() for word in line.split() if word.startswith("GLIBC_")]
    return {tuple(int(part) for part in word.removeprefix("GLIBC_").split(".")) for word in words if word[6:7].isdigit()}


def shared_libraries(binary: Path) -> set[str]:
    """Libraries that must be there when the binary starts."""
    listed = subprocess.run(["objdump", "--private-headers", binary], capture_output=True, text=True, check=True).stdout
    return {line.split()[1] for line in listed.splitlines() if line.split()[:1] == ["NEEDED"]}
