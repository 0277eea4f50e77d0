#!/usr/bin/env python3
"""The checks that run.sh runs: each is a function that returns a sentence, raises Failed, or
raises NotRun with the reason. When time is up the remaining ones are skipped.

    checks.py BUNDLE OUT [PATTERN...]

Patterns are regular expressions: only checks whose name one of them finds are run. What
a failed check printed is kept whole in OUT/failures.txt. With STANDIN=cpu in the
environment the CPU stands in for the GPU, so that the checks themselves can be tried
where there is none (PyTorch and what needs CUDA fail then).
"""
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

BUNDLE, OUT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
DLCORE, MODELS, DATA = BUNDLE / "bin/dlcore", BUNDLE / "models", BUNDLE / "data"
WORK = OUT / "work"
ONLY = [re.compile(pattern) for pattern in sys.argv[3:]]
SECONDS = float(os.environ.get("SECONDS_IN_ALL", "460"))
BEGAN = time.monotonic()
STANDIN = os.environ.get("STANDIN")
ON_GPU = f"--device={STANDIN}" if STANDIN else "--gpu=0"


class Failed(Exception):
    def __init__(self, sentence, text=""):
        super().__init__(sentence)
        self.text = text


class NotRun(Exception):
    pass


def left():
    return SECONDS - (time.monotonic() - BEGAN)


def run(command, seconds=60, environment=None, ok=(0,)):
    """Runs a command and returns its stdout and stderr together."""
    seconds = min(seconds, left())
    if seconds < 5:
        raise NotRun("no time left")
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, env={**os.environ, **(environment or {})}, cwd=WORK)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{pathlib.Path(command[0]).name} took more than {seconds:.0f} s",
                     (late.stdout or b"").decode(errors="replace")) from None
    except FileNotFoundError:
        raise NotRun(f"{command[0]} is not installed") from None
    if done.returncode not in ok:
        raise Failed(f"exit code {done.returncode}: {last_lines(done.stdout)}", done.stdout)
    return done.stdout


def last_lines(text, count=4):
    return " / ".join(line for line in text.strip().splitlines()[-count:])[-700:]


def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed(f"no JSON in: {last_lines(text)}")


def gpu():
    """Raises NotRun, with dlcore's own reason, if there is no GPU."""
    if STANDIN:
        return
    lines = run([DLCORE, "plugin", "list"]).splitlines()
    line = next((line for line in lines if line.split()[:2] == ["device", "cuda"]), "the device cuda is not in the bundle")
    try:
        count = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        count = 0
    if not count:
        raise NotRun("no GPU; dlcore says: " + " ".join(line.split()))


def tensors(folder):
    path = sorted(glob.glob(f"{folder}/*.safetensors"))[-1]
    data = pathlib.Path(path).read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


def fashion(which):
    images, labels = ("train", "train") if which == "data" else ("t10k", "t10k")
    return [f"--set={which}.images={DATA}/{images}-images-idx3-ubyte.gz",
            f"--set={which}.labels={DATA}/{labels}-labels-idx1-ubyte.gz"]


def train(net, *options, folder=None, seconds=90, environment=None):
    folder = folder or WORK / "run"
    shutil.rmtree(folder, ignore_errors=True)
    text = run([DLCORE, "train", net, "--json", f"--run-dir={folder}", *options], seconds, environment)
    return {**last_json(text), "text": text}


# ---- Installation -----------------------------------------------------------------


def installation():
    (OUT / "doctor.txt").write_text(run([DLCORE, "doctor"], ok=range(256)))
    listed = run([DLCORE, "plugin", "list"])
    (OUT / "plugins.txt").write_text(listed)
    return f"{len(listed.splitlines())} lines of plugins; doctor.txt, plugins.txt"


def libraries_are_found():
    found = []
    for name in ("libcudnn.so.9", "libnccl.so.2", "libcublasLt.so.13", "libcublasLt.so.12"):
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
            if folder and (pathlib.Path(folder) / name).exists():
                found.append(f"{name} in {folder}")
                break
    if len(found) < 3:
        raise Failed("found only: " + "; ".join(found))
    return "; ".join(found)


