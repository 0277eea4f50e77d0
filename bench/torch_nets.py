"""The nets of models/ in PyTorch, for the benchmark (torch_train.py) and for the
recorded gradients (tests/gradients/reference.py). They are the published nets,
layer for layer what the .ini files say; each is checked against its published
number of parameters. A net with auxiliary heads returns a tuple in training.

    net = build("resnet50")
    loss = loss_of("resnet50", net(images), labels)
"""
import collections

import torch
from torch import nn
from torch.nn import functional as F

# ---- Layers that PyTorch lacks or does slowly -----------------------------------


def power_three_quarters(scale):
    """scale ** -0.75 as two reciprocal roots, several times faster than pow()."""
    return torch.rsqrt(scale) * torch.rsqrt(torch.sqrt(scale))


class WithinChannelLRN(nn.Module):
    """x / (1 + alpha * mean of x^2 over a size x size window) ^ 0.75, the form that
    Caffe calls WITHIN_CHANNEL."""

    def __init__(self, size, alpha):
        super().__init__()
        self.size, self.alpha = size, alpha

    def forward(self, x):
        mean = F.avg_pool2d(x * x, self.size, 1, self.size // 2)
        return x * power_three_quarters(mean.mul(self.alpha).add(1))


class AcrossChannelsLRN(nn.Module):
    """F.local_response_norm(x, size, alpha, 0.75), to which it is equal. `fast` has
    the sum over channels done by a convolution with a band of ones."""

    fast = False

    def __init__(self, channels, size=5, alpha=1e-4):
        super().__init__()
        self.size, self.alpha = size, alpha
        distance = torch.arange(channels)[:, None] - torch.arange(channels)[None, :]
        band = (distance.abs() <= size // 2).float().mul(alpha / size)
        self.register_buffer("band", band[:, :, None, None], persistent=False)
        self.register_buffer("one", torch.ones(channels), persistent=False)

    def forward(self, x):
        if not self.fast:
            return F.local_response_norm(x, self.size, self.alpha, 0.75)
        return x * power_three_quarters(F.conv2d(x * x, self.band.to(x.dtype), self.one.to(x.dtype)))


# ---- Parts ------------------------------------------------------------------------


def relu():
    return nn.ReLU(inplace=True)


def conv_relu(*args, **kwargs):
    return [nn.Conv2d(*args, **kwargs), relu()]


def conv_norm(inputs, outputs, size, stride=1, groups=1, activation=None):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
              nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation] if activation else []))


class Block(nn.Module):
    """A residual block: relu(main + shortcut), without relu where `last` is None."""

    def __init__(self, main, shortcut, last):
        super().__init__()
        self.main, self.shortcut, self.last = main, shortcut, last

    def forward(self, x):
        y = self.main(x)
        y += self.shortcut(x)
        return self.last(y) if self.last else y


class Inception(nn.Module):
    def __init__(self, inputs, one, three_reduce, three, five_reduce, five, pool):
        super().__init__()
        self.branches = nn.ModuleList([
            nn.Sequential(*conv_relu(inputs, one, 1)),
            nn.Sequential(*conv_relu(inputs, three_reduce, 1), *conv_relu(three_reduce, three, 3, padding=1)),
            nn.Sequential(*conv_relu(inputs, five_reduce, 1), *conv_relu(five_reduce, five, 5, padding=2)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), *conv_relu(inputs, pool, 1))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


# ---- Nets -------------------------------------------------------------------------


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2, 2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 500), relu(), nn.Linear(500, 10))


def cifar10_full():
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True), relu(),
        WithinChannelLRN(3, 5e-5),
        *conv_relu(32, 32, 5, padding=2), nn.AvgPool2d(3, 2, ceil_mode=True),
        WithinChannelLRN(3, 5e-5),
        *conv_relu(32, 64, 5, padding=2), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(1024, 10))


def alexnet_like(norm_first):
    def pool_and_norm(channels):
        layers = [AcrossChannelsLRN(channels), nn.MaxPool2d(3, 2, ceil_mode=True)]
        return layers if norm_first else layers[::-1]

    return nn.Sequential(
        *conv_relu(3, 96, 11, stride=4), *pool_and_norm(96),
        *conv_relu(96, 256, 5, padding=2, groups=2), *pool_and_norm(256),
        *conv_relu(256, 384, 3, padding=1), *conv_relu(384, 384, 3, padding=1, groups=2),
        *conv_relu(384, 256, 3, padding=1, groups=2), nn.MaxPool2d(3, 2, ceil_mode=True),
        *classifier(256 * 6 * 6))


def classifier(features):
    return (nn.Flatten(), nn.Linear(features, 4096), relu(), nn.Dropout(),
            nn.Linear(4096, 4096), relu(), nn.Dropout(), nn.Linear(4096, 1000))


