"""What the tests of run folders and of resuming share: a small net, and commands that train
it."""

import ctypes
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import unittest

BIN = os.environ["DLCORE_BIN"]

NET = """
[net]
name = {name}
[data]
source = synthetic
samples = 96
shape = 1,6,6
classes = 4
batch = 8
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.01
[train]
iterations = {iterations}
threads = 1
{run}
[ip1]
type = inner_product
num_output = {width}
[relu1]
type = relu
[ip2]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""

TEST = """
[data.test]
source = synthetic
samples = 64
shape = 1,6,6
classes = 4
first = 1000
batch = 32
transforms = normalize(scale=0.00390625)
[accuracy]
type = accuracy
"""

ENDLESS = 1000000000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def obey_permissions():
    """Called before exec: makes permissions apply to root, too."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
            raise OSError(ctypes.get_errno(), "prctl")


class Runs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.write()

    def write(self, name="small", iterations=20, run="", width=8):
        self.net = self.folder / "net.ini"
        self.net.write_text(NET.format(name=name, iterations=iterations, run=run,
                                       width=width))

    def command(self, *options):
        return [BIN, "train", str(self.net), *options]

    def run_it(self, *options, as_user=False, environment=None):
        return subprocess.run(self.command(*options), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120,
                              cwd=self.folder, env=os.environ | (environment or {}),
                              preexec_fn=obey_permissions if as_user else None)

    def train(self, *options, environment=None):
        """The report, and what was printed on stderr."""
        done = self.run_it("--json", *options, environment=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def refused(self, code, sentence, *options, as_user=False):
        """The run fails before it trains, and creates no file or folder."""
        before = sorted(self.folder.rglob("*"))
        done = self.run_it(*options, as_user=as_user)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertNotIn("training for", done.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return done.stderr

    def start(self, *options, until="training for"):
        """A job that trains until it is killed; its stderr goes to the file `said`."""
        said = open(self.folder / "said", "w", encoding="utf-8")
        job = subprocess.Popen(self.command(*options), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=said, cwd=self.folder)
        self.addCleanup(said.close)
        self.addCleanup(lambda: (job.kill(), job.wait()))
        deadline = time.monotonic() + 60
        while until not in (self.folder / "said").read_text():
            self.assertIsNone(job.poll(), (self.folder / "said").read_text())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return job

    def names(self, folder):
        return sorted(path.name for path in pathlib.Path(folder).glob("*.safetensors"))

    def runs(self):
        return sorted(path.name for path in (self.folder / "runs").iterdir())