def topology():
    gpu()
    text = run([DLCORE, "topo"])
    (OUT / "topo.txt").write_text(text)
    return "topo.txt"


# ---- Conformance ------------------------------------------------------------------


def conformance(program):
    def check():
        gpu()
        if not (BUNDLE / "tests" / program).exists():
            raise NotRun("not in the bundle")
        environment = {"DLCORE_TEST_DEVICE": STANDIN or "cuda", "DLCORE_BUILD_DIR": str(BUNDLE)}
        text = run([BUNDLE / "tests" / program], 60, {**environment, "CK_FORK": "no"}, ok=range(-64, 256))
        if "Failures: 0, Errors: 0" not in text:  # each test in a process, so that a crash doesn't hide the others
            text = run([BUNDLE / "tests" / program], 90, {**environment, "CK_FORK": "yes"}, ok=(77,))
        return last_lines(text, 1)
    return check


def plugin_check(name, standin):
    def check():
        gpu()
        file = BUNDLE / "lib/dlcore/0" / f"{standin if STANDIN else name}.so"
        text = run([DLCORE, "plugin", "check", file], 180, ok=range(256))  # some layers need settings, and are not run
        if " 0 failed, " not in last_lines(text, 1):
            raise Failed(last_lines(text, 1), text)
        return last_lines(text, 1)
    return check


def speed():
    gpu()
    text = run([BUNDLE / "tests/device_speed", "cuda"], 60)
    (OUT / "speed.txt").write_text(text)
    slow = [line for line in text.splitlines() if "BELOW" in line]
    if slow:
        raise Failed("; ".join(slow))
    return last_lines(text, 12)


def speed_of_updates():
    gpu()
    text = run([BUNDLE / "tests/update_speed", "cuda", "1", "sgd", "adamw", "rmsprop"], 60)
    (OUT / "updates.txt").write_text(text)
    slow = [line for line in text.splitlines() if "BELOW" in line and " 16 M" in line and "update_to" not in line]
    if slow:
        raise Failed("; ".join(slow))
    return last_lines(text, 12)


def speed_of_batch_norm():
    gpu()
    text = run([BUNDLE / "tests/norm_speed"], 60) + run([BUNDLE / "tests/norm_speed", "256", "float32"], 60)
    (OUT / "norms.txt").write_text(text)
    return "; ".join(line for line in text.splitlines() if line.startswith(("copy", "all")))


# ---- Training ---------------------------------------------------------------------

LENET = [MODELS / "lenet-fashion.ini", *fashion("data"), *fashion("data.test")]
CIFAR = [MODELS / "cifar10-full.ini", f"--set=data.folder={DATA}", "--set=data.files=data_batch_1.bin", f"--set=data.test.folder={DATA}"]


def same_accuracy(options, points, *more):
    def check():
        gpu()
        if options is CIFAR and not (DATA / "data_batch_1.bin").exists():
            raise NotRun("CIFAR-10 was not at hand for the bundle")
        on_cpu = train(*options, "--device=cpu", *more, folder=WORK / "cpu", seconds=120)["accuracy"]
        on_gpu = train(*options, ON_GPU, *more, folder=WORK / "gpu")
        sentence = f"cpu {on_cpu:.4f}, cuda {on_gpu['accuracy']:.4f}; {on_gpu['images_per_s']:.0f} images/s"
        if abs(on_cpu - on_gpu["accuracy"]) > points / 100:
            raise Failed(sentence)
        return sentence
    return check


def checkpoints_move():
    gpu()
    if not (WORK / "cpu").exists() or not (WORK / "gpu").exists():
        raise NotRun("no checkpoints were made")
    accuracy = {}
    for made in ("cpu", "gpu"):
        weights = sorted(glob.glob(f"{WORK}/{made}/*.safetensors"))[-1]
        for on in ("--device=cpu", ON_GPU):
            text = run([DLCORE, "test", *LENET, f"--weights={weights}", on, "--json"])
            accuracy[made, on] = last_json(text)["accuracy"]
    for made in ("cpu", "gpu"):
        if abs(accuracy[made, "--device=cpu"] - accuracy[made, ON_GPU]) > 0.001:
            raise Failed(str(accuracy))
    return "; ".join(f"made on {made}, {on[2:]}: {value:.4f}" for (made, on), value in accuracy.items())


