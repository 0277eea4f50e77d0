"""When any one allocation of a command fails, it reports that and exits with a code other than
0, or its output is complete. It never crashes."""

import concurrent.futures
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
MACHINE = SOURCE / "tests/topology/machines/cloud-a100-4numa.xml"
NET = """[net]
name = net
[data]
source = synthetic
shape = 1,8,8
classes = 4
samples = 4096
batch = 8
[data.test]
source = synthetic
shape = 1,8,8
classes = 4
samples = 64
batch = 8
[solver]
type = sgd
learning_rate = 0.0001
[train]
device = cpu
iterations = 4
checkpoint_last = no
keep_best = no
[conv]
type = convolution
num_output = 16
kernel_size = 3
[norm]
type = lrn
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""
# What may differ from run to run: the memory of the process, and how long things take.
VARIES = re.compile(rb"peak memory.*(\n {15}.*)*|\d+(\.\d+)? (s|images/s)\b")


class Allocations(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def run_command(self, words, **environment):
        """In a folder of its own: several run at the same time."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            pathlib.Path(folder, "net.ini").write_text(NET, encoding="ascii")
            done = subprocess.run([DLCORE, *words], cwd=folder, check=False, timeout=120,
                                  env=dict(os.environ, LD_PRELOAD=PRELOAD, OMP_WAIT_POLICY="passive",
                                           **environment),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, VARIES.sub(b"", done.stdout), done.stderr

    def torture(self, *words, step, is_measured=False):
        """Fails every `step`-th allocation, each in a run of its own."""
        self.run_command(words)  # fills caches, which later runs read
        counted = os.path.join(self.folder, "count")
        code, expected, err = self.run_command(words, FAIL_COUNT=counted)
        self.assertEqual(code, 0, err)
        with open(counted, encoding="ascii") as file:
            count = int(file.read())
        self.assertGreater(count, 200)  # the core's own are among them
        places = range(1 + count % step, count + 1, step)
        failures = 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = pool.map(lambda at: self.run_command(words, FAIL_AT=str(at)), places)
            for at, (code, out, err) in zip(places, runs):
                said = (words, at, code, out[-300:], err[-300:])
                self.assertGreaterEqual(code, 0, said)  # no signal
                failures += code != 0
                if code != 0:
                    self.assertIn(code, (1, 2, 3, 4), said)
                    self.assertRegex(err, rb"error: .*([Oo]ut of memory|allocate memory)", said)
                elif not is_measured:
                    self.assertEqual(out, expected, said)
        self.assertGreater(failures, len(places) / 2)

    def test_plugin_list(self):
        self.torture("plugin", "list", step=43)

    def test_plugin_inspect(self):
        self.torture("plugin", "inspect", "convolution", "--all", "--json", step=67)

    def test_topo_of_a_machine(self):
        self.torture("topo", "--from", str(MACHINE), step=283)

    def test_check(self):
        self.torture("check", "net.ini", step=79)

    def test_check_of_ranks(self):
        self.torture("check", "net.ini", "--ranks=2", "--json", step=211)

    def test_data_stats(self):
        self.torture("data", "stats", "net.ini", step=11)

    def test_data_verify(self):
        self.torture("data", "verify", "net.ini", step=31)

    def test_train(self):
        self.torture("train", "net.ini", step=269)

    def test_plan(self):
        self.torture("plan", "net.ini", step=1009, is_measured=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
