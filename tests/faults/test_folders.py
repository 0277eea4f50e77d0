"""Tests that a folder that cannot be read completely is reported, instead of its first
entries being taken for all of them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
PLUGINS = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "lib/dlcore/0"
PRELOAD = sys.argv.pop(1)
NET = """[net]
name = net
[data]
{data}
batch = 4
[solver]
type = sgd
[train]
iterations = 2
[ip]
type = inner_product
num_output = 2
[loss]
type = softmax_loss
"""
SYNTHETIC = "source = synthetic\nsamples = 8\nclasses = 2\nshape = 3,8,8"


class Folders(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()
        self.write(SYNTHETIC)

    def write(self, data):
        (self.folder / "net.ini").write_text(NET.format(data=data))

    def reported(self, folder, code, *words, **environment):
        environment = {**os.environ, **environment}
        done = subprocess.run([DLCORE, *words], cwd=self.folder, capture_output=True,
                              text=True, timeout=120, check=False,
                              env={**environment, "LD_PRELOAD": PRELOAD,
                                   "FAIL_READDIR_IN": str(folder)})
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn("cannot be read: Input/output error", done.stdout + done.stderr)
        self.assertIn(str(folder), done.stdout + done.stderr)

    def test_plugins(self):
        box = self.folder / "box"
        box.mkdir()
        for name in ("a.so", "b.so"):
            (box / name).symlink_to(PLUGINS / "data-images.so")
        self.reported(box, 0, "plugin", "list", DLCORE_PLUGIN_PATH=str(box))

    def test_pictures(self):
        for name in ("pictures", "pictures/ant", "pictures/bee"):
            (self.folder / name).mkdir()
        self.write("source = images\nfolder = pictures\ntransforms = center_crop(8)")
        for name in ("pictures", "pictures/ant"):
            self.reported(name, 4, "check", "net.ini")

    def test_runs(self):
        subprocess.run([DLCORE, "train", "net.ini"], cwd=self.folder, check=True,
                       capture_output=True, timeout=120)
        run = next((self.folder / "runs").iterdir()).name
        for name in ("runs", f"runs/{run}"):
            self.reported(name, 1, "train", "net.ini", "--resume=auto")


if __name__ == "__main__":
    unittest.main(verbosity=2)