def repeats(precision):
    def check():
        gpu()
        for i in range(2):
            train(*LENET, ON_GPU, "--iterations=60", f"--set=train.precision={precision}", folder=WORK / f"again{i}")
        if tensors(WORK / "again0") != tensors(WORK / "again1"):
            raise Failed("two runs give different weights")
        return "two runs are bitwise identical"
    return check


def captured_or_not():
    gpu()
    for capture in ("true", "false"):
        result = train(*LENET, ON_GPU, "--iterations=60", f"--set=train.capture={capture}", folder=WORK / capture)
        if capture == "true" and "iterations are captured" not in result["text"]:
            raise Failed(last_lines(result["text"], 12))
    if tensors(WORK / "true") != tensors(WORK / "false"):
        raise Failed("with and without capture, weights differ")
    return "with and without capture: bitwise identical"


# ---- Several processes on one GPU ---------------------------------------------------


def same_weights(ranks):
    def check():
        gpu()
        for transport in ("p2p-tree", "host-staged"):
            train(*LENET, ON_GPU, f"--ranks={ranks}", f"--transport={transport}", "--iterations=60",
                  folder=WORK / transport)
        if tensors(WORK / "p2p-tree") != tensors(WORK / "host-staged"):
            raise Failed("p2p-tree and host-staged give different weights")
        return "p2p-tree and host-staged are bitwise identical"
    return check


def stream_ordered():
    """The gradient exchange is stream-ordered, and part of the captured graph."""
    gpu()
    for how in ("direct", "tree"):
        for capture in ("true", "false"):
            result = train(*LENET, ON_GPU, "--ranks=4", "--transport=p2p-tree", "--iterations=60", f"--set=transport.schedule={how}",
                           "--set=transport.overlap_forward=no", f"--set=train.capture={capture}", folder=WORK / f"{how}-{capture}")
            if not STANDIN and "stream-ordered" not in result["text"]:
                raise Failed("not stream-ordered: " + last_lines(result["text"], 12))
            if not STANDIN and capture == "true" and "iterations are captured" not in result["text"]:
                raise Failed(last_lines(result["text"], 12))
    weights = [tensors(WORK / f"{how}-{capture}") for how in ("direct", "tree") for capture in ("true", "false")]
    if any(one != weights[0] for one in weights):
        raise Failed("direct and tree, with and without capture, give different weights")
    return "direct and tree, with and without capture: bitwise identical"


def stale_by_nothing(ranks, solver):
    """Without staleness, shards in memory of the GPU give the weights of synchronous training."""
    def check():
        gpu()
        rule = (f"--solver={solver}", "--set=solver.learning_rate=0.001") if solver != "sgd" else ()
        common = (*LENET, *rule, ON_GPU, f"--ranks={ranks}", "--iterations=60")
        if rule:
            common = (without(common[0], "momentum"), *common[1:])
        train(*common, "--transport=p2p-tree", folder=WORK / "synchronous")
        for transport in ("p2p-tree", "host-staged"):
            train(*common, f"--transport={transport}", "--consistency=ssp", folder=WORK / "ssp")
            if tensors(WORK / "ssp") != tensors(WORK / "synchronous"):
                raise Failed(f"{transport}: ssp without staleness and synchronous training give different weights")
        return "ssp without staleness and synchronous training are bitwise identical"
    return check


def without(net, key):
    """The net without a setting that the solver does not have."""
    path = WORK / f"without-{key}.ini"
    path.write_text(re.sub(rf"(?m)^{key} = .*\n", "", net.read_text()))
    return path


def stale(*options):
    def check():
        gpu()
        result = train(*LENET, ON_GPU, "--ranks=3", "--consistency=ssp", "--set=consistency.staleness=2",
                       "--set=solver.learning_rate=0.005", "--iterations=300", *options)
        if "clocks stale" not in result["text"] or not result["accuracy"] > 0.6:
            raise Failed(last_lines(result["text"], 12))
        return f"accuracy {result['accuracy']:.4f}; staleness of reads {result['staleness']}"
    return check


