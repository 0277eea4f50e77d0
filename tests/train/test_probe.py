#!/usr/bin/env python3
"""What the probe finds before training is not used: the job trains right by another way, and
says why."""

import os
import pathlib
import resource
import subprocess
import unittest

import runs

DEVICES = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"
LIMIT = 64 << 10


def lock_little():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (LIMIT, LIMIT))


class Probe(runs.Runs):
    right = None

    def setUp(self):
        super().setUp()
        os.environ["DLCORE_PLUGIN_PATH"] = str(DEVICES)
        self.addCleanup(os.environ.pop, "DLCORE_PLUGIN_PATH")
        # The weights do not depend on the transport or on buckets.
        Probe.right = Probe.right or self.weights("--transport=host-staged",
                                                  "--set=transport.probe=no")[0]

    def weights(self, *options, **more):
        """The weights after training, and what was said."""
        done = subprocess.run(
            self.command("--device=async", "--ranks=2", "--json", "--run-dir=run", *options),
            capture_output=True, text=True, timeout=120, cwd=self.folder, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        (file,) = (self.folder / "run").glob("*.safetensors")
        tensors = self.tensors(file)
        file.unlink()
        return tensors, done.stderr

    @staticmethod
    def tensors(file):
        """What follows the header, which names the run."""
        data = file.read_bytes()
        return data[8 + int.from_bytes(data[:8], "little"):]

    def check_fault(self, fault, *sentences):
        weights, said = self.weights(f"--set=train.async_peer={fault}")
        self.assertEqual(weights, self.right)
        for sentence in sentences:
            self.assertIn(sentence, said)
        self.assertIn("transport: host-staged", said)

    def test_nothing_to_find(self):
        weights, said = self.weights()
        self.assertEqual(weights, self.right)
        self.assertIn("transport: p2p-tree", said)
        self.assertNotIn("warning: transport", said)

    def test_zeros(self):
        self.check_fault("zeros", "transport p2p-tree is not used: peer memory, read, from rank",
                         "wrong bytes: 0000000000000000 instead of", "IOMMU")

    def test_slow(self):
        self.check_fault("slow", "transport p2p-tree is slow: peer memory, ",
                         "GB/s, expected ", "not p2p-tree: slower")

    def test_unmappable(self):
        self.check_fault("unmappable", "transport p2p-tree is not used: rank ",
                         "cannot map the memory of process")

    @unittest.skipIf(subprocess.run(["unshare", "--mount", "true"], check=False,
                                    stderr=subprocess.DEVNULL).returncode,
                     "mount namespaces are not allowed here")
    def test_unusable_shm(self):
        """UCX shares memory by other means then."""
        for options, fault in (("size=64k", "is nearly full or too small"),
                               ("ro", "cannot be written")):
            with self.subTest(options):
                mounted = f"mount -t tmpfs -o {options} none /dev/shm && exec \"$@\""
                done = subprocess.run(
                    ["unshare", "--mount", "sh", "-c", mounted, "sh",
                     *self.command("--ranks=2", f"--run-dir={options}", "--transport=ucx")],
                    capture_output=True, text=True, timeout=120, cwd=self.folder, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"/dev/shm {fault} for UCX", done.stderr)
                self.assertIn("done after 20 iterations", done.stderr + done.stdout)

    def test_named(self):
        """A transport that the user names is not replaced by another."""
        done = self.run_it("--device=async", "--ranks=2", "--transport=p2p-tree",
                           "--set=train.async_peer=zeros")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("transport p2p-tree cannot connect these ranks: peer memory", done.stderr)

    def test_locked_memory(self):
        os.environ["ASYNC_LOCKING"] = "1"
        self.addCleanup(os.environ.pop, "ASYNC_LOCKING")
        weights, said = self.weights(preexec_fn=lock_little)
        self.assertEqual(weights, self.right)
        self.assertRegex(said, r"transport locking is not used: rank 1 \(host \S+, pid \d+\): the adapter "
                               r"cannot register memory \(locked memory is limited to 64 KiB: see ulimit -l\)")
        self.assertIn("transport: p2p-tree", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
