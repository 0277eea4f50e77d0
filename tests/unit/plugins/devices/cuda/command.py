#!/usr/bin/env python3
"""The cuda plugin on a machine without a GPU, and with fake driver libraries: what is listed
and why, and that nothing else is affected."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DLCORE_BIN"])
FAKES = pathlib.Path(sys.argv.pop(1))

NET = """
[net]
name = tiny
[data]
source = synthetic
batch = 4
shape = 1, 8, 8
classes = 3
[solver]
type = sgd
learning_rate = 0.1
[train]
iterations = 2
[ip]
type = inner_product
num_output = 3
[loss]
type = softmax_loss
"""


def dlcore(*arguments, folder=None, **environment):
    # The plugin cache must not remember a driver that exists in some calls only.
    environment["XDG_CACHE_HOME"] = "/nonexistent"
    kept = {k: v for k, v in os.environ.items()
            if k not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")}
    return subprocess.run([BIN, *map(str, arguments)], env={**kept, **environment},
                          capture_output=True, text=True, timeout=120, cwd=folder)


def fake(folder=FAKES, **environment):
    return {"LD_LIBRARY_PATH": str(folder), **environment}


class Command(unittest.TestCase):
    def plugin(self, **environment):
        done = dlcore("plugin", "list", "--json", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\n\n", done.stderr)
        return [p for p in json.loads(done.stdout)["plugins"] if p["name"] == "cuda"][0]

    def reason(self, **environment):
        plugin = self.plugin(**environment)
        self.assertEqual(plugin["state"], "unavailable")
        return plugin["reason"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def only(self, name):
        """A folder with one of the two libraries."""
        box = pathlib.Path(self.folder.name)
        (box / name).symlink_to(FAKES / name)
        return box

    def test_no_driver(self):
        if pathlib.Path("/proc/driver/nvidia").exists():
            self.skipTest("this machine has a driver")
        self.assertRegex(self.reason(), r"no CUDA driver: libcuda\.so\.1: .*No such file")
        done = dlcore("doctor")
        self.assertRegex(done.stdout, r"--  cuda [\d.]+ is unavailable: no CUDA driver")

    def test_driver_too_old(self):
        self.assertRegex(self.reason(**fake(FAKE_DRIVER="11040")),
                         r"too old: it has CUDA 11\.4, this needs CUDA 1\d\.0 or later")
        self.assertIn("does not report its version", self.reason(**fake(FAKE_DRIVER="0")))

    def test_no_nvml(self):
        if pathlib.Path("/proc/driver/nvidia").exists():
            self.skipTest("this machine has a driver")
        self.assertRegex(self.reason(**fake(self.only("libcuda.so.1"))),
                         r"GPUs can't be listed: libnvidia-ml\.so\.1: ")

    def test_no_gpu(self):
        self.assertIn("no GPU that this process may use",
                      self.reason(**fake(FAKE_MACHINE="none")))
        self.assertIn("it hides every GPU",
                      self.reason(**fake(CUDA_VISIBLE_DEVICES="")))

    def test_gpus_are_listed(self):
        environment = fake(FAKE_MACHINE="bridge")
        self.assertEqual(self.plugin(**environment)["state"], "usable")
        done = dlcore("doctor", **environment)
        self.assertIn("ok  cuda 0: NVIDIA Fake, 150.8 GB, 108 compute units, at 0000:1b:00.0",
                      done.stdout)
        self.assertIn("ok  cuda 1: NVIDIA Fake", done.stdout)
        self.assertIn("(driver 999.1, CUDA 13.0; built with CUDA ", done.stdout)
        document = json.loads(dlcore("doctor", "--json", **environment).stdout)
        self.assertEqual([d["address"] for d in document["devices"]
                          if d["device"] == "cuda"], ["0000:1b:00.0", "0000:c3:00.0"])

    def test_mig_is_refused(self):
        done = dlcore("doctor", **fake(FAKE_MACHINE="parts"))
        self.assertIn("!!  cuda 1: the GPU at 0000:c3:00.0 is partitioned (MIG)",
                      done.stdout)

    def test_gpus_have_addresses(self):
        done = dlcore("topo", "--device=cuda", **fake(FAKE_MACHINE="bridge"))
        self.assertRegex(done.stdout, r"rank 0 +rank 1 +GPU0 +GPU1")
        self.assertNotIn("NVSwitch", done.stdout)

    def links(self, machine):
        done = dlcore("topo", "--device=cuda", "--ranks=2", "--json",
                      **fake(FAKE_MACHINE=machine))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [link["class"] for link in json.loads(done.stdout)["links"]]

    def test_links_are_shown(self):
        self.assertEqual(self.links("bridge"), ["NV4"])
        self.assertEqual(self.links("switch"), ["NV18"])
        self.assertEqual(self.links("hidden"), ["NV18"])
        self.assertNotIn("NV", self.links("plain")[0])

    def train(self, *arguments, **environment):
        net = pathlib.Path(self.folder.name, "net.ini")
        net.write_text(NET)
        return dlcore("train", net, *arguments, folder=self.folder.name, **environment)

    def test_training_without_a_gpu(self):
        done = self.train("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["device"], "cpu")

    def test_open_errors_are_reported(self):
        done = self.train("--set=train.device=cuda", **fake())
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("signal", done.stderr)
        self.assertRegex(done.stderr, r"error: .*(cuda|CUDA|GPU)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
