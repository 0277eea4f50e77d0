#!/usr/bin/env python3
"""Tests dlcore plugin inspect: what it shows for a name, for which device, and how."""

import json
import pathlib
import re
import sys
import unittest

from command import BIN, PluginFolder, dlcore

SOURCE = pathlib.Path(__file__).resolve().parents[4]
BUILT = BIN.parent.parent / "lib/dlcore/0"
KINDS = ("device", "transport", "layer", "solver", "consistency", "data", "decoder")


def features(*arguments, path=BUILT, **more):
    """{(plugin, name, device): feature} of what `plugin inspect --json` shows."""
    done = dlcore("plugin", "inspect", *arguments, "--json", path=path, **more)
    if done.returncode:
        raise AssertionError(done.stderr)
    return {(plugin["name"], feature["name"], feature["device"]): feature
            for plugin in json.loads(done.stdout)["plugins"] for feature in plugin["features"]}


class Device(PluginFolder):
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
        reported = set(re.findall(r"^Not shown: layer relu for (\S+), by plugin ", done.stdout, re.M))
        self.assertEqual(reported, others)
        self.assertEqual({device for _, _, device in features("relu")}, {shown})
        if not others:
            return
        for device in others:
            self.assertEqual({d for _, _, d in features("relu", f"--device={device}")}, {device})

    def test_another_device(self):
        for name in ("for-vax", "for-pdp"):
            self.put(name)
        for device in ("vax", "pdp"):
            done = dlcore("plugin", "inspect", "tiny", f"--device={device}", path=self.dir)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(re.findall(r"device +(\S+)", done.stdout), [device])
            self.assertEqual(re.findall(r"^plugin +(\S+)", done.stdout, re.M), [device])
        # The device of a job here has none: all are shown.
        for arguments in ((), ("--all",)):
            done = dlcore("plugin", "inspect", "tiny", *arguments, path=self.dir)
            self.assertEqual(sorted(re.findall(r"device +(\S+)", done.stdout)), ["pdp", "vax"])
            self.assertNotIn("Not shown", done.stdout)
        self.assertEqual(len(features("tiny", path=self.dir)), 2)

    def test_any_device(self):
        self.assertEqual(list(features("sgd", "--device=cpu")), [("sgd", "sgd", None)])
        self.assertEqual(list(features("cpu", "--device=cpu")), [("cpu", "cpu", None)])

    def test_no_such_device(self):
        self.put("for-vax")
        done = dlcore("plugin", "inspect", "tiny", "--device=vxa", path=self.dir)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertRegex(done.stderr, r"--device=vxa: unknown device; there are .*\bvax\b")
        done = dlcore("plugin", "inspect", "relu", "--device=vax", path=self.dir)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn('there is no "relu" for vax', done.stderr)
        done = dlcore("plugin", "inspect", "vax", "--device=cpu", path=self.dir)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("plugin vax has nothing that works on cpu", done.stderr)

    def test_usage(self):
        for arguments in (["list", "--all"], ["list", "--device=cpu"], ["inspect", "relu", "--all", "--device=cpu"]):
            done = dlcore("plugin", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)

    def test_near_names_of_features(self):
        done = dlcore("plugin", "inspect", "convolutoin", path=BUILT)
        self.assertEqual(done.returncode, 3)
        self.assertIn('did you mean convolution?', done.stderr)


class Capabilities(PluginFolder):
    def test_every_bit_has_a_name(self):
        """All that the headers have; a plugin of a newer one has its bit reported."""
        named = (SOURCE / "tools/plugin_json.c").read_text()
        bits = []
        for kind in KINDS:
            header = (SOURCE / f"include/dlcore/{kind}.h").read_text()
            for body in re.findall(r"/\* Capability bits of [^\n]*\*/\nenum {(.*?)\n};", header, re.S):
                bits += [(kind, bit) for bit in re.findall(r"^    (DLC_\w+) = ", body, re.M)]
        self.assertEqual({kind for kind, _ in bits}, {"device", "transport", "layer", "data", "decoder"})
        for kind, bit in bits:
            self.assertRegex(named, rf"{{DLC_KIND_{kind.upper()}, {bit}, \"[a-z][a-z0-9 -]+\"}}", bit)

    def test_shown_by_name(self):
        shown = features("--all", "relu") | features("--all", "convolution") | features("host-staged")
        for key, feature in shown.items():
            self.assertRegex(feature["capabilities"], r"^[a-z][a-z0-9 ,-]*$", key)
            self.assertNotRegex(feature["capabilities"], r"0x|unknown", key)
        self.assertIn("pointwise", [f for k, f in shown.items() if k[1] == "relu"][0]["capabilities"])

    def test_optional_calls_are_shown(self):
        """What a plugin can do beyond the required calls, from its tables."""
        self.assertEqual(features("cpu")[("cpu", "cpu", None)]["capabilities"], "host memory, shared memory")
        shown = features("p2p-tree")[("p2p-tree", "p2p-tree", None)]["capabilities"]
        self.assertEqual(shown, "pairwise order, device memory, capturable, stream-ordered")

    def test_unknown_bit(self):
        self.put("good")
        self.assertEqual(features("tiny", path=self.dir)[("good", "tiny", None)]["capabilities"],
                         "bit 63, unknown here")


SECTIONS = ("net", "data", "data.test", "solver", "consistency", "train", "parallel", "transport", "layer",
            "block")