SPLIT = [f"--set={layer}.parallel=tensor" for layer in ("conv2", "ip1", "ip2")]
SPLIT_NAMES = "conv2, ip1, ip2"


def divided(ranks, width, *options):
    """A net whose layers are split over tensor groups, also in stages, trains as the whole
    one, up to the order of sums, and twice the same."""
    def check():
        gpu()
        common = (*LENET, ON_GPU, "--transport=p2p-tree", "--scaling=strong", "--set=data.batch=60", "--iterations=60")
        whole = train(*common, folder=WORK / "whole")
        for again in range(2):
            result = train(*common, *SPLIT, f"--ranks={ranks}", f"--set=parallel.tensor={width}", *options,
                           folder=WORK / f"split{again}")
        if f"split over {width} ranks by channels: {SPLIT_NAMES}" not in result["text"]:
            raise Failed(last_lines(result["text"], 12))
        if tensors(WORK / "split0") != tensors(WORK / "split1"):
            raise Failed("two runs give different weights")
        losses = f"test loss {whole['test_loss']:.5f} whole, {result['test_loss']:.5f} split"
        if abs(whole["test_loss"] - result["test_loss"]) > 2e-3:
            raise Failed(losses)
        return losses
    return check


def global_statistics():
    """The statistics of batch_norm over all ranks, captured and by messages: the loss of one."""
    gpu()
    net = WORK / "normed.ini"
    net.write_text(LENET[0].read_text().replace(
        "[pool1]", "[norm1]\ntype = batch_norm\nstatistics = global\n[pool1]"))
    common = (net, *LENET[1:], ON_GPU, "--scaling=strong", "--set=data.batch=60", "--iterations=15")
    one = train(*common, folder=WORK / "one")["test_loss"]
    found = []
    for more in (("--ranks=2", "--transport=p2p-tree"), ("--ranks=2", "--transport=host-staged"),
                 ("--ranks=3", "--set=parallel.batch_split=3,1,2")):
        found.append(train(*common, *more, folder=WORK / "several")["test_loss"])
    sentence = f"test loss {one:.5f} of one rank, " + ", ".join(f"{loss:.5f}" for loss in found) + " of several"
    if any(abs(loss - one) > 2e-3 for loss in found):
        raise Failed(sentence)
    return sentence


def upsampled():
    """A net with deconvolution and upsample learns to mark shapes in made-up images."""
    gpu()
    found = []
    for precision in ("float32", "tf32", "bf16", "fp16"):
        result = train(BUNDLE / "examples/fields/unet.ini", ON_GPU, f"--set=train.precision={precision}")
        found.append(f"{precision} {result['accuracy']:.4f}")
        if not result["accuracy"] > 0.94:
            raise Failed("; ".join(found))
    return "; ".join(found)


def folded_or_not():
    """The first convolution of ResNet-18, over blocks of pixels where factors are rounded:
    the loss after eight updates of float32, which does not fold it."""
    gpu()
    options = [synthetic("resnet18", 8), ON_GPU, "--iterations=8", "--set=solver.learning_rate=0.002", "--set=train.checkpoint_last=no",
               "--set=train.checkpoint_minutes=0", "--set=train.test_interval=1000000000"]
    loss = {precision: train(*options, f"--set=train.precision={precision}")["training_loss"] for precision in ("float32", "tf32", "bf16", "fp16")}
    sentence = ", ".join(f"{precision} {value:.4f}" for precision, value in loss.items())
    if any(abs(value - loss["float32"]) > 0.03 for value in loss.values()):
        raise Failed(sentence)
    return sentence


def nccl_of_two():
    gpu()
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29571", "LOCAL_RANK": "0",
              "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0"}
    command = [str(word) for word in
               (DLCORE, "train", *LENET, ON_GPU, "--transport=nccl", "--iterations=60", f"--run-dir={WORK}/nccl")]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=WORK,
                              env={**os.environ, **common, "RANK": str(r), "NCCL_HOSTID": f"host{r}"}) for r in range(2)]
    texts = []
    for rank in ranks:
        try:
            texts.append(rank.communicate(timeout=min(60, max(5, left())))[0])
        except subprocess.TimeoutExpired:
            for other in ranks:
                other.kill()
            raise Failed("took too long") from None
    if any(rank.returncode for rank in ranks):
        raise Failed(" | ".join(last_lines(text) for text in texts))
    return last_lines(texts[0], 2)


