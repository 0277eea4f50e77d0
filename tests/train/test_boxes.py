#!/usr/bin/env python3
"""Boxes around objects, from files to nets: every source gives the same, ranks and stages see the
same, and `dlcore data` draws, counts, checks and converts them."""

import array
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import tarfile
import tempfile
import unittest
import zipfile

import test_data_command
import test_fields
import test_sources

BIN = os.environ["DLCORE_BIN"]
SAMPLES, MOST = 30, 3
NAMES = ["cat", "dog", "cow"]
MOVES = "random_resized_crop(12, scale=(0.4, 1)), mirror, rotate(10), normalize(mean=100, std=60)"
NET = """[net]
name = net
[data]
{data}
transforms = {transforms}
batch = 10
{test}[solver]
type = sgd
learning_rate = 1e-5
[train]
seed = 3
[conv]
type = convolution
num_output = 4
kernel_size = 3
weight_filler = xavier
[rows]
type = inner_product
num_output = 15
weight_filler = xavier
[loss]
type = euclidean_loss
label = boxes
"""
# Nothing that is measured decides, so that runs can be compared.
PINNED = ["--threads=1", "--transport=p2p-tree", "--scaling=strong", "--set=train.autotune=no", "--epochs=4"]


class Boxes(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.draw = random.Random(3)

    def make(self, sizes):
        """Images with up to three objects, of the colors of their classes."""
        self.images, self.boxes = [], []
        for i in range(SAMPLES):
            width, height = self.draw.choice(sizes), self.draw.choice(sizes)
            pixels = [[(7, 7, 7)] * width for _ in range(height)]
            self.boxes.append([])
            for _ in range(i % (MOST + 1)):
                label, x, y = (self.draw.randrange(end) for end in (3, width - 4, height - 4))
                right, bottom = self.draw.randrange(x + 3, width + 1), self.draw.randrange(y + 3, height + 1)
                self.boxes[-1].append((label, x, y, right, bottom))
                for row in pixels[y:bottom]:
                    row[x:right] = [tuple(200 if c == label else 20 for c in range(3))] * (right - x)
            self.images.append((width, height, pixels))

    def pngs(self):
        return [test_data_command.png(width, height, bytes(v for row in pixels for pixel in row for v in pixel))
                for width, height, pixels in self.images]

    def write_tar(self, boxes=None):
        with tarfile.open(self.folder / "shard.tar", "w") as shard:
            for i, (png, rows) in enumerate(zip(self.pngs(), boxes or self.boxes)):
                data = array.array("f", [value for row in rows for value in row]).tobytes()
                for ending, contents in (("png", png), ("objects.npy", test_sources.array("<f4", (len(rows), 5), data))):
                    info = tarfile.TarInfo(f"k{i:02}.{ending}")
                    info.size = len(contents)
                    shard.addfile(info, io.BytesIO(contents))
        return f"source = tar\nshards = shard.tar\nboxes = objects\nclasses = {', '.join(NAMES)}\n"

    def write_csv(self):
        text = "file," + ",".join(f"{name}{k}" for k in range(MOST) for name in "cxyrb") + "\n"
        for i, (png, rows) in enumerate(zip(self.pngs(), self.boxes)):
            (self.folder / f"{i}.png").write_bytes(png)
            cells = [f"{NAMES[c]},{x},{y},{r},{b}" for c, x, y, r, b in rows] + [",,,,"] * (MOST - len(rows))
            text += f"{i}.png,{','.join(cells)}\n"
        (self.folder / "table.csv").write_text(text)
        return f"source = csv\nfile = table.csv\npath = file\nboxes = c0..b2\nclasses = {', '.join(NAMES)}\n"

    def write_npz(self):
        width, height, _ = self.images[0]
        planes = bytes(row[x][c] for _, _, pixels in self.images for c in range(3)
                       for row in pixels for x in range(width))
        numbers = [n for rows in self.boxes for row in rows + [(-1, 0, 0, 0, 0)] * (MOST - len(rows)) for n in row]
        with zipfile.ZipFile(self.folder / "all.npz", "w") as arrays:
            arrays.writestr("x.npy", test_sources.array("|u1", (SAMPLES, 3, height, width), planes))
            arrays.writestr("b.npy", test_sources.array(">i2", (SAMPLES, MOST, 5), struct.pack(f">{len(numbers)}h", *numbers)))
        return "source = npy\npath = all.npz\nboxes = b\n"

    def write_net(self, data, transforms=MOVES, name="boxes", test=""):
        (self.folder / "net.ini").write_text(
            NET.format(data=data, transforms=transforms, test=test).replace("label = boxes", f"label = {name}"))

    def run_it(self, *words, code=0):
        done = subprocess.run([BIN, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def train(self, name, *words):
        done = self.run_it("train", "net.ini", "--json", "-q", f"--run-dir={name}", *PINNED, *words)
        return self.folder / json.loads(done.stdout)["checkpoint"]

    def test_sources(self):
        self.make([16])
        found = []
        for write, name in ((self.write_tar, "objects"), (self.write_csv, "boxes"), (self.write_npz, "boxes")):
            self.write_net(write(), name=name)
            found.append(test_sources.tensors(self.train(write.__name__)))
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_ranks_and_stages(self):
        """Images of different sizes, which the last stage of a pipeline does not read."""
        self.make(range(12, 24))
        data = self.write_tar()
        self.write_net(data, name="objects", test=f"[data.test]\n{data}transforms = resize(height=12, width=12)\nbatch = 7\n")
        alone = self.train("alone")
        self.assertTrue(any(test_fields.tensors(alone)["rows.bias"]))
        for name, *words in (("two", "--ranks=2"), ("three", "--ranks=3"),
                             ("stages", "--ranks=2", "--set=parallel.pipeline=rows"),
                             ("tensor", "--ranks=2", "--set=rows.parallel=tensor")):
            test_fields.Fields.assert_close(self, alone, self.train(name, *words))
        first = self.train("first", "--epochs=2")
        rest = self.train("rest", f"--resume={first}")
        self.assertEqual(test_sources.tensors(alone), test_sources.tensors(rest))

    def test_layers_read_boxes(self):
        """A layer that reads the field gets K x 5 numbers, those in use first."""
        self.make([16])
        data = self.write_tar()
        self.write_net(data, name="objects", test=f"[data.test]\n{data}transforms = mirror(1), center_crop(12)\nbatch = 7\n")
        with (self.folder / "net.ini").open("a") as net:
            net.write("[seen]\ntype = flatten\ninput = objects\n[again]\ntype = inner_product\nnum_output = 15\n"
                      "[other]\ntype = euclidean_loss\nlabel = objects\n")
        weights = self.train("seen")
        self.run_it("predict", "net.ini", "--weights", weights, "--data=test", "--features=seen")
        seen = array.array("f", (self.folder / "features.npy").read_bytes()[-SAMPLES * 15 * 4:])
        expected = []
        for rows in self.boxes:
            moved = [(c, *(min(max(v - 2, 0), 12) for v in (16 - x1, y0, 16 - x0, y1))) for c, x0, y0, x1, y1 in rows]
            kept = [row for row in moved if row[1] < row[3] and row[2] < row[4]]
            expected += [n for row in kept + [(-1, 0, 0, 0, 0)] * (MOST - len(kept)) for n in row]
        self.assertEqual(list(seen), expected)

    def test_preview(self):
        """Outlines of the boxes as the crop has moved and clipped them, over the pixels."""
        self.make([16])
        self.write_net(self.write_tar() + "shuffle = no", "center_crop(height=8, width=12)", "objects")
        self.run_it("data", "preview", "net.ini", "-o", "sheet.png", f"--count={SAMPLES}")
        _, _, found = test_data_command.read_png((self.folder / "sheet.png").read_bytes())
        zoom, gap, line = 8, 4, 9
        drawn = 0
        for i, (rows, (_, _, pixels)) in enumerate(zip(self.boxes, self.images)):
            left, top = gap + i % 6 * (12 * zoom + gap), gap + i // 6 * (8 * zoom + line + gap)
            outline = {}
            for label, *corners in rows:
                x0, y0, x1, y1 = (zoom * max(0, min(corner - move, most))
                                  for corner, move, most in zip(corners, (2, 4, 2, 4), (12, 8, 12, 8)))
                if x0 < x1 and y0 < y1:
                    drawn += 1
                    for x in range(x0, x1):
                        outline[x, y0] = outline[x, y1 - 1] = label
                    for y in range(y0, y1):
                        outline[x0, y] = outline[x1 - 1, y] = label
            for y in range(8 * zoom):
                for x in range(12 * zoom):
                    seen = found[top + y][left + x]
                    if (x, y) in outline:
                        self.assertIn(255, seen)
                        self.assertIn(0, seen)
                    else:
                        self.assertEqual(seen, pixels[4 + y // zoom][2 + x // zoom], (i, x, y))
        self.assertGreater(drawn, SAMPLES / 2)

    def test_stats_and_verify(self):
        self.make(range(12, 24))
        self.write_net(self.write_tar())
        found = json.loads(self.run_it("data", "stats", "net.ini", "--json").stdout)
        labels = [row[0] for rows in self.boxes for row in rows]
        self.assertEqual(found["boxes"], len(labels))
        self.assertEqual(found["box_classes"], [{"name": name, "boxes": labels.count(c)} for c, name in enumerate(NAMES)])
        self.assertRegex(self.run_it("data", "stats", "net.ini").stdout, rf"boxes +{len(labels)}\n +cat +{labels.count(0)}\n")
        self.assertIn(f"all {SAMPLES} samples are good", self.run_it("data", "verify", "net.ini").stdout)

    def test_stats_of_classes_and_boxes(self):
        """Three boxes of the class of each sample."""
        self.write_net("source = synthetic\nshape = 1, 16, 16\nclasses = 4\nsamples = 30\nboxes = yes")
        found = json.loads(self.run_it("data", "stats", "net.ini", "--json").stdout)
        self.assertEqual(sum(row["samples"] for row in found["classes"]), 30)
        self.assertEqual([row["boxes"] for row in found["box_classes"]],
                         [3 * row["samples"] for row in found["classes"]])

    def test_boxes_beyond_their_images(self):
        """They are clipped to them, as if that had been done before, and counted."""
        self.make([16])
        beyond = [[(c, x0 - (x0 < 4) * 5, y0, x1, y1 + (y1 > 12) * 1.5) for c, x0, y0, x1, y1 in rows] for rows in self.boxes]
        inside = [[(c, max(x0, 0), y0, x1, min(y1, 16)) for c, x0, y0, x1, y1 in rows] for rows in beyond]
        count = sum(x0 < 0 or y1 > 16 for rows in beyond for _, x0, _, _, y1 in rows)
        self.assertGreater(count, 5)
        weights = []
        for boxes, clipped in ((inside, 0), (beyond, count)):
            self.write_net(self.write_tar(boxes) + "min_visibility = 0.6", name="objects")
            for command in ("stats", "verify"):
                self.assertEqual(json.loads(self.run_it("data", command, "net.ini", "--json").stdout)["clipped_boxes"], clipped)
            weights.append(test_sources.tensors(self.train(f"run{clipped}")))
        self.assertEqual(*weights)
        self.assertIn(f"clipped     {count}; they reach", self.run_it("data", "stats", "net.ini").stdout)
        self.assertIn(f"{count} boxes reach beyond their images and are clipped", self.run_it("data", "verify", "net.ini").stderr)

    def test_wrong_boxes(self):
        """File, sample and row are named; such samples may be left out."""
        self.make([16])
        wrong = [list(rows) for rows in self.boxes]
        for sample, row in ((2, (0, 3, 3, 3, 5)), (6, (1, 16, 0, 18, 17)), (9, (3, 1, 1, 2, 2)),
                            (11, (0, float("nan"), 1, 2, 2))):
            wrong[sample].append(row)
        self.write_net(self.write_tar(wrong), "center_crop(12)", "objects")
        said = self.run_it("data", "verify", "net.ini", code=4).stdout
        for sentence in ("k02: field objects, row 2: the box x 3 to 3, y 3 to 5, of an image of 16 x 16 pixels "
                         "(width x height): x1 has to be greater than x0, and y1 than y0",
                         "k06: field objects, row 2: the box x 16 to 18, y 0 to 17, of an image of 16 x 16 pixels "
                         "(width x height): it is outside the image",
                         "k09: field objects, row 1: the class 3 is no whole number from 0 to 2; -1 is a row that",
                         "k11: field objects, row 3: the box x nan to 2"):
            self.assertIn("shard.tar: " + sentence, said)
        said = self.run_it("train", "net.ini", "--epochs=1", *PINNED[:-1], "--set=rows.num_output=20", code=4).stderr
        self.assertRegex(said, r"shard.tar: k\d\d: field objects, row \d: ")
        self.run_it("train", "net.ini", "--epochs=1", *PINNED[:-1], "--set=rows.num_output=20",
                    "--set=data.on_error=skip")

    def test_convert(self):
        """Shards of shards have the same boxes, also where there are none."""
        self.make(range(12, 24))
        self.write_net(self.write_tar(), name="objects")
        weights = test_sources.tensors(self.train("before"))
        self.run_it("data", "convert", "net.ini", "-o", "refused", "--resize=8", code=2)
        said = self.run_it("data", "convert", "net.ini", "-o", "shards").stdout
        self.assertIn("boxes = objects\n", said)
        shard, = (self.folder / "shards").glob("*.tar")
        with tarfile.open(shard) as tar:
            files = [tar.extractfile(member).read() for member in tar]
        self.assertEqual(files[::2], self.pngs())
        for rows, file in zip(self.boxes, files[1::2], strict=True):
            self.assertIn(f"({len(rows)}, 5)".encode(), file)
            self.assertTrue(file.endswith(struct.pack(f"<{5 * len(rows)}f", *(v for row in rows for v in row))))
        self.write_net(said.split("\n", 1)[1], name="objects")
        self.assertEqual(test_sources.tensors(self.train("after")), weights)

    def test_mistakes(self):
        self.make([16])
        self.write_net(self.write_csv())
        for words, *sentences in (
                (["loss.type=softmax_loss"], "[loss] its second input must be whole-number labels",
                 "it is 10x3x5, and not of whole numbers"),
                (["rows.num_output=14"], "[loss] its second input must be a target for each of the values 10x14; "
                 "it is 10x3x5"),
                (["data.mixup=0.2"], "mixup: field boxes is boxes, which cannot be mixed"),
                (["data.cutmix=1"], "cutmix: field boxes is boxes, which cannot be mixed"),
                (["data.boxes=c0..b1"], "must be a target for each of the values 10x15; it is 10x2x5"),
                (["data.boxes=c0..r1"], "boxes: there are 9 columns, but each box has five"),
                (["data.min_visibility=2"], "min_visibility")):
            said = self.run_it("check", "net.ini", *[f"--set={word}" for word in words], code=2).stderr
            for sentence in sentences:
                self.assertIn(sentence, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