NET = """[data]
source = synthetic
batch = 4
[data.test]
source = synthetic
[solver]
type = sgd
[consistency]
type = synchronous
[train]
iterations = 2
[parallel]
ranks = 1
[transport]
type = auto
[net]
name = small
[block pair]
params = width
[pair.ip]
type = inner_product
num_output = $width
[pairs]
block = pair
width = 10
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""
# Where NET has what a title of the manual means.
PLACES = {"[NAME]": "[ip]", "[NAME] with a key `block`": "[pairs]", "[block NAME]": "[block pair]"}


def sections(name):
    done = dlcore("plugin", "inspect", name, "--json", path=BUILT)
    if done.returncode:
        raise AssertionError(done.stderr)
    document = json.loads(done.stdout)
    return {section["title"]: section for section in document["sections"]}


class Sections(PluginFolder):
    """What the core itself reads from net.ini."""

    def test_each_by_its_name(self):
        for name in SECTIONS:
            for title, section in sections(name).items():
                self.assertEqual(section["name"], name)
                text = dlcore("plugin", "inspect", name, path=BUILT).stdout
                self.assertIn(f"{title}: {section['help']}\n", text)
                for option in section["options"]:
                    self.assertRegex(text, rf"(?m)^  {option['name']} +{re.escape(option['takes'])}.*\n +"
                                     + re.escape(option["help"]) + "$")
        self.assertEqual({s["name"] for s in sections("sections").values()}, set(SECTIONS))
        keys = {key["name"] for section in sections("sections").values() for key in section["options"]}
        self.assertLessEqual({"test_interval", "target_accuracy", "transforms", "shuffle", "prefetch", "phase",
                              "loss_weight", "params", "repeat", "keep", "checkpoint_minutes", "batch"}, keys)

    def test_every_key_has_help(self):
        """A sentence's worth of it, of the core's keys as of the plugins'."""
        document = json.loads(dlcore("plugin", "inspect", "--all", "--json", path=BUILT).stdout)
        tables = [(s["title"], s["options"]) for s in document["sections"]]
        tables += [(f["name"], f["options"]) for p in document["plugins"] for f in p["features"]]
        self.assertGreater(len(tables), 40)
        for plugin in document["plugins"]:
            for feature in plugin["features"]:
                self.assertNotRegex(feature["help"], r"\.$|\n|\bprocessor", feature["name"])
        for where, options in tables:
            for option in options:
                key = f"{where} {option['name']}: {option['help']!r}"
                self.assertGreaterEqual(len(option["help"]), 8, key)
                self.assertNotRegex(option["help"], r"\.$|\n", key)
                self.assertNotRegex(option["takes"], r"^$|one of $", key)

    def test_no_table_is_left_out(self):
        """Each that the core checks net.ini against is in that of the sections."""
        text = (SOURCE / "core/setup/sections.c").read_text()
        tables = {table for file in (SOURCE / "core").rglob("*.c")
                  for table in re.findall(r"^const dlc_option (dlc_\w+)\[\] = ", file.read_text(), re.M)}
        self.assertGreaterEqual(len(tables), 10)
        for table in tables:
            self.assertIn(table, text)

    def test_each_key_is_taken(self):
        """`dlcore check` knows every key where the manual has it, and no other."""
        net = self.dir / "net.ini"
        for title, section in sections("sections").items():
            place = PLACES.get(title, title)
            self.assertIn(f"{place}\n", NET)
            present = re.findall(r"^(\w+) =", NET.split(f"{place}\n")[1].split("[")[0], re.M)
            added = [o["name"] for o in section["options"] if o["name"] not in present]
            net.write_text(NET.replace(f"{place}\n", f"{place}\nzzz = x y\n" + "".join(
                f"{key} = x y\n" for key in added)))
            done = dlcore("check", net, "--json", path=BUILT)
            self.assertEqual(done.returncode, 2, done.stderr)
            refused = set(re.findall(r'(?:has no (?:setting|parameter)|no layer of the block uses) "(\w+)"',
                                     done.stderr))
            self.assertEqual(refused, {"zzz"}, done.stderr)

    def test_plugins_of_a_section(self):
        """A section that a plugin has keys in names those that do."""
        text = dlcore("plugin", "inspect", "data", path=BUILT).stdout
        self.assertRegex(text, r"The data source is named by `source`[^*]*\bcifar, csv, hdf5, idx, images, lmdb, npy, synthetic, tar\b")
        text = dlcore("plugin", "inspect", "layer", path=BUILT).stdout
        self.assertEqual(len(re.findall(r"\brelu\b", text)), 1, text)
        self.assertNotIn("keys of its own", dlcore("plugin", "inspect", "net", path=BUILT).stdout)

    def test_near_names_and_keys(self):
        done = dlcore("plugin", "inspect", "solvr", path=BUILT)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn('did you mean solver?', done.stderr)
        done = dlcore("plugin", "inspect", "shuffle", path=BUILT)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn('"shuffle" is not a plugin or section but a key of [data], [data.test]: ', done.stderr)
        done = dlcore("plugin", "inspect", "momentum", path=BUILT)
        self.assertRegex(done.stderr, r"a key of .*solver sgd")

    def test_everything(self):
        document = json.loads(dlcore("plugin", "inspect", "--all", "--json", path=BUILT).stdout)
        listed = json.loads(dlcore("plugin", "list", "--json", path=BUILT).stdout)
        self.assertEqual(len(document["plugins"]), len(listed["plugins"]))
        self.assertGreaterEqual(len(document["sections"]), 9)
        self.assertEqual(dlcore("plugin", "inspect", path=BUILT).returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
