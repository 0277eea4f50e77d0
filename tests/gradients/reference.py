#!/usr/bin/python3
"""Records reference results of PyTorch for the nets of models/: the loss and the gradient
of every parameter, in double precision, for weights and a batch that are described by a
few numbers. Writes NET.ref to its own folder, and prints how far PyTorch's float32 is from
double precision, by the measure of test_gradients.c:

    tests/gradients/reference.py [NET...]

It needs Debian's python3-torch; the test itself needs only the .ref files.

A gradient is recorded as its norm and a *sketch*: each element is added to one of 16
sums, with a sign and a place that depend on its index (Charikar et al., "Finding frequent
items in data streams", 2002). The norm of the difference of two sketches estimates the
norm of the difference of the gradients.

Corners make such a comparison hard: if the input of a relu is zero up to rounding, or the
two largest numbers of a pooling window are equal up to rounding, the gradient takes
different paths in double and in float32, with any library. A pass makes tens of millions
of these decisions, and a single different one changes the gradient of an early layer by
1e-3. So the biases before a relu are chosen, from 64 values per channel, to keep its
inputs away from the corner and to avoid near-ties in pooling windows. Images are
checkered, with CELL x CELL pixels of one value, which shows a misplaced window as well as
noise does, but has fewer distinct numbers.

Nets with batch normalization and random weights also amplify rounding errors from layer
to layer, the less so the more of their relus are open (Yang et al., "A mean field theory
of batch normalization", 2019); but if all are open a bias has no effect after the next
normalization. So biases are in 1 .. 2, and in -1 .. 0 after a sum with a shortcut, which
is positive already; what a block adds to its shortcut is halved.
"""
import argparse
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))

import torch_nets

SKETCH = 16
CHOICES = 64
TIE = 2e-5  # relative to the standard deviation: at least ten times the rounding error
# Images in the batch; pixels of a cell; the largest value of a pixel, large for nets with
# local response normalization, which would have no effect otherwise; and the seed, of a few
# the one with the widest margins.
NETS = {"lenet": (8, 4, 1, 2), "cifar10-full": (8, 4, 128, 13), "caffenet": (2, 32, 128, 2),
        "alexnet": (2, 32, 128, 7), "vgg16": (2, 32, 1, 0), "googlenet": (2, 32, 128, 5),
        "resnet18": (4, 2, 1, 0), "resnet50": (4, 2, 1, 0), "mobilenet-v2": (4, 2, 1, 0)}
# The max-pooling that reads the outputs of the first relus, and the number of these relus:
# 3 x 3 windows with stride 1 include those of any stride.
POOLED = {"vgg16": (nn.MaxPool2d(2, 2), 13), "googlenet": (nn.MaxPool2d(3, 1, 1), 57),
          "caffenet": (nn.MaxPool2d(3, 2), 5), "alexnet": (nn.MaxPool2d(3, 2), 5),
          "resnet18": (nn.MaxPool2d(3, 2, 1), 1), "resnet50": (nn.MaxPool2d(3, 2, 1), 1)}

# Streams of random numbers; those of the parameters are consecutive, in the order of the net.
IMAGES, LABELS, SIGNS, PARAMETERS = 0, 1, 2, 3


# ---- Numbers that are functions of their index ------------------------------------


def words(stream, indices):
    """SplitMix64's mixing function (Steele et al., OOPSLA 2014) of stream and index."""
    with np.errstate(over="ignore"):
        word = indices.astype(np.uint64) + np.uint64((stream << 40) + 1)
        word *= np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return word ^ word >> np.uint64(31)


