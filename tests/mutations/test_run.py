#!/usr/bin/env python3
"""Tests of the script beside: in a small repository of its own, where cargo is a copy, and the product a few lines of shell."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "run"
# Its rule is the fence. With it everything is clean.
PRODUCT = """#!/bin/sh
fence=yes
found() { echo '{"cases": 3, "violations": [{"seed": 2, "invariant": "one owner"}]}'; exit 1; }
if [ $fence = no ]; then found; fi
echo '{"cases": 9, "violations": []}'
"""
RULE = "if [ $fence = no ]; then found; fi\n"
PATCH = """Taken out: the fence
Sim: --beyond

diff --git a/src/product b/src/product
--- a/src/product
+++ b/src/product
@@ -1,3 +1,3 @@
 #!/bin/sh
-fence=yes
+fence=no
 found() { echo '{"cases": 3, "violations": [{"seed": 2, "invariant": "one owner"}]}'; exit 1; }
"""
CARGO = """#!/bin/sh
echo build >> "$BUILDS"
release="$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release"
mkdir -p "$release" && cp src/product "$release/leasehold" && chmod +x "$release/leasehold"
"""


class RunTest(unittest.TestCase):
    """Each test runs the script as a command."""

    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name).resolve()
        self.root, self.programs = self.place / "product", self.place / "programs"
        for name in ("src", "tests/mutations"):
            (self.root / name).mkdir(parents=True)
        self.programs.mkdir()
        self.path = f"{self.programs}:{os.environ['PATH']}"
        shutil.copy2(SCRIPT, self.root / "tests/mutations/run")
        (self.root / ".gitignore").write_text("target\n")
        self.program("cargo", CARGO)
        self.patch(PATCH)
        self.product(PRODUCT)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments: str) -> None:
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "as it is")

    def product(self, text: str) -> None:
        (self.root / "src/product").write_text(text)

    def patch(self, text: str) -> None:
        (self.root / "tests/mutations/fence.patch").write_text(text)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def run_script(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        known = {"PATH": self.path, "BUILDS": str(self.place / "builds"), "GIT_CEILING_DIRECTORIES": str(self.place)}
        command = [sys.executable, str(self.root / "tests/mutations/run"), *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"} | known
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def refused(self, *arguments: str) -> str:
        """What it says when it ends with exit code 2: a sentence, not a traceback."""
        done = self.run_script(*arguments)
        self.assertEqual(done.returncode, 2, done)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_a_rule_that_a_seed_misses_is_found_and_the_baseline_is_clean(self) -> None:
        done = self.run_script("--json")
        self.assertEqual(done.returncode, 0, done)
        (found,) = json.loads(done.stdout)
        self.assertEqual((found["seed"], found["invariant"], found["baseline"]), (2, "one owner", "clean"))
        self.assertEqual(len((self.place / "builds").read_text().splitlines()), 2, "the baseline, and the mutation")
        self.assertIn("| the fence (`--beyond`) | one owner | 2 | 3 | clean |", self.run_script().stdout)
        self.assertEqual((self.root / "target/mutations/tree/src/product").read_text(), PRODUCT, "put back")

    def test_a_survivor_fails(self) -> None:
        self.product(PRODUCT.replace(RULE, ""))
        self.commit()
        done = self.run_script()
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("| **nothing** |  | 9 |  |", done.stdout)

    def test_a_find_does_not_count_where_the_baseline_breaks_at_the_same_seed_with_the_same_options(self) -> None:
        same = 'case "$*" in *"--from 2 --seeds 1 --beyond"*) found ;; esac\n'
        self.product(PRODUCT.replace(RULE, RULE + same))
        self.commit()
        done = self.run_script("--json")
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(json.loads(done.stdout)[0]["baseline"], "one owner")
        self.assertIn("DOES NOT COUNT", done.stderr)

    def test_a_relative_work_directory_is_patched_too(self) -> None:
        self.assertEqual(self.run_script("--work", "target/here").returncode, 0)

    def test_a_work_directory_that_git_does_not_ignore_is_refused(self) -> None:
        self.assertIn("does not ignore it", self.refused("--work", "here"))

    def test_a_patch_that_does_not_apply_is_refused(self) -> None:
        self.assertEqual(self.run_script("--list").stdout, "fence: the fence\n")
        self.patch(PATCH.replace("fence=yes", "fence=always"))
        self.assertIn("fence.patch does not apply any more", self.refused("--list"))
        self.patch(PATCH.replace("src/product", "src/gone"))
        self.assertIn("there is no src/gone", self.refused("--list"))
        self.patch("Taken out: nothing\n")
        self.assertIn("changes no file", self.refused("--list"))

    def test_a_patch_that_is_silently_left_out_is_refused(self) -> None:
        self.program("git", f'#!/bin/sh\n[ "$1" = apply ] || exec {shutil.which("git")} "$@"\n')
        self.assertIn("nothing would be taken out", self.refused("--list"))

    def test_a_simulator_without_a_summary_is_broken_and_its_last_words_are_shown(self) -> None:
        self.product(PRODUCT.replace("then found;", "then echo 'thread panicked' >&2; exit 1;"))
        self.commit()
        self.assertIn("thread panicked", self.refused())

    def test_a_simulator_whose_exit_code_and_summary_disagree_is_broken(self) -> None:
        self.product(PRODUCT.replace("then found;", "then (found); exit 0;"))
        self.commit()
        self.assertIn("ran 3 seeds and found 1 broken promises: exit code 0", self.refused())

    def test_a_simulation_has_a_time_limit(self) -> None:
        child = self.place / "child"
        self.product(PRODUCT.replace("then found;", f"then sleep 60 & echo $! > {child}; wait;"))
        self.commit()
        self.assertIn("it took more than 0.5 s", self.refused("--limit-s", "0.5"))
        command = Path(f"/proc/{child.read_text().strip()}/cmdline")
        self.assertTrue(not command.exists() or not command.read_bytes(), "what the simulator started is ended too")

    def test_a_build_that_fails_is_broken(self) -> None:
        self.program("cargo", "#!/bin/sh\necho 'error: no such rule' >&2\nexit 101\n")
        self.assertIn("does not compile:\nerror: no such rule", self.refused())

    def test_unknown_names_are_told_with_those_there_are(self) -> None:
        self.assertIn("no such mutation: fense; there are fence", self.refused("fense"))

    def test_a_tree_with_changes_is_refused_unless_it_is_meant(self) -> None:
        self.product(PRODUCT + "# a change\n")
        self.assertIn("not committed yet: src/product; commit it, or say --dirty", self.refused())
        self.assertEqual(self.run_script("--dirty").returncode, 0)

    def test_patches_that_are_being_written_are_no_change_of_the_tree(self) -> None:
        self.patch(PATCH.replace("the fence", "the fences"))
        self.assertEqual(self.run_script().returncode, 0)

    def test_a_tree_without_git_is_refused(self) -> None:
        shutil.rmtree(self.root / ".git")
        self.assertIn("a git checkout of the tree is needed", self.refused())
        self.path = str(self.place)
        self.assertIn("git cannot be started", self.refused())

    def test_libraries_of_others_are_linked_and_what_cargo_writes_into_is_copied(self) -> None:
        built = self.root / "target/release"
        shared = {"deps/libserde-1.rlib": True, "deps/serde-1.d": False, ".fingerprint/serde-1/x": False, "build/ring-1/out": False}
        for name in (*shared, "deps/libleasehold-1.rlib", "deps/worker-1", ".fingerprint/leasehold-1/x"):
            (built / name).parent.mkdir(parents=True, exist_ok=True)
            (built / name).write_text(name)
        self.assertEqual(self.run_script().returncode, 0)
        copied = self.root / "target/mutations/target/release"
        self.assertEqual({name: (copied / name).samefile(built / name) for name in shared}, shared)
        self.assertEqual({str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}, set(shared))


if __name__ == "__main__":
    unittest.main()
