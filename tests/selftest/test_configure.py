"""Tests the configuration: with tests it fails if one of their programs is missing, and names
it; without tests it needs none of them and builds no test. CUDA may be installed later. `make install` goes where it is told."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
NOWHERE = "/nowhere/valgrind"


class Configuring(unittest.TestCase):
    def configure(self, *words, **environment):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        done = subprocess.run(
            ["cmake", "-G", "Ninja", "-S", SOURCE, "-B", holder.name, "-DDLC_CUDA=OFF",
             f"-DDLC_PROGRAM_valgrind={NOWHERE}", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={**os.environ, **environment})
        return done.returncode, done.stdout, holder.name

    def test_make_install_goes_where_it_is_told(self):
        for words, place in (((), ""), (("PREFIX=/a b",), ' --prefix "/a b"')):
            done = subprocess.run(["make", "-n", "-C", SOURCE, "BUILD=there", "install", *words],
                                  capture_output=True, text=True, check=True)
            self.assertIn(f"cmake --install there{place}",
                          [line.rstrip() for line in done.stdout.splitlines()])

    def test_with_tests_all_programs_are_required(self):
        code, output, _ = self.configure("-DDLC_BUILD_TESTS=ON")
        self.assertNotEqual(code, 0, output)
        self.assertIn("valgrind (Debian: valgrind)", " ".join(output.split()))
        self.assertIn("packaging/deps.sh", output)

    def test_without_tests_none_is_required(self):
        code, output, folder = self.configure()
        self.assertEqual(code, 0, output)
        targets = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"],
                                 stdout=subprocess.PIPE, text=True, check=True).stdout
        built = [line for line in targets.splitlines() if line.startswith("tests/")]
        self.assertEqual(built, [])

    def test_cuda_is_searched_again(self):
        """Also if an earlier configuration found none."""
        code, output, _ = self.configure("-DDLC_CUDA=ON", "-DCMAKE_CUDA_COMPILER=NOTFOUND",
                                         CUDACXX="/nowhere/nvcc")
        self.assertEqual(code, 0, output)
        self.assertIn("Looking for a CUDA compiler", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