def killed(transport):
    def check():
        gpu()
        child = subprocess.Popen([str(word) for word in (DLCORE, "train", *LENET, ON_GPU, "--ranks=2",
                                                         f"--transport={transport}", "--epochs=1000")],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=WORK)
        time.sleep(8)
        victims = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()
        if not victims:
            child.kill()
            raise Failed("no rank to kill: " + last_lines(child.communicate()[0]))
        begin = time.monotonic()
        os.kill(int(victims[-1]), signal.SIGKILL)
        try:
            text = child.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            raise Failed("the job went on for 10 s after a rank was killed") from None
        took = time.monotonic() - begin
        if child.returncode != 5 or took > 2.5:
            raise Failed(f"exit code {child.returncode} after {took:.1f} s: {last_lines(text)}")
        return f"reported after {took:.2f} s: {last_lines(text, 2)}"
    return check


# ---- compute-sanitizer ----------------------------------------------------------------


def sanitized(tool, *options):
    def check():
        gpu()
        if not shutil.which("compute-sanitizer"):
            raise NotRun("compute-sanitizer is not installed")
        text = run(["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "99", DLCORE,
                    "train", *LENET, ON_GPU, "--iterations=3", "--set=train.checkpoint_last=no", "--set=train.checkpoint_minutes=0", *options], 60)
        return next((line for line in text.splitlines() if "ERROR SUMMARY" in line), "nothing found")
    return check


# ---- Comparison with PyTorch ------------------------------------------------------------

SHAPES = {"lenet": ("1,28,28", 10), "cifar10-full": ("3,32,32", 10)}
BARS = {("resnet50", "eager"): 1.3, ("resnet50", "compiled"): 1.1, ("lenet", "eager"): 4.0, ("cifar10-full", "eager"): 4.0}
CONTESTS = {("resnet50", 256): 100, ("resnet50", 64): 300, ("lenet", 64): 20000, ("cifar10-full", 100): 5000, ("alexnet", 64): 400,
            ("vgg16", 64): 120}  # iterations
TUNED = "--set=train.autotune=yes"  # as PyTorch is, by cudnn.benchmark
peers, rows = {}, []


def synthetic(net, batch):
    """A net.ini that trains on synthetic samples without tests, at a learning rate small enough
    for the loss to stay finite."""
    shape, classes = SHAPES.get(net, ("3,227,227" if net == "alexnet" else "3,224,224", 1000))
    text = re.sub(r"(?ms)^\[data\.test\].*?(?=^\[)", "", (MODELS / f"{net}.ini").read_text())
    data = (f"[data]\nsource = synthetic\nkind = noise\nshape = {shape}\nclasses = {classes}\n"
            f"samples = {4 * batch}\nbatch = {batch}\ntransforms = normalize(scale=0.00390625)\n\n")
    text = re.sub(r"(?ms)^\[data\].*?(?=^\[)", data, text)
    path = WORK / f"{net}-{batch}.ini"
    path.write_text(text)
    return path


def ours(net, batch, precision, iterations):
    result = train(synthetic(net, batch), ON_GPU, f"--iterations={iterations}", f"--set=train.precision={precision}",
                   "--set=train.checkpoint_last=no", "--set=train.checkpoint_minutes=0", "--set=train.test_interval=1000000000", "--set=solver.learning_rate=0.0001", TUNED, seconds=60)
    return result["images_per_s"], result["first_iteration_seconds"]


def theirs(precision, compiled, nets):
    """All nets of a precision in one process, since it takes long to start."""
    if (precision, compiled) not in peers:
        peers[precision, compiled] = {}
        words = [sys.executable, BUNDLE / "torch_gpu.py", "--precision", precision] + ["--compile"] * compiled
        text = run(words + [f"{net}:{batch}" for net, batch in nets], 150)
        for line in text.splitlines():
            if line.startswith("{"):
                one = json.loads(line)
                peers[precision, compiled][one["net"], one["batch"]] = one
    return peers[precision, compiled]