def draw(stream, indices):
    """[-1, 1), exact in float32."""
    return (words(stream, indices) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def batch_of(name):
    spec, (images, cell, largest, seed) = torch_nets.NETS[name], NETS[name]
    channels, height, width = spec.shape
    n, c, y, x = np.ogrid[:images, :channels, :height, :width]
    across = -(-width // cell)
    index = ((n * channels + c) * across + y // cell) * across + x // cell
    labels = words(LABELS, np.arange(images)) % np.uint64(spec.classes)
    pixels = draw(IMAGES, index + (seed << 32)) * np.float32(largest)
    return torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64))


class Values:
    """How a parameter is filled: center + amplitude * draw, or, once chosen, by one character
    per channel: base + step * (character - '0'), where '0' stands for `closed`. Everything is
    exact in float32 or rounded once, so that C gives bitwise identical values."""

    def __init__(self, center, amplitude):
        self.center, self.amplitude = center, float(np.float32(amplitude))
        self.base = self.step = self.closed = self.choices = None

    def fill(self, parameter, stream):
        values = draw(stream, np.arange(parameter.numel())) * np.float32(self.amplitude) + np.float32(self.center)
        parameter.data.copy_(torch.from_numpy(values).view_as(parameter))


def first_values(net):
    """The initial values: weights that keep activations from vanishing and exploding."""
    small = {id(block.main[-1][-1]) for block in net.modules() if isinstance(block, torch_nets.Block)}
    found = {}
    for module in net.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                found[parameter] = Values(0, 1 / 16)
            elif isinstance(module, nn.BatchNorm2d):
                scale = 1 / 2 if id(module) in small else 1
                found[parameter] = Values(scale, scale / 4)
            else:
                found[parameter] = Values(0, np.sqrt(6 / (parameter.numel() / parameter.shape[0])))
    return found


# ---- Away from the corners --------------------------------------------------------


def corners_of(relu):
    return (0, 6) if isinstance(relu, nn.ReLU6) else (0,)


def by_channel(bias, x):
    return bias.view(1, -1, *[1] * (x.dim() - 2))


def window_gaps(pool, x):
    """The largest number of every window, and its distance from the second largest."""
    size, stride, pad = pool.kernel_size, pool.stride, pool.padding
    most = F.max_pool2d(x, size, stride, pad, 1, pool.ceil_mode)
    wide = F.pad(x, (pad, pad + size, pad, pad + size), value=-1e9)
    gap = torch.full_like(most, 1e9)
    for i in range(size):
        for j in range(size):
            value = wide[:, :, i::stride, j::stride][:, :, :most.shape[2], :most.shape[3]]
            away = most - value
            away[away < 1e-11 * (1 + most.abs())] = 1e9  # the same number
            gap = torch.minimum(gap, away)
    return most, gap


def margins_of(x, candidates, corners):
    """[channel, candidate]: the distance of the channel's numbers from all corners if the
    candidate is added to them."""
    channels = x.shape[1]
    ordered = x.transpose(0, 1).reshape(channels, -1).sort(1).values.contiguous()
    margins = torch.full((channels, len(candidates)), float("inf"), dtype=x.dtype)
    for corner in corners:
        wanted = (corner - candidates).expand(channels, -1).contiguous()
        after = torch.searchsorted(ordered, wanted)
        for place in (after, after - 1):
            near = ordered.gather(1, place.clamp(0, ordered.shape[1] - 1))
            margins = torch.minimum(margins, (near - wanted).abs())
    return margins


class Calibration:
    """A forward pass that chooses the biases before relus."""

    def __init__(self, name, net, values):
        self.pool, self.pooled = POOLED.get(name, (None, 0))
        self.values, self.owner = values, None
        self.behind_sums = {id(block.last) for block in net.modules() if isinstance(block, torch_nets.Block)}
        for module in net.modules():
            if getattr(module, "bias", None) is not None:
                module.register_forward_hook(self.note_owner)
            if isinstance(module, (nn.ReLU, nn.ReLU6)):
                module.register_forward_pre_hook(self.choose)
            if isinstance(module, nn.Linear) and module.out_features in (10, 1000):
                module.register_forward_pre_hook(self.calm)

    def calm(self, classifier, inputs):
        """Scales scores to about 1, so that softmax is neither flat nor saturated."""
        factor = 2.0 ** -np.round(np.log2(F.linear(inputs[0], classifier.weight).std().item()))
        classifier.weight.data *= factor
        self.values[classifier.weight].amplitude *= factor

    def note_owner(self, module, _, output):
        self.owner = module

    def choose(self, relu, inputs):
        bias, (x,) = self.owner.bias, inputs
        x = x - by_channel(bias.data, x)
        if isinstance(self.owner, nn.BatchNorm2d):
            width, base = 1, -1 if id(relu) in self.behind_sums else 1
        else:
            width = 2.0 ** np.round(np.log2(x.std().item()))
            base = -width / 2
        candidates = base + width / CHOICES * torch.arange(CHOICES, dtype=x.dtype)
        candidates[0] = -32 * width  # closes any channel
        margins = margins_of(x, candidates, corners_of(relu))
        margins[:, 0] = 4 * TIE * width  # preferred to a margin below this
        if self.pooled:
            self.pooled -= 1
            margins[self.ties(x)[:, None] + candidates > 0] = -1  # not closed
        chosen = margins.max(1).indices
        kept = self.values[bias]
        kept.base, kept.step, kept.choices = base, width / CHOICES, "".join(chr(48 + i) for i in chosen)
        kept.closed = -32 * width
        bias.data.copy_(candidates[chosen])
        return x + by_channel(bias.data, x)

    def ties(self, x):
        """The largest number of each channel that is within TIE of another in its window."""
        most, gap = window_gaps(self.pool, x)
        most[gap > TIE * x.std()] = -1e9
        return most.amax((0, 2, 3))


class Margins:
    """The distance of a pass in double precision from the corners, relative to the errors of a
    pass in float32."""

    def __init__(self, double, single):
        self.inputs, self.found, self.errors = [], [], []
        for net, look in ((double, self.measure), (single, self.compare)):
            for module in net.modules():
                if isinstance(module, (nn.ReLU, nn.ReLU6, nn.MaxPool2d)):
                    module.register_forward_pre_hook(look)

    def measure(self, module, inputs):
        x = inputs[0].detach().clone()
        if isinstance(module, nn.MaxPool2d):
            most, gap = window_gaps(module, x)
            gap[most == 0] = 1e9  # closed by a relu
            self.found.append(gap.min().item() / 2)
        else:
            self.found.append(min((x - corner).abs().min().item() for corner in corners_of(module)))
        self.inputs.append(x)

    def compare(self, _, inputs):
        self.errors.append((inputs[0].detach().double() - self.inputs.pop(0)).abs().max().item())

    def least(self):
        return min(found / error for found, error in zip(self.found, self.errors))


# ---- A reference ------------------------------------------------------------------


def sketch_of(gradient):
    values = gradient.double().numpy().ravel()
    sums = np.zeros(SKETCH)
    for start in range(0, values.size, 1 << 22):
        part = values[start:start + (1 << 22)]
        word = words(SIGNS, np.arange(start, start + part.size))
        signed = np.where(word >> np.uint64(63), -part, part)
        sums += np.bincount((word & np.uint64(SKETCH - 1)).astype(np.int64), signed, SKETCH)
    return np.linalg.norm(values), sums


def gradients(net, images, labels):
    loss = torch_nets.loss_of(net(images), labels)
    loss.backward()
    return loss.item(), [(tuple(p.shape), *sketch_of(p.grad)) for p in net.parameters()]


def training_net(name):
    net = torch_nets.build(name).train()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    return net


class Reference:
    def __init__(self, name):
        net = training_net(name)
        self.name, values = name, first_values(net)
        for i, (parameter, how) in enumerate(values.items()):
            how.fill(parameter, PARAMETERS + i)
        net.double()
        images, labels = batch_of(name)
        Calibration(name, net, values)
        with torch.no_grad():
            net(images.double())
        # This drops the hooks with that net, and keeps the biases that they have chosen.
        double, single = training_net(name).double(), training_net(name)
        double.load_state_dict(net.state_dict())
        single.load_state_dict(net.state_dict())
        self.values = list(values.values())
        margins = Margins(double, single)
        self.loss, self.tensors = gradients(double, images.double(), labels)
        self.float_loss, self.float_tensors = gradients(single, images, labels)
        self.safety = margins.least()

    def write(self):
        images, cell, largest, seed = NETS[self.name]
        sample = "x".join(map(str, torch_nets.NETS[self.name].shape))
        with open(HERE / f"{self.name}.ref", "w") as file:
            print(f"# Made by tests/gradients/reference.py, PyTorch {torch.__version__}, double precision.\n"
                  f"sample {sample}\nclasses {torch_nets.NETS[self.name].classes}\nbatch {images}\ncell {cell}\nlargest {largest}\nseed {seed}\nloss {self.loss:.12g}", file=file)
            for values, (shape, norm, sums) in zip(self.values, self.tensors):
                print("tensor", "x".join(map(str, shape)), f"{values.center:.9g} {values.amplitude:.9g}",
                      f"{norm:.8g}", *(f"{value:.7g}" for value in sums), file=file)
                if values.choices:
                    print(f"chosen {values.closed:.9g} {values.base:.9g} {values.step:.9g} {values.choices}", file=file)

    def report(self):
        largest = max(norm for _, norm, _ in self.tensors)
        errors = [np.linalg.norm(a[2] - b[2]) / b[1] if b[1] > 1e-9 * largest else 0
                  for a, b in zip(self.float_tensors, self.tensors)]
        worst = int(np.argmax(errors))
        print(f"{self.name}: loss {self.loss:.4f}; margins {self.safety:.2g} times the largest "
              f"rounding; float32 off by {abs(self.float_loss / self.loss - 1):.0e} (loss), {max(errors):.1e} "
              f"(worst gradient, {'x'.join(map(str, self.tensors[worst][0]))}), {np.median(errors):.1e} (median)",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", nargs="*", default=list(NETS))
    args = parser.parse_args()
    for name in args.net:
        reference = Reference(name)
        reference.report()
        reference.write()


if __name__ == "__main__":
    main()
