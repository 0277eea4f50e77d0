#!/usr/bin/env python3
"""Tests the SVG pictures that dlcore draws: those of machines show every device, switch and
link in its place; all are readable on light and on dark backgrounds."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

BIN = os.environ["DLCORE_BIN"]
SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
MACHINES = sorted((SOURCE / "tests/topology/machines").glob("*.xml"))
# Under sanitizers other tests read all machines.
DRAWN = MACHINES[::6] if os.environ.get("DLCORE_SANITIZE") else MACHINES
SVG = "{http://www.w3.org/2000/svg}"
LEAVES = {"gpu", "nic", "rank", "core", "other"}
NET = """[net]
name = small
[data]
source = synthetic
shape = 3,8,8
batch = 2
[solver]
type = sgd
learning_rate = 0.01
[train]
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""


def dlcore(*words, folder=None):
    done = subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, cwd=folder,
                          stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"dlcore {words}: {done.stderr}")
    return done.stdout


def rules(css):
    """{selector: {property: value}} of a style sheet, later ones over earlier ones."""
    found = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        values = dict(map(str.strip, line.split(":", 1)) for line in body.split(";")
                      if ":" in line)
        for selector in selectors.split(","):
            found.setdefault(selector.strip(), {}).update(values)
    return found


def style_sheets(root):
    """The rules in light mode and in dark mode."""
    css = root.find(f"{SVG}style").text
    light, dark = re.fullmatch(r"(.*)@media \(prefers-color-scheme: dark\) \{\n(.*)\}\s*",
                               css, re.S).groups()
    return {"light": rules(light), "dark": rules(light + dark)}


def colour(sheet, tag, style, of):
    """The color of a shape: that of its class, else of its tag."""
    for selector in (f"{tag}.{style}", f".{style}", tag):
        if of in sheet.get(selector, {}):
            return sheet[selector][of]
    return None


