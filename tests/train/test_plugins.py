#!/usr/bin/env python3
"""Training with the layers of somebody's plugin (faulty.c): it works, and a fault of the
plugin ends the job with a sentence that names the layer.

    test_plugins.py FOLDER     the folder of the plugin
"""

import base64
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

BIN = os.environ["DLCORE_BIN"]
FOLDER = sys.argv.pop()

PNG = base64.b64decode(  # 4 x 4
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAH0lEQVR4nGNgYGRiZmFlY+fg5OJGZvMwILF5GZDYfAAdDAFRuYHKKgAAAABJRU5ErkJggg==")

NET = """[data]
source = {source}
shape = 4,1,1
classes = 4
samples = 64
batch = 8
[solver]
type = sgd
learning_rate = 0.01
[train]
iterations = 4
checkpoint_last = no
[{name}]
type = {type}
fault = {fault}
[loss]
type = softmax_loss
"""


class Plugins(unittest.TestCase):
    def train(self, fault="none", kind="faulty", ranks=1, source="synthetic", options=()):
        with tempfile.TemporaryDirectory() as folder:
            net = pathlib.Path(folder) / "net.ini"
            net.write_text(NET.format(name="own", type=kind, fault=fault, source=source), encoding="utf-8")
            return subprocess.run([BIN, "train", net, f"--ranks={ranks}", *options], cwd=folder, text=True, timeout=100,
                                  capture_output=True, check=False, env=os.environ | {"DLCORE_PLUGIN_PATH": FOLDER})

    def expect(self, done, code, words):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, words)

    def test_without_fault(self):
        for kind in ("faulty", "later"):
            with self.subTest(kind=kind):
                done = self.train(kind=kind)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("error:", done.stderr)
                self.assertIn("done after 4 iterations", done.stdout)

    def test_failures_have_a_sentence(self):
        for fault, code, words in (
                ("silent_create", 2, r"\[own\] layer 'faulty' of plugin 'faulty': create failed without a reason: "
                 "input/output error"),
                ("no_layer", 2, r"layer 'faulty' of plugin 'faulty': create returned no layer"),
                ("silent_forward", 1, "layer 'own', forward: layer 'faulty' of plugin 'faulty': forward failed without a "
                 "reason: input/output error"),
                ("odd_input", 2, "layer 'own', reordering its input: only plain float32")):
            with self.subTest(fault=fault):
                self.expect(self.train(fault), code, words)

    def test_transport(self):
        self.expect(self.train(ranks=2, options=["--transport=faulty"]), 2, "transport faulty cannot connect these ranks: "
                    "messages, from rank 1 to rank 0: transport 'faulty' of plugin 'faulty': wait failed without a reason: "
                    "input/output")

    def test_transport_hangs(self):
        with unittest.mock.patch.dict(os.environ, FAULTY_OPEN="1"):
            self.expect(self.train(ranks=2, options=["--transport=faulty", "--set=parallel.hang_timeout=3"]), 5,
                        "rank 1 .* hangs: no progress for .* during opening of transport faulty")

    def model(self, fault, ranks):
        return self.train(ranks=ranks, options=["--consistency=faulty", f"--set=consistency.fault={fault}",
                                                "--set=parallel.hang_timeout=3"])

    def test_consistency_model(self):
        for fault, code, words in (
                ("none", 0, "^"),
                ("silent_ready", 1, "consistency 'faulty' of plugin 'faulty': ready failed without a reason: input/output"),
                ("silent_update", 1, "consistency 'faulty' of plugin 'faulty': update failed without a reason"),
                ("no_bucket", 1, "the consistency model asks for bucket 1 of 1"),
                ("waits_alone", 5, "rank 0 .* during update by faulty")):
            with self.subTest(fault=fault):
                done = self.model(fault, ranks=2)
                self.expect(done, code, words)
                self.assertNotIn("different iterations", done.stdout + done.stderr)

    def test_silent_open_of_a_family(self):
        with unittest.mock.patch.dict(os.environ, FAULTY_FAMILY="1"):
            self.expect(self.train(), 2, "layer 'faulty' of plugin 'faulty': open failed without a reason: not supported")

    def test_closed_streams(self):
        """What is opened next must not get the place of stderr."""
        with unittest.mock.patch.dict(os.environ, FAULTY_LOAD="1"):
            self.expect(self.train(), 2, r"its load\(\) closes stdin, stdout or stderr")

    def test_nothing_is_opened(self):
        net = NET.replace("shape = 4,1,1\nclasses = 4\nsamples = 64\n", "")
        with unittest.mock.patch(f"{__name__}.NET", net):
            self.expect(self.train(source="hollow"), 3,
                        "data .hollow. of plugin 'faulty': open succeeds, but opens nothing")

    def test_exit(self):
        """A plugin that ends the process does not end the job as if it were done."""
        for fault, ranks in (("exit_in_create", 1), ("exit_in_forward", 1), ("exit_in_forward", 2)):
            with self.subTest(fault=fault, ranks=ranks):
                self.expect(self.train(fault, ranks=ranks), 1, r"error: .*layer-faulty.so has called exit\(0\)")

    def test_quit(self):
        """A rank that calls _exit() has not done its work, whatever its exit code."""
        self.expect(self.train("quit_in_forward", ranks=2), 1, r"rank \d .* ended with exit code 0 during forward own "
                    r"before its work was done: .* has called _exit\(\)")

    def test_strays(self):
        """Whatever a plugin prints, and wherever it goes: JSON is alone on stdout, and relative
        paths are those of the user."""
        net = NET.replace("checkpoint_last = no", "checkpoint_interval = 2").replace(
            "[loss]", "[ip]\ntype = inner_product\nnum_output = 4\n[loss]")
        images = net.replace("{source}", "images\nfolder = data\ntransforms = center_crop(4)").replace(
            "shape = 4,1,1\nclasses = 4\nsamples = 64\nbatch = 8", "batch = 2")
        with tempfile.TemporaryDirectory() as away, tempfile.TemporaryDirectory() as folder:
            here = pathlib.Path(folder)
            for name, text, fault in (("net.ini", images, "none"), ("plain.ini", net, "strays")):
                (here / name).write_text(text.format(name="own", type="faulty", fault=fault, source="synthetic"),
                                         encoding="utf-8")
            for name in ("ant", "bee"):
                (here / "data" / name).mkdir(parents=True)
                for i in range(4):
                    (here / "data" / name / f"{i}.png").write_bytes(PNG)

            def run(*words):
                done = subprocess.run([BIN, *words], cwd=here, text=True, timeout=100, capture_output=True, check=False,
                                      env=os.environ | {"DLCORE_PLUGIN_PATH": FOLDER, "FAULTY_FOLDER": away})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(os.listdir(away), [])
                return done
            for ranks, name in ((1, "plain.ini"), (2, "plain.ini"), (1, "net.ini"), (2, "net.ini")):
                done = run("train", name, "--json", f"--ranks={ranks}", "--log-file=log")
                self.assertIn("printed by a plugin", done.stderr)
                self.assertIn("written by a plugin", done.stderr)
                report = json.loads(done.stdout)
                self.assertTrue((here / report["checkpoint"]).is_file())
            run("train", "net.ini", "--resume=auto", "--iterations=12")
            json.loads(run("check", "net.ini", "--json").stdout)
            json.loads(run("time", "net.ini", "--json", "--iterations=1").stdout)
            json.loads(run("plugin", "list", "--json").stdout)
            done = run("predict", "net.ini", f"--weights={report['checkpoint']}", "data/ant", "--csv")
            self.assertNotIn("by a plugin", done.stdout)
            run("predict", "net.ini", f"--weights={report['checkpoint']}", "data/ant", "--csv", "--output=out.csv")
            self.assertTrue((here / "out.csv").is_file())

    def test_crash(self):
        self.expect(self.train("crash_in_forward"), -signal.SIGABRT, "error: .*layer-faulty.so has crashed: signal 6")

    def test_crash_or_hang_at_exit(self):
        """The work is done by then."""
        for fault, ranks, words in (("crash_at_exit", 1, "has crashed as this process ended: signal 6"),
                                    ("crash_at_exit", 2, "has crashed as this process ended: signal 6"),
                                    ("hang_at_exit", 1, "does not let this process end")):
            with self.subTest(fault=fault, ranks=ranks):
                done = self.train(fault, ranks=ranks)
                self.expect(done, 0, r"\S+layer-faulty.so " + words)
                self.assertIn("done after 4 iterations", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
