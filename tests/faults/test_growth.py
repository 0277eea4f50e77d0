"""Time grows with the size of a file, and not with its square: a file of four times as many
layers, sections, keys, mistakes or tensors takes about four times as long. If each of them were
searched for among all names, it would take sixteen times as long."""

import json
import os
import pathlib
import resource
import struct
import subprocess
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
TIMES = 4  # larger
MOST = 6.5  # times as long: more than 4, and less than 16
NOISE = 0.1  # seconds that do not count

HEAD = """[net]
name = net
[data]
source = synthetic
shape = 4,4,4
classes = 4
samples = 64
batch = 4
[data.test]
source = synthetic
shape = 4,4,4
classes = 4
samples = 4
batch = 4
[solver]
type = sgd
learning_rate = 0.01
[train]
device = cpu
iterations = 4
"""
TAIL = """[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


def join(layer, count):
    return HEAD + "".join(layer(i) for i in range(count)) + TAIL


def chain(count):
    return join(lambda i: f"[l{i}]\ntype = relu\n", count)


def products(count):
    return join(lambda i: f"[l{i}]\ntype = inner_product\nnum_output = 4\n", count)


def residual(count):
    return join(lambda i: f"[a{i}]\ntype = sigmoid\n[l{i}]\ntype = eltwise\ninput = a{i}, "
                          f"{f'l{i - 1}' if i else 'data'}\n", count)


def metrics(count):
    return chain(1) + "".join(f"[m{i}]\ntype = accuracy\ninput = ip, label\n" for i in range(count))


def groups(count):
    return (HEAD + "[block b]\n[b.a]\ntype = relu\n" +
            "".join(f"[u{i}]\nblock = b\n" for i in range(count)) + TAIL)


def sections(count):
    return join(lambda i: f"[l{i}]\n", count)


def keys(count):
    return join(lambda i: "".join(f"key{k} = 1\n" for k in range(count)) if i else "[l]\ntype = relu\n", 2)


def unknown_inputs(count):
    return join(lambda i: f"[l{i}]\ntype = relu\ninput = nothing{i}\n", count)


def misfits(count):
    return join(lambda i: f"[l{i}]\ntype = convolution\nnum_output = 4\nkernel_size = 9\ninput = data\n",
                count)


def weights(path, shapes):
    """Writes a safetensors file of zeros, as another program would."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, size = end, 4
        for dim in shape:
            size *= dim
        end += size
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


class Growth(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def seconds(self, *words, code):
        """CPU time."""
        def spent():
            use = resource.getrusage(resource.RUSAGE_CHILDREN)
            return use.ru_utime + use.ru_stime

        begin = spent()
        done = subprocess.run([DLCORE, *words], cwd=self.folder, check=False, timeout=300,
                              env=dict(os.environ, OMP_NUM_THREADS="1"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, code, done.stderr[-500:])
        return spent() - begin

    def grows(self, count, run):
        """run(n): the seconds that n of something take. A busy machine may slow some runs down
        and not others, so they take turns, and get other tries."""
        for _ in range(5):
            start, small, large = run(1), run(count), run(TIMES * count)
            small = min(small, run(count))  # slow by chance, it would hide a square
            if large - start < MOST * max(small - start, NOISE):
                return
        self.fail(f"1: {start:.2f} s, {count}: {small:.2f} s, {TIMES * count}: {large:.2f} s")

    def check_nets(self, count, text, code=0, *words):
        def run(size):
            (self.folder / "net.ini").write_text(text(size), encoding="ascii")
            return self.seconds("check", "net.ini", *words, code=code)
        self.grows(count, run)

    def test_layers(self):
        self.check_nets(2450, chain)

    def test_layers_with_parameters(self):
        self.check_nets(800, products, 0, "--json")

    def test_layers_that_are_read_twice(self):
        self.check_nets(950, residual)

    def test_metrics(self):
        self.check_nets(1600, metrics)

    def test_blocks(self):
        self.check_nets(1200, groups)

    def test_sections(self):
        self.check_nets(4900, sections, 2)

    def test_keys(self):
        self.check_nets(4900, keys, 2)

    def test_unknown_inputs(self):
        self.check_nets(1600, unknown_inputs, 2)

    def test_wrong_shapes(self):
        self.check_nets(900, misfits, 2)

    def test_tensors(self):
        (self.folder / "net.ini").write_text(chain(1), encoding="ascii")

        def run(size):
            weights(self.folder / "w.safetensors", {f"layer{i}.weight": [1] for i in range(size)})
            return self.seconds("test", "net.ini", "--weights=w.safetensors", code=4)
        self.grows(20000, run)

    def test_tensors_of_layers(self):
        def run(size):
            (self.folder / "net.ini").write_text(products(size), encoding="ascii")
            shapes = {f"l{i}.{name}": shape for i in range(size)
                      for name, shape in (("weight", [4, 4 if i else 64]), ("bias", [4]))}
            weights(self.folder / "w.safetensors",
                    {**shapes, "ip.weight": [4, 4], "ip.bias": [4]})
            return self.seconds("test", "net.ini", "--weights=w.safetensors", code=0)
        self.grows(800, run)


if __name__ == "__main__":
    unittest.main(verbosity=2)
