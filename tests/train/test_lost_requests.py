#!/usr/bin/env python3
"""What the user asks of a job is done even if the ranks have not agreed on it when the
consistency model is closed. The model late.c forgets every request."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DLCORE = os.environ["DLCORE_BIN"]
PLUGINS = sys.argv.pop(1)
PATIENCE = 60
NET = """[net]
name = net
[data]
source = synthetic
shape = 1,12,12
samples = 600
batch = 24
[solver]
type = sgd
learning_rate = 0.01
[consistency]
type = late
[train]
checkpoint_last = no
display = 10
iterations = {iterations}
test_interval = 1000000000
[parallel]
batch_split = {batch_split}
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""


class Requests(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def start(self, iterations, batch_split):
        (self.folder / "net.ini").write_text(NET.format(iterations=iterations,
                                                        batch_split=batch_split))
        with open(self.folder / "err", "w") as err:
            self.job = subprocess.Popen([DLCORE, "train", "net.ini", "--ranks=2", "--run-dir=run"],
                                        cwd=self.folder, stdout=err, stderr=err,
                                        env={**os.environ, "DLCORE_PLUGIN_PATH": PLUGINS})
        self.addCleanup(self.job.wait)
        self.addCleanup(self.job.kill)
        self.wait_for("iteration 10,")
        pid = self.job.pid
        self.ranks = [int(rank) for rank in
                      pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def printed(self, text):
        """How often."""
        return (self.folder / "err").read_text().count(text)

    def wait_for(self, text, meanwhile=lambda: time.sleep(0.01), before=0):
        until = time.monotonic() + PATIENCE
        while self.printed(text) <= before:
            if time.monotonic() > until:
                self.fail(f"no \"{text}\" in {PATIENCE} s: {(self.folder / 'err').read_text()[-3000:]}")
            meanwhile()

    def slow_down(self):
        """Lets rank 1 run only now and then."""
        os.kill(self.ranks[1], signal.SIGSTOP)
        time.sleep(0.02)
        os.kill(self.ranks[1], signal.SIGCONT)
        time.sleep(0.002)

    def test_checkpoint_at_a_rebalance(self):
        self.start(100000000, "auto")
        before = self.printed("new batch split")  # a busy machine has made one rank slower
        self.job.send_signal(signal.SIGHUP)
        self.wait_for("new batch split", self.slow_down, before)
        self.wait_for("checkpoint: ")

    def test_stop_at_a_rebalance(self):
        self.start(100000000, "auto")
        before = self.printed("new batch split")  # a busy machine has made one rank slower
        self.job.send_signal(signal.SIGTERM)
        self.wait_for("new batch split", self.slow_down, before)
        self.wait_for("checkpoint: ")
        self.assertEqual(self.job.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_checkpoint_at_the_end(self):
        self.start(3000, "equal")
        for rank in self.ranks:  # it is the end that answers, not a fast machine
            os.kill(rank, signal.SIGSTOP)
        self.job.send_signal(signal.SIGHUP)
        for rank in self.ranks:
            os.kill(rank, signal.SIGCONT)
        self.assertEqual(self.job.wait(PATIENCE), 0)
        self.assertTrue(self.printed("checkpoint: run/net-00003000.safetensors"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
