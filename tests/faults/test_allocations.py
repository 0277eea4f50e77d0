"""When any one allocation of a command fails, it reports that and exits with a code other than
0, or its output is complete. It never crashes."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
PRELOAD = sys.argv.pop(1)
MACHINE = SOURCE / "tests/topology/machines"


class Allocations(unittest.TestCase):
    def run_command(self, words, **environment):
        done = subprocess.run([DLCORE, *words], cwd=self.folder, check=False, timeout=120,
                              env=dict(os.environ, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def torture(self, *words, step=17):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        code, expected, err = self.run_command(words)
        self.assertEqual(code, 0, err)
        failures = 0
        for at in [*range(1, 60), *range(60, 900, step)]:
            code, out, err = self.run_command(words, LD_PRELOAD=PRELOAD, FAIL_AT=str(at))
            said = (words, at, code, out[-300:], err[-300:])
            self.assertGreaterEqual(code, 0, said)  # no signal
            if code == 0:  # except the measured memory of the process
                self.assertEqual(re.sub(rb"peak memory.*(\n {15}.*)*", b"", out),
                                 re.sub(rb"peak memory.*(\n {15}.*)*", b"", expected), said)
            else:
                failures += 1
                self.assertIn(code, (1, 2, 3, 4), said)
                self.assertNotEqual(err, b"", said)
        self.assertGreater(failures, 0)

    def test_plugin_list(self):
        self.torture("plugin", "list")

    def test_topo_of_a_machine(self):
        self.torture("topo", "--from", str(sorted(MACHINE.glob("*.xml"))[0]))

    def test_check(self):
        self.torture("check", str(SOURCE / "models/lenet.ini"), step=83)


if __name__ == "__main__":
    unittest.main(verbosity=2)