def vgg16():
    layers, inputs = [], 3
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += conv_relu(inputs, outputs, 3, padding=1)
            inputs = outputs
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers, *classifier(512 * 7 * 7))


class GoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()

        def pool():
            return nn.MaxPool2d(3, 2, ceil_mode=True)

        def head(inputs):
            return nn.Sequential(
                nn.AvgPool2d(5, 3, ceil_mode=True), *conv_relu(inputs, 128, 1), nn.Flatten(),
                nn.Linear(2048, 1024), relu(), nn.Dropout(0.7), nn.Linear(1024, 1000))

        self.begin = nn.Sequential(
            *conv_relu(3, 64, 7, stride=2, padding=3), pool(), AcrossChannelsLRN(64),
            *conv_relu(64, 64, 1), *conv_relu(64, 192, 3, padding=1), AcrossChannelsLRN(192), pool(),
            Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), pool(),
            Inception(480, 192, 96, 208, 16, 48, 64))
        self.head1 = head(512)
        self.middle = nn.Sequential(
            Inception(512, 160, 112, 224, 24, 64, 64), Inception(512, 128, 128, 256, 24, 64, 64),
            Inception(512, 112, 144, 288, 32, 64, 64))
        self.head2 = head(528)
        self.end = nn.Sequential(
            Inception(528, 256, 160, 320, 32, 128, 128), pool(),
            Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128),
            nn.AvgPool2d(7, 1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024, 1000))

    def forward(self, x):
        a = self.begin(x)
        b = self.middle(a)
        return (self.end(b), self.head1(a), self.head2(b)) if self.training else self.end(b)


def resnet(counts, bottleneck):
    """The form of torchvision ("v1.5"): a bottleneck strides in its 3x3 convolution."""
    layers = [conv_norm(3, 64, 7, 2, activation=relu()), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        for i in range(count):
            stride = 2 if stage and i == 0 else 1
            shortcut = nn.Identity()
            if stride > 1 or inputs != outputs:
                shortcut = conv_norm(inputs, outputs, 1, stride)
            if bottleneck:
                main = nn.Sequential(
                    conv_norm(inputs, width, 1, activation=relu()),
                    conv_norm(width, width, 3, stride, activation=relu()), conv_norm(width, outputs, 1))
            else:
                main = nn.Sequential(
                    conv_norm(inputs, width, 3, stride, activation=relu()), conv_norm(width, outputs, 3))
            layers.append(Block(main, shortcut, relu()))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def mobilenet_v2():
    def relu6():
        return nn.ReLU6(inplace=True)

    layers, inputs = [conv_norm(3, 32, 3, 2, activation=relu6())], 32
    for expand, outputs, count, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                          (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            stride, hidden = first if i == 0 else 1, inputs * expand
            main = nn.Sequential(
                *([conv_norm(inputs, hidden, 1, activation=relu6())] if expand > 1 else []),
                conv_norm(hidden, hidden, 3, stride, hidden, activation=relu6()),
                conv_norm(hidden, outputs, 1))
            same = stride == 1 and inputs == outputs
            layers.append(Block(main, nn.Identity(), None) if same else main)
            inputs = outputs
    return nn.Sequential(*layers, conv_norm(320, 1280, 1, activation=relu6()), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


# ---- The table --------------------------------------------------------------------

Net = collections.namedtuple("Net", "make parameters shape classes batch")

NETS = {
    "lenet": Net(lenet, 431080, (1, 28, 28), 10, 64),
    "cifar10-full": Net(cifar10_full, 89578, (3, 32, 32), 10, 100),
    "caffenet": Net(lambda: alexnet_like(norm_first=False), 60965224, (3, 227, 227), 1000, 32),
    "alexnet": Net(lambda: alexnet_like(norm_first=True), 60965224, (3, 227, 227), 1000, 64),
    "vgg16": Net(vgg16, 138357544, (3, 224, 224), 1000, 16),
    "googlenet": Net(GoogLeNet, 13378280, (3, 224, 224), 1000, 32),
    "resnet18": Net(lambda: resnet((2, 2, 2, 2), False), 11689512, (3, 224, 224), 1000, 32),
    "resnet50": Net(lambda: resnet((3, 4, 6, 3), True), 25557032, (3, 224, 224), 1000, 32),
    "mobilenet-v2": Net(mobilenet_v2, 3504872, (3, 224, 224), 1000, 32),
}

AUXILIARY_WEIGHT = 0.3


def build(name):
    net = NETS[name].make()
    count = sum(parameter.numel() for parameter in net.parameters())
    assert count == NETS[name].parameters, f"{name} has {count} parameters"
    return net


def loss_of(outputs, labels):
    """The loss that training minimises; auxiliary heads count less."""
    if not isinstance(outputs, tuple):
        return F.cross_entropy(outputs, labels)
    main, *heads = outputs
    return F.cross_entropy(main, labels) + AUXILIARY_WEIGHT * sum(F.cross_entropy(head, labels) for head in heads)
