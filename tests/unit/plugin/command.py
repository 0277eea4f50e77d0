#!/usr/bin/env python3
"""dlcore plugin and dlcore doctor, run as a person runs them: what they print, the
JSON, the exit codes; also where there is no plugin at all."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DLCORE_BIN"])
FIXTURES = pathlib.Path(sys.argv.pop(1))


def dlcore(*arguments, path=None, program=BIN):
    environment = {k: v for k, v in os.environ.items() if k != "DLCORE_PLUGIN_PATH"}
    if path is not None:
        environment["DLCORE_PLUGIN_PATH"] = str(path)
    return subprocess.run([program, *map(str, arguments)], env=environment,
                          capture_output=True, text=True, timeout=60)


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.box = pathlib.Path(self.folder.name).resolve() / "box"
        self.box.mkdir(mode=0o755)
        self.box.chmod(0o755)

    def put(self, name):
        copy = self.box / f"{name}.so"
        shutil.copyfile(FIXTURES / f"{name}.so", copy)
        copy.chmod(0o644)
        return copy

    def test_list(self):
        for name in ("good", "major2", "unavailable", "feature-name"):
            self.put(name)
        done = dlcore("plugin", "list", path=self.box)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"data +tiny +any +good +1\.0 +")
        self.assertIn("unavailable: no abacus was found", done.stdout)
        self.assertIn("built for version 2 of the plugin interface", done.stdout)
        self.assertIn("refused: its name is not proper", done.stdout)

    def test_list_json(self):
        self.put("good")
        done = dlcore("plugin", "list", "--json", path=f"{self.box}:relative")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        good = [p for p in document["plugins"] if p["name"] == "good"][0]
        self.assertEqual(good["path"], str(self.box / "good.so"))
        self.assertEqual(good["state"], "usable")
        self.assertIsNone(good["reason"])
        self.assertEqual(good["features"][0]["kind"], "data")
        self.assertIn("begin with '/'", document["folders"][2]["reason"])

    def test_list_warns_of_folders(self):
        done = dlcore("plugin", "list", path="/no/such/folder")
        self.assertEqual(done.returncode, 0)
        self.assertIn("/no/such/folder", done.stderr)

    def test_inspect_by_plugin_feature_and_file(self):
        file = self.put("two")
        for name in ("two", "digits", file):
            done = dlcore("plugin", "inspect", name, path=self.box)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(str(file), done.stdout)
            self.assertIn("data digits: one sample", done.stdout)
            self.assertRegex(done.stdout, r"samples +whole number, 1 \.\. 9; default 1")
        self.assertIn("not loaded", done.stdout)  # the file's code was not run

    def test_inspect_json(self):
        self.put("good")
        done = dlcore("plugin", "inspect", "tiny", "--json", path=self.box)
        self.assertEqual(done.returncode, 0, done.stderr)
        option = json.loads(done.stdout)["plugins"][0]["features"][0]["options"][0]
        self.assertEqual(option["name"], "samples")
        self.assertEqual((option["type"], option["default"]), ("int", "1"))
        self.assertEqual((option["min"], option["max"]), (1, 9))

    def test_inspect_refused(self):
        done = dlcore("plugin", "inspect", self.put("small"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("smaller than that of version 1.0", done.stderr)
        self.assertIn("refused", done.stdout)
        done = dlcore("plugin", "inspect", "goood", path=self.box)
        self.assertEqual(done.returncode, 3)
        self.put("good")
        done = dlcore("plugin", "inspect", "goood", path=self.box)
        self.assertEqual(done.returncode, 3)
        self.assertIn('did you mean "good"?', done.stderr)

    def test_usage(self):
        for arguments in ([], ["lsit"], ["list", "x"], ["inspect"],
                          ["inspect", "a", "b"], ["list", "--bad"]):
            done = dlcore("plugin", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stdout, "")
            self.assertIn("dlcore plugin: ", done.stderr)
        self.assertEqual(dlcore("doctor", "now").returncode, 2)
        self.assertEqual(dlcore("plugin", "--help").returncode, 0)

    def test_doctor(self):
        self.put("unavailable")
        done = dlcore("doctor", path=self.box)
        self.assertIn("abacus 1.0 is unavailable: no abacus was found", done.stdout)
        text = done.stdout
        done = dlcore("doctor", "--json", path=self.box)
        document = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if document["can_train"] else 3)
        self.assertGreaterEqual(document["machine"]["cores"], 1)
        self.assertGreater(document["machine"]["memory"], 0)
        for device in document["devices"]:
            self.assertIn(f"{device['device']} {device['index']}: ", text)

    def test_doctor_without_plugins(self):
        """A copy of the command and the library, with nothing beside them."""
        root = self.box.parent / "root"
        (root / "bin").mkdir(parents=True)
        (root / "lib").mkdir()
        program = shutil.copy(BIN, root / "bin/dlcore")
        for library in (BIN.parent.parent / "lib").glob("libdlcore.so.0"):
            shutil.copy(library, root / "lib")
        done = dlcore("doctor", program=program)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("what is missing: device, transport, layer, solver, data",
                      done.stderr)
        self.assertIn(str(root / "lib/dlcore/1"), done.stdout)
        self.assertEqual(done.stdout.count("none is usable"), 5)


if __name__ == "__main__":
    unittest.main()
