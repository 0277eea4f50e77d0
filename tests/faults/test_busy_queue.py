"""A job that fails while its device still works frees nothing that the device may use: the loss of
this net is not a number, which is noticed while the next iterations are in the queue."""

import os
import subprocess
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
SEEDS = 6
NET = """[net]
name = net
[data]
source = synthetic
shape = 3,64,64
classes = 4
samples = 2000
batch = 32
transforms = normalize(scale=1e9)
[solver]
type = sgd
learning_rate = 1e9
[train]
device = async
async_us = 20000
iterations = 20
checkpoint_last = no
keep_best = no
[a]
type = inner_product
num_output = 8
[b]
type = inner_product
num_output = 8
[scores]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


class BusyQueue(unittest.TestCase):
    def test_divergence(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.ini")
            with open(path, "w", encoding="ascii") as file:
                file.write(NET)
            for seed in range(1, SEEDS + 1):
                done = subprocess.run([DLCORE, "train", path, "--set", f"train.async_seed={seed}"], cwd=folder,
                                      check=False, timeout=60, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertIn("error: the loss became", done.stderr, f"seed {seed}, exit code {done.returncode}")
                self.assertNotIn("crashed", done.stderr)


if __name__ == "__main__":
    unittest.main()
