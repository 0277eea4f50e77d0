#!/usr/bin/env python3
"""dlcore plugin inspect: what it shows of a name, for which device, and in what words."""

import json
import pathlib
import re
import sys
import unittest

from command import BIN, Command as Box, dlcore

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BUILT = BIN.parent.parent / "lib/dlcore/1"
KINDS = ("device", "transport", "layer", "solver", "data")


def features(*arguments, path=BUILT, **more):
    """{(plugin, name, device): feature} of what `plugin inspect --json` shows."""
    done = dlcore("plugin", "inspect", *arguments, "--json", path=path, **more)
    if done.returncode:
        raise AssertionError(done.stderr)
    return {(plugin["name"], feature["name"], feature["device"]): feature
            for plugin in json.loads(done.stdout)["plugins"] for feature in plugin["features"]}


class Device(Box):
    """A name that several devices have something for."""

    def test_this_machines_device(self):
        """By default one, that of a job here, and in a line each what else there is."""
        done = dlcore("plugin", "inspect", "relu", path=BUILT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\nlayer relu: "), 1, done.stdout)
        self.assertNotIn("convolution", done.stdout)
        self.assertLess(len(done.stdout.splitlines()), 20)
        shown = re.search(r"^  device +(\S+)$", done.stdout, re.M)[1]
        others = {device for _, _, device in features("relu", "--all")} - {shown}
        told = set(re.findall(r"^Not shown: layer relu for (\S+), by plugin ", done.stdout, re.M))
        self.assertEqual(told, others)
        self.assertEqual({device for _, _, device in features("relu")}, {shown})
        if not others:
            return
        for device in others:
            self.assertEqual({d for _, _, d in features("relu", f"--device={device}")}, {device})

    def test_another_device(self):
        for name in ("for-vax", "for-pdp"):
            self.put(name)
        for device in ("vax", "pdp"):
            done = dlcore("plugin", "inspect", "tiny", f"--device={device}", path=self.box)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(re.findall(r"device +(\S+)", done.stdout), [device])
            self.assertEqual(re.findall(r"^plugin +(\S+)", done.stdout, re.M), [device])
        # The device of a job here has none: all are shown.
        for arguments in ((), ("--all",)):
            done = dlcore("plugin", "inspect", "tiny", *arguments, path=self.box)
            self.assertEqual(sorted(re.findall(r"device +(\S+)", done.stdout)), ["pdp", "vax"])
            self.assertNotIn("Not shown", done.stdout)
        self.assertEqual(len(features("tiny", path=self.box)), 2)

    def test_any_device(self):
        self.assertEqual(list(features("sgd", "--device=cpu")), [("sgd", "sgd", None)])
        self.assertEqual(list(features("cpu", "--device=cpu")), [("cpu", "cpu", None)])

    def test_no_such_device(self):
        self.put("for-vax")
        done = dlcore("plugin", "inspect", "tiny", "--device=vxa", path=self.box)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertRegex(done.stderr, r"--device=vxa: there is no such device; there are .*\bvax\b")
        done = dlcore("plugin", "inspect", "relu", "--device=vax", path=self.box)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn('"relu" is nothing that works on vax', done.stderr)
        done = dlcore("plugin", "inspect", "vax", "--device=cpu", path=self.box)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("plugin vax has nothing that works on cpu", done.stderr)

    def test_usage(self):
        for arguments in (["list", "--all"], ["list", "--device=cpu"], ["inspect", "relu", "--all", "--device=cpu"]):
            done = dlcore("plugin", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)

    def test_near_names_of_features(self):
        done = dlcore("plugin", "inspect", "convolutoin", path=BUILT)
        self.assertEqual(done.returncode, 3)
        self.assertIn('did you mean "convolution"?', done.stderr)


class Capabilities(Box):
    def test_every_bit_has_a_name(self):
        """All that the headers have; a plugin of a newer one has its bit told."""
        named = (SOURCE / "tools/plugin_json.c").read_text()
        bits = []
        for kind in KINDS:
            header = (SOURCE / f"include/dlcore/{kind}.h").read_text()
            for body in re.findall(r"/\* Capability bits of [^\n]*\*/\nenum {(.*?)\n};", header, re.S):
                bits += [(kind, bit) for bit in re.findall(r"^    (DLC_\w+) = ", body, re.M)]
        self.assertGreaterEqual(len(bits), 19)
        for kind, bit in bits:
            self.assertRegex(named, rf"{{DLC_KIND_{kind.upper()}, {bit}, \"[a-z][a-z0-9 -]+\"}}", bit)

    def test_shown_by_name(self):
        shown = features("--all", "relu") | features("--all", "convolution") | features("host-staged")
        for key, feature in shown.items():
            self.assertRegex(feature["capabilities"], r"^[a-z][a-z0-9 ,-]*$", key)
            self.assertNotRegex(feature["capabilities"], r"0x|unknown", key)
        self.assertIn("pointwise", [f for k, f in shown.items() if k[1] == "relu"][0]["capabilities"])

    def test_unknown_bit(self):
        self.put("good")
        self.assertEqual(features("tiny", path=self.box)[("good", "tiny", None)]["capabilities"],
                         "bit 63, unknown here")


del Box
if __name__ == "__main__":
    unittest.main()