def luminance(colour_text):
    parts = [int(colour_text[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    """The contrast ratio of WCAG 2, 1 to 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def box_of(rect):
    return tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))


class Pictures(unittest.TestCase):
    def check_readable(self, root):
        """Checks the contrast of each text with the box around it."""
        boxes = [(box_of(rect), rect.get("class")) for rect in root.iter(f"{SVG}rect")
                 if rect.get("x")]
        shapes = {(node.tag[len(SVG):], node.get("class")) for node in root.iter()
                  if node.get("class")}
        for name, sheet in style_sheets(root).items():
            back = colour(sheet, "rect", "back", "fill")
            for tag, style in shapes:
                if tag in ("line", "path"):
                    stroke = colour(sheet, tag, style, "stroke")
                    self.assertIsNotNone(stroke, (tag, style))
                elif tag == "rect":
                    self.assertIsNotNone(colour(sheet, tag, style, "fill"), (tag, style))
            for text in root.iter(f"{SVG}text"):
                x, y = float(text.get("x")), float(text.get("y")) - 4
                under = back
                for (left, top, wide, high), style in boxes:
                    if left <= x <= left + wide and top <= y <= top + high:
                        under = colour(sheet, "rect", style, "fill")
                ink = colour(sheet, "text", text.get("class"), "fill")
                self.assertGreater(contrast(ink, under), 4.4,
                                   (name, text.get("class"), text.text, ink, under))

    def check_inside(self, root):
        width, height = float(root.get("width")), float(root.get("height"))
        for rect in root.iter(f"{SVG}rect"):
            if not rect.get("x"):
                continue
            x, y, wide, high = box_of(rect)
            self.assertGreaterEqual(min(x, y, wide, high), 0)
            self.assertLessEqual(x + wide, width)
            self.assertLessEqual(y + high, height)
        for text in root.iter(f"{SVG}text"):
            self.assertLessEqual(float(text.get("y")), height)
            self.assertLessEqual(float(text.get("x")), width)

    def check_leaves(self, root):
        """Checks that no two devices overlap."""
        leaves = [box_of(rect) for rect in root.iter(f"{SVG}rect")
                  if rect.get("class") in LEAVES]
        for i, (x, y, wide, high) in enumerate(leaves):
            for x2, y2, wide2, high2 in leaves[:i]:
                self.assertTrue(x + wide <= x2 or x2 + wide2 <= x or y + high <= y2 or
                                y2 + high2 <= y)

    def draw(self, *words):
        root = xml.fromstring(dlcore("topo", "-q", "--of=svg", *words))
        report = json.loads(dlcore("topo", "-q", "--of=json", *words))
        self.check_inside(root)
        self.check_leaves(root)
        self.check_readable(root)
        return root, report

    def titles(self, root, style):
        return [rect.find(f"{SVG}title").text for rect in root.iter(f"{SVG}rect")
                if rect.get("class") == style and rect.find(f"{SVG}title") is not None]

    def check_machine(self, path):
        root, report = self.draw(f"--from={path}")
        for style, kind in (("gpu", "GPU"), ("nic", "NIC"), ("other", "device")):
            labels = sorted(node["label"] for node in report["nodes"] if node["kind"] == kind)
            drawn = sorted(title.split(" ")[0] for title in self.titles(root, style))
            self.assertEqual(drawn, labels)
        boxes = [rect.find(f"{SVG}title").text for rect in root.iter(f"{SVG}rect")
                 if rect.find(f"{SVG}title") is not None]
        parents = {node["parent"] for node in report["nodes"]}
        for kind in ("NUMA node", "PCI switch", "package"):
            there = sum(node["kind"] == kind and node["id"] in parents
                        for node in report["nodes"])
            drawn = sum(re.match(rf"{kind}( |$|:)", text) is not None for text in boxes)
            self.assertLessEqual(drawn, there if kind != "PCI switch" else drawn)
            self.assertEqual(drawn > 0, there > 0, kind)
        texts = [text.text for text in root.iter(f"{SVG}text")]
        # Each pair's transport: in the matrix, and at the common ancestor of both ends.
        for link in report["links"]:
            name = link["transport"] or "none"
            tip = f"{link['a']} - {link['b']}: "
            self.assertEqual(sum(text.startswith(tip) for text in boxes), 2, tip)
            self.assertIn(name, texts)
        names = {link["transport"] or "none" for link in report["links"]}
        meet = " ".join(text for text in boxes + [text or "" for text in texts]
                        if ": " in (text or ""))
        for name in names:
            self.assertIn(name, meet)
        # Direct links: a line to the switches, or an arc between two devices.
        fabrics = {node["id"] for node in report["nodes"] if node["kind"] == "fabric"}
        ends = {(min(j["from"], j["to"]), max(j["from"], j["to"])) for j in report["joins"]
                if not {j["from"], j["to"]} & fabrics and j["from"] != j["to"]}
        arcs = [path for path in root.iter(f"{SVG}path")]
        self.assertEqual(len(arcs), len(ends))
        lines = [line for line in root.iter(f"{SVG}line") if line.get("class") == "link"]
        self.assertEqual(len(lines), len({j["from"] for j in report["joins"]
                                          if j["to"] in fabrics}))

    def test_recorded_machines(self):
        self.assertGreater(len(MACHINES), 15)
        for path in DRAWN:
            if path.stem == "two-hosts":
                continue
            with self.subTest(machine=path.stem):
                self.check_machine(path)

    def test_title_fits(self):
        """The title is the name of the file, whatever folders it is in."""
        root, _ = self.draw(f"--from={SOURCE}{'/.' * 60}/tests/topology/machines/pcie-box.xml")
        title = next(text for text in root.iter(f"{SVG}text") if text.get("class") == "title")
        self.assertEqual(title.text, "pcie-box.xml")

    def test_several_machines(self):
        for nodes in (2, 7):
            root, report = self.draw(f"--from={SOURCE}/tests/topology/machines/pcie-box.xml",
                                   f"--nodes={nodes}")
            texts = [text.text or "" for text in root.iter(f"{SVG}text")]
            net = {link["transport"] for link in report["links"] if link["class"] == "NET"}
            self.assertIn("NET: " + ", ".join(sorted(net)), texts)
            drawn = [text for text in texts if re.match(r"\d:machine", text)]
            self.assertEqual(len(drawn), min(nodes, 4))
            self.assertEqual("network, to 3 more machines" in texts, nodes == 7)

    def test_this_job(self):
        root, _ = self.draw("--ranks=3")
        self.assertEqual(len(self.titles(root, "rank")), 3)

    def check_names(self, root, operations):
        """Each line of a panel has its operation's name at its end: beside it, or connected by
        a thin line if names would overlap; the names are in the order of the ends."""
        leads = [[float(line.get(key)) for key in ("x1", "y1", "x2", "y2")]
                 for line in root.iter(f"{SVG}line") if line.get("class") == "lead"]
        middle = float(root.get("width")) / 2
        for is_right in (False, True):
            ends, names = {}, {}
            for rect in root.iter(f"{SVG}rect"):
                if not re.fullmatch(r"op\d", rect.get("class") or ""):
                    continue
                x, y, wide, high = box_of(rect)
                if (x > middle) == is_right:
                    style = rect.get("class")
                    point = (x + wide / 2, y + high / 2, rect.find(f"{SVG}title").text)
                    ends[style] = max(ends.get(style, point), point)
            for text in root.iter(f"{SVG}text"):
                style = text.get("class")
                if style in ends and (float(text.get("x")) > middle) == is_right:
                    self.assertNotIn(style, names)
                    names[style] = (float(text.get("x")), float(text.get("y")) - 4, text.text)
                    self.assertEqual(text.get("text-anchor"), "start")
            self.assertEqual(len(ends), operations)
            self.assertEqual(set(names), set(ends))
            for style, (x, y, name) in names.items():
                end_x, end_y, tip = ends[style]
                self.assertTrue(tip.startswith(f"{name}, "), (name, tip))
                if abs(y - end_y) > 2.1:
                    wanted = (end_x + 5, end_y, x - 3, y)
                    self.assertTrue(any(max(abs(a - b) for a, b in zip(lead, wanted)) < 0.1
                                        for lead in leads), (name, wanted))
                else:
                    self.assertLess(abs(x - end_x - 15), 1, name)
            order = sorted(names, key=lambda style: names[style][1])
            for above, below in zip(order, order[1:]):
                self.assertLessEqual(ends[above][1], ends[below][1])
                self.assertGreater(names[below][1] - names[above][1], 14, (above, below))

    def test_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            dlcore("bench", "comm", "-q", "--ranks=2", "--op=all", "--max=16K",
                   "--plot=bench.svg", folder=folder)
            root = xml.parse(pathlib.Path(folder) / "bench.svg").getroot()
        self.check_inside(root)
        self.check_readable(root)
        self.check_names(root, 7)

    def test_time(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "net.ini").write_text(NET)
            dlcore("time", "net.ini", "-q", "--passes=1", "--plot=time.svg", folder=folder)
            root = xml.parse(pathlib.Path(folder) / "time.svg").getroot()
        self.check_inside(root)
        self.check_readable(root)

    def test_stored_pictures(self):
        """Pictures in the manual have a background of their own."""
        for path in (SOURCE / "docs").rglob("*.svg"):
            first = xml.parse(path).getroot().find(f".//{SVG}rect")
            self.assertIsNotNone(first, path)
            if "back" in (first.get("class") or ""):
                self.check_readable(xml.parse(path).getroot())
            else:
                self.assertEqual(first.get("fill"), "#ffffff", path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