def side_by_side(net, batch, precision, compiled, nets):
    def check():
        gpu()
        peer = theirs(precision, compiled, nets).get((net, batch))
        if not peer:
            raise NotRun("PyTorch did not get that far")
        mine, start = ours(net, batch, precision, CONTESTS[net, batch])
        kind, speed_of_peer = "compiled" if compiled else "eager", peer["images_per_s"]
        bar = BARS.get((net, kind), 1.0)
        ratio = mine / speed_of_peer
        rows.append((net, batch, precision, kind, mine, speed_of_peer, ratio, bar, start, peer["first_step_seconds"],
                     peer["peak_bytes"]))
        sentence = f"{mine:.0f} against {speed_of_peer:.0f} images/s: {ratio:.2f} times (bar {bar})"
        if ratio < bar:
            raise Failed(sentence)
        return sentence
    return check


def residual_net():
    """Batch norms and forks, which neither LeNet nor cifar10-full has: the loss after eight
    updates. Gradients of forks that are not added would change it by 0.037."""
    gpu()
    options = [synthetic("resnet18", 8), "--iterations=8", "--set=solver.learning_rate=0.002", "--set=train.checkpoint_last=no", "--set=train.checkpoint_minutes=0",
               "--set=train.test_interval=1000000000"]
    on_cpu, on_gpu = train(*options, "--device=cpu", seconds=120)["training_loss"], train(*options, ON_GPU)["training_loss"]
    sentence = f"loss: cpu {on_cpu:.4f}, cuda {on_gpu:.4f}"
    if not abs(on_cpu - on_gpu) <= 0.005:
        raise Failed(sentence)
    return sentence


def times(net, batch, precision):
    """Times of the layers, to see where a comparison is lost."""
    def check():
        gpu()
        text = run([DLCORE, "time", synthetic(net, batch), ON_GPU, f"--set=train.precision={precision}", TUNED], 60)
        with open(OUT / "times.txt", "a") as file:
            file.write(f"==== {net} b{batch}, {precision}\n{text}\n")
        return last_lines(text, 1)
    return check


def contests():
    for precision, compiled, nets in (("fp16", False, CONTESTS), ("bf16", False, CONTESTS), ("tf32", False, CONTESTS),
                                      ("fp16", True, [("resnet50", 256)])):
        for net, batch in nets:
            yield (f"{net} b{batch}, {precision}" + ", torch.compile" * compiled,
                   side_by_side(net, batch, precision, compiled, list(nets)))


