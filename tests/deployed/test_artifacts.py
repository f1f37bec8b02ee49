"""What was built can run where it is deployed to, and is small."""

from __future__ import annotations

from pathlib import Path

import pytest

import artifacts
from places import BINARIES, BUILT
from runtime import FUNCTIONS

# provided.al2023 has these, as has distroless/cc: the C library's own, and libgcc for the unwinder.
BASE_LIBRARIES = {"libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2"}
# `cargo lambda build` moves a function's binary away from cargo's directory.
FILES = {**{name: BUILT / logical_id / "bootstrap" for name, logical_id in FUNCTIONS.items()}, "worker": BINARIES / "worker"}


@pytest.mark.parametrize("name", FILES)
def test_a_binary_needs_no_c_library_newer_than_the_one_of_amazon_linux_2023(name: str):
    versions = artifacts.glibc_versions(FILES[name])
    assert versions, "objdump shows no version"
    assert max(versions) <= artifacts.AL2023_GLIBC


@pytest.mark.parametrize("name", FILES)
def test_a_binary_needs_no_library_that_the_base_has_not(name: str):
    assert artifacts.shared_libraries(FILES[name]) <= BASE_LIBRARIES


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_package_of_a_function_is_its_binary_and_below_5_mb(function: str):
    folder: Path = BUILT / FUNCTIONS[function]
    assert [file.name for file in folder.rglob("*")] == ["bootstrap"]
    assert (folder / "bootstrap").stat().st_mode & 0o111 == 0o111
    size = artifacts.zip_bytes(folder)
    assert size < artifacts.MAX_ZIP_BYTES, f"{size} bytes"
