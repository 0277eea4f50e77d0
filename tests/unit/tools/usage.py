#!/usr/bin/env python3
"""Command lines that are wrong, or that ask for what cannot be: each is refused with exit code 2
and says why, and nothing is written. Limits are tried from both sides."""

import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]

NET = """[net]
name = small
[data]
source = synthetic
samples = 24
shape = 1,6,6
classes = 4
batch = 8
[solver]
type = sgd
[train]
iterations = 2
threads = 1
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""

# What stands in front of several: the net, and weights, which are not read.
PREDICT = "predict net.ini --weights=w"

# (words of the command line, in the message)
WRONG = [
    ("train", "no net: give the path of a net.ini"),
    ("train net.ini net.ini", "'net.ini' is a second one"),
    ("train net.ini --hosts=a --hostfile=b", "the hosts are given twice"),
    ("train net.ini --hosts=a --hosts=b", "the hosts are given twice"),
    ("train net.ini --launcher=ssh", "--launcher needs --hosts or --hostfile"),
    ("train net.ini --hosts=a --launcher=", "--launcher is empty"),
    ("train net.ini --hosts=a,ab,a:1023", "a job has 1 to 1024 ranks"),
    ("train net.ini --hosts=a:1024,b", "a job has 1 to 1024 ranks"),
    ("train net.ini --weights-map=a=b", "need --weights FILE"),
    ("train net.ini --weights-skip=a", "need --weights FILE"),
    ("train net.ini --weights=w --weights-map=a", "renames no tensor"),
    ("train net.ini --ranks=0", "0 is out of range: 1 .. 1024"),
    ("train net.ini --ranks=1025", "1025 is out of range: 1 .. 1024"),
    ("node now", "dlcore node takes no arguments"),
    ("test net.ini", "which weights? Give --weights FILE"),
    ("test net.ini --weights=w --plot=a.png", "must end in .svg"),
    ("test net.ini --weights=w --plot=svg", "must end in .svg"),
    ("test net.ini --weights=w", "has no [data.test] to test on"),
    ("predict net.ini a", "which weights? Give --weights FILE"),
    (PREDICT, "predict what? Give files, a folder or a list, or --data=test"),
    (f"{PREDICT} --data=test a", "give no files as well"),
    (f"{PREDICT} --data=both", "it is test or train"),
    (f"{PREDICT} --data=test", "net.ini has no [data.test]"),
    (f"{PREDICT} --data=train --range=0:25", "there are only 24 samples"),
    (f"{PREDICT} a --range=5", "write A:B"),
    (f"{PREDICT} a --range=5:5", "write A:B"),
    (f"{PREDICT} a --range=-1:5", "write A:B"),
    (f"{PREDICT} a --range=:5", "write A:B"),
    (f"{PREDICT} a --range=1:", "write A:B"),
    (f"{PREDICT} a --range=1:5x", "write A:B"),
    (f"{PREDICT} a --threshold=1.01", "give a probability"),
    (f"{PREDICT} a --threshold=-0.01", "give a probability"),
    (f"{PREDICT} a --threshold=nan", "give a probability"),
    (f"{PREDICT} a --csv --json", "give one of --csv and --json"),
    (f"{PREDICT} a --features=ip --masks", "give one of --features and --masks"),
    (f"{PREDICT} a --features=ip --csv", "leave out --top, --threshold, --csv and --json"),
    (f"{PREDICT} a --features=ip --json", "leave out --top, --threshold, --csv and --json"),
    (f"{PREDICT} a --features=ip --top=2", "leave out --top, --threshold, --csv and --json"),
    (f"{PREDICT} a --masks --threshold=0", "leave out --top, --threshold, --csv and --json"),
    (f"{PREDICT} a --masks --json", "leave out --top, --threshold, --csv and --json"),
    ("time net.ini --order=size", "must be `time` (slowest first) or `net`"),
    ("time net.ini --ranks=2", "time measures one rank only"),
    ("data split net.ini", "where are the lists to go? Give -o PREFIX"),
    ("data split net.ini -o a --validation=0", "a number between 0 and 1"),
    ("data split net.ini -o a --validation=1", "a number between 0 and 1"),
    ("data split net.ini -o a --validation=0.1x", "a number between 0 and 1"),
    ("data preview net.ini", "which file is to be written?"),
    ("data preview net.ini -o a.jpg", "must end in .png"),
    ("data preview net.ini -o png", "must end in .png"),
    ("data preview net.ini -o a.png --count=0", "must be a whole number from 1"),
    ("data convert net.ini", "where are the shards to go? Give -o FOLDER"),
    ("data convert net.ini -o a --shard-size=0", "give a size such as 256M"),
    ("data convert net.ini -o a --resize=0", "must be a whole number from 1 to 65500"),
    ("data convert net.ini -o a --resize=65501", "must be a whole number from 1 to 65500"),
    ("data stats net.ini --test", "there is no section [data.test]"),
    ("data stat net.ini", "did you mean 'stats'"),
    ("data", "Usage: dlcore data COMMAND"),
    ("topo net.ini", "topo takes no argument"),
    ("topo --of=png", "ascii, svg or json"),
    ("topo --timeout=0", "more than 0 and up to 3600"),
    ("topo --timeout=3600.5", "more than 0 and up to 3600"),
    ("topo --timeout=nan", "more than 0 and up to 3600"),
    ("topo --timeout=5s", "more than 0 and up to 3600"),
    ("topo --from=a.xml --measure", "a recorded machine cannot be measured"),
    ("topo --nodes=2", "--nodes needs a recorded machine"),
    ("topo --from={machines}/hgx-h100.xml --ranks=9", "--ranks=9, but "),
    ("doctor now", "doctor takes no arguments"),
    ("bench", "Usage: dlcore bench comm"),
    ("bench comm now", "bench comm takes no argument"),
    ("bench comm --ranks=1", "at least two ranks"),
    ("bench comm --min=8K --max=4K", "--min is more than --max"),
    ("bench comm --min=3", "not a size from 4 to 1024G"),
    ("bench comm --max=1025G", "not a size from 4 to 1024G"),
    ("bench comm --iterations=0", "not an integer from 1 to 1000000000, or auto"),
    ("bench comm --iterations=1000000001", "not an integer from 1 to 1000000000, or auto"),
    ("bench comm --warm-up=-1", "not an integer from 1 to 1000000000, or auto"),
    ("bench comm --op=all_redcue", "did you mean 'all_reduce'?"),
    ("plan net.ini --nodes=0x2", "not a number of machines and ranks"),
    ("plan net.ini --nodes=2x0", "not a number of machines and ranks"),
    ("plan net.ini --link=0", "not a rate such as"),
    ("plan net.ini --link=-1GB/s", "not a rate such as"),
    ("plan net.ini --inside=fast", "not a rate such as"),
    ("plan net.ini --latency=5", "not a time such as 5us"),
    ("plan net.ini --speed=0", "not a number above 0"),
    ("plan net.ini --images-per-s=-1", "not a number above 0"),
    ("plan net.ini --speed=inf", "not a number above 0"),
    ("plugin", "missing action"),
    ("plugin lists", "unknown action 'lists'"),
    ("plugin list cpu", "list takes no name"),
    ("plugin list --dir=a", "--dir goes with new"),
    ("plugin inspect cpu --rescan", "--rescan goes with list"),
    ("plugin list -v", "-v goes with check"),
    ("plugin list --set=a=1", "--set, --inputs and --only go with check"),
    ("plugin list --inputs=1x1", "--set, --inputs and --only go with check"),
    ("plugin list --only=a", "--set, --inputs and --only go with check"),
    ("plugin list --device=cpu", "--device and --all go with inspect"),
    ("plugin list --all", "--device and --all go with inspect"),
    ("plugin inspect --all --device=cpu", "--all means every device"),
    ("plugin inspect", "inspect needs the name"),
    ("plugin check", "check needs a file"),
    ("plugin check a b", "'b' is one argument too many"),
    ("plugin inspect a b c", "'c' is one argument too many"),
    ("plugin new data", "new needs a kind"),
    ("plugin new data a --json", "--json goes with list, inspect and check"),
    ("plugin check a" + 65 * " --set=a=1", "--set is given more than"),
    ("plugin check a" + 65 * " --inputs=1x1", "--inputs is given more than"),
]

# What is just allowed: the command starts, and ends as it may.
RIGHT = [
    "plugin inspect cpu",
    "plugin inspect --all",
    "topo --timeout=3600 --of=json",
    "topo --from={machines}/hgx-h100.xml --ranks=8",
    "topo --from={machines}/hgx-h100.xml --nodes=2",
    "data stats net.ini",
]


class Usage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "net.ini").write_text(NET)
        cls.machines = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "tests/topology/machines"

    def run_it(self, words):
        return subprocess.run([BIN, *words.format(machines=self.machines).split()],
                              cwd=self.folder, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)

    def test_wrong(self):
        for words, says in WRONG:
            with self.subTest(words):
                done = self.run_it(words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(says, " ".join(done.stderr.split()))
                self.assertEqual([path.name for path in self.folder.iterdir()], ["net.ini"])

    def test_right(self):
        for words in RIGHT:
            with self.subTest(words):
                done = self.run_it(words)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