def checks():
    yield "installation", installation
    yield "libraries", libraries_are_found
    yield "topology", topology
    for program in sorted(path.name for path in (BUNDLE / "tests").glob("test_*")):
        yield f"conformance: {program}", conformance(program)
    yield "plugin check: device-cuda", plugin_check("device-cuda", "device-cpu")
    yield "speed of kernels", speed
    yield "speed of updates", speed_of_updates
    yield "speed of batch_norm", speed_of_batch_norm
    yield "LeNet, Fashion-MNIST", same_accuracy(LENET, 0.5)
    yield "checkpoints move", checkpoints_move
    yield "captured iterations", captured_or_not
    for precision in ("float32", "tf32", "bf16", "fp16"):
        yield f"twice the same, {precision}", repeats(precision)
    yield "cifar10-full, a tenth of CIFAR-10", same_accuracy(CIFAR, 3.0, "--iterations=500", "--set=train.test_interval=500")
    yield "residual net", residual_net
    yield "folded first convolution", folded_or_not
    yield "deconvolution and upsample", upsampled
    yield "two processes", same_weights(2)
    yield "four processes", same_weights(4)
    yield "four processes, p2p-tree stream-ordered", stream_ordered
    for solver in ("sgd", "adam"):
        yield f"ssp without staleness, {solver}", stale_by_nothing(2, solver)
    yield "ssp, staleness 2", stale()
    yield "ssp, staleness 2, a server", stale("--set=consistency.servers=1")
    groups = ("--ranks=4", "--scaling=strong", "--set=parallel.tensor=2", "--set=parallel.tensor_schedule=whole_batch", *SPLIT)
    yield "ssp, staleness 2, tensor groups", stale(*groups)
    yield "ssp, staleness 2, tensor groups, clipping", stale(*groups, "--set=solver.clip_gradients=1")
    yield "ssp, staleness 2, stages", stale("--ranks=4", "--scaling=strong", "--set=parallel.pipeline=ip1")
    for ranks, schedule in ((2, "whole_batch"), (3, "by_rank"), (2, "chunked")):
        yield (f"tensor parallel, {ranks} ranks, {schedule}",
               divided(ranks, ranks, f"--set=parallel.tensor_schedule={schedule}"))
    yield "data 2 x tensor 2", divided(4, 2, "--set=parallel.tensor_schedule=whole_batch")
    yield "pipeline 2 x tensor 2", divided(4, 2, "--set=parallel.pipeline=ip1")
    yield "global statistics", global_statistics
    yield "nccl, two ranks", nccl_of_two
    for transport in ("p2p-tree", "host-staged"):
        yield f"killed: {transport}", killed(transport)
    yield "memcheck", sanitized("memcheck")
    yield "memcheck, p2p-tree", sanitized("memcheck", "--ranks=2", "--transport=p2p-tree")
    yield "initcheck", sanitized("initcheck")
    yield from contests()
    for net, batch, precision in (("resnet50", 256, "fp16"), ("alexnet", 64, "bf16"), ("lenet", 64, "bf16")):
        yield f"times: {net} b{batch}, {precision}", times(net, batch, precision)
    yield "plugin check: layers-cudnn", plugin_check("layers-cudnn", "layers-onednn")


def write_report(results):
    counts = {word: sum(1 for _, word_, _, _ in results if word_ == word) for word in ("passed", "failed", "not run")}
    try:
        machine = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
                                 capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        machine = "no GPU"
    commit = (BUNDLE / "commit").read_text().strip()
    lines = ["# On a GPU", "", f"{machine}; commit {commit}, {time.strftime('%Y-%m-%d')}; tests/gpu/run.sh, {time.monotonic() - BEGAN:.0f} s.", "",
             "| check | | | s |", "| --- | --- | --- | ---: |"]
    lines += [f"| {name} | {word} | {text.replace('|', '/')} | {seconds:.1f} |" for name, word, text, seconds in results]
    if rows:
        lines += ["", "| net | batch | precision | PyTorch | dlcore, images/s | PyTorch, images/s | ratio | bar | first step, s: dlcore | PyTorch | PyTorch's peak, GB |",
                  "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
        lines += [f"| {net} | {batch} | {precision} | {kind} | {mine:,.0f} | {peer:,.0f} | {ratio:.2f} | {bar} | {start:.2f} | {peer_start:.2f} | {peak / 1e9:.2f} |"
                  for net, batch, precision, kind, mine, peer, ratio, bar, start, peer_start, peak in rows]
    (OUT / "report.md").write_text("\n".join(lines) + "\n")
    (OUT / "report.json").write_text(json.dumps(dict(machine=machine, commit=commit, results=results, rows=rows), indent=1))
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["failed"] else 0


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    results = []
    for name, check in checks():
        if ONLY and not any(pattern.search(name) for pattern in ONLY):
            continue
        begin = time.monotonic()
        try:
            word, text = "passed", check() or ""
        except NotRun as reason:
            word, text = "not run", str(reason)
        except Failed as reason:
            word, text = "failed", str(reason)
            with open(OUT / "failures.txt", "a") as file:
                file.write(f"==== {name}: {reason}\n{reason.text}\n")
        except Exception as error:  # a broken check counts as failed
            word, text = "failed", f"{type(error).__name__}: {error}"
        results.append((name, word, " ".join(text.split()), time.monotonic() - begin))
        print(f"{word:8} {name}: {results[-1][2][:160]}", flush=True)
    shutil.rmtree(WORK, ignore_errors=True)
    return write_report(results)


if __name__ == "__main__":
    sys.exit(main())
