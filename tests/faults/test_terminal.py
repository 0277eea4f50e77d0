"""Output is safe for a terminal whatever names, values and paths contain, and a failure to
write it is reported."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
# A colour, a window title, C1's CSI, right-to-left text, a forged line, invalid UTF-8.
EVIL = "\x1b[31mred\x1b]0;x\a \u009b31m \u202egnp.exe \u2066x\nerror: done\r".encode() + b"\xff"
UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
NET = """[net]
name = {name}
[data]
source = synthetic
shape = 1,8,8
classes = 4
samples = 64
batch = 8
[data.test]
source = synthetic
shape = 1,8,8
classes = 4
samples = 64
[solver]
type = sgd
{solver} = 0.01
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


class Terminal(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.fsencode(holder.name)

    def run_command(self, *words, **environment):
        done = subprocess.run([DLCORE, *words], cwd=self.folder, check=False, timeout=120,
                              env=dict(os.environ, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def expect_fit(self, code, *words, shows=None, **environment):
        found, out, err = self.run_command(*words, **environment)
        for text in (out, err):
            text = text.decode("utf-8")  # which fails if it is not UTF-8
            self.assertIsNone(UNFIT.search(text), (words, text))
            self.assertNotIn("\nerror: done", text, words)
        self.assertEqual(found, code, (words, out, err))
        if shows:
            self.assertIn(shows, out + err)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text)
        return path

    def net(self, name=b"good", solver=b"learning_rate"):
        return (NET.encode().replace(b"{name}", name)
                .replace(b"{solver}", solver))

    def test_paths_and_words(self):
        self.write(b"net.ini", self.net())
        evil = EVIL.replace(b"/", b"")
        for words in ((b"check", evil), (b"train", evil), (b"time", evil), (b"plan", evil),
                      (b"test", b"net.ini", b"--weights", evil),
                      (b"train", b"net.ini", b"--resume", evil),
                      (b"plugin", b"inspect", evil), (evil,), (b"plugin", evil),
                      (b"train", b"net.ini", b"--" + evil),
                      (b"train", b"net.ini", b"--transport", evil),
                      (b"check", b"net.ini", b"--set", evil),
                      (b"check", b"net.ini", b"--set", b"ip.num_output=" + evil),
                      (b"topo", b"--from", evil)):
            if words[-1][:2] == b"--" or words[0] == b"plugin":  # argp prints these itself
                words = (*words[:-1], words[-1].replace(b"\n", b""))
            code, out, err = self.run_command(*words)
            self.assertNotEqual(code, 0, words)
            self.expect_fit(code, *words, shows=b"[31m")

    def test_what_a_net_holds(self):
        line = EVIL.replace(b"\n", b" ").replace(b"\r", b" ")
        for text in (self.net(name=line), self.net(solver=line),
                     self.net() + b"[" + line + b"]\ntype = relu\n",
                     self.net() + b"[a]\ntype = " + line + b"\n",
                     self.net() + b"[train]\nrun_dir = " + line + b"\nmore = 1\n"):
            self.write(b"net.ini", text)
            self.expect_fit(2, "check", "net.ini")

    def test_a_good_net_at_an_odd_path(self):
        path = self.write(EVIL.replace(b"/", b""), self.net())
        self.expect_fit(0, b"check", path)
        self.expect_fit(0, b"train", path, b"--iterations=2", b"--set",
                        b"train.checkpoint_last=no", b"--set", b"train.checkpoint_minutes=0",
                        b"--log-file", b"log")
        for text in pathlib.Path(os.fsdecode(self.folder), "log").read_bytes().splitlines():
            self.assertIsNone(UNFIT.search(text.decode("utf-8")), text)
            json.loads(text)

    def test_the_environment(self):
        self.write(b"net.ini", self.net())
        folder = os.path.join(self.folder, EVIL.replace(b"/", b"").replace(b":", b""))
        os.mkdir(folder, 0o777)
        os.chmod(folder, 0o777)
        self.expect_fit(0, "plugin", "list",
                        DLCORE_PLUGIN_PATH=os.environ["DLCORE_PLUGIN_PATH"] + ":"
                        + os.fsdecode(folder))

    def test_a_full_disk_behind_stdout(self):
        lenet = SOURCE / "models/lenet.ini"
        for words in (["--help"], ["--version"], ["train", "--help"], ["plugin", "list"],
                      ["plugin", "inspect", "sgd"], ["check", lenet],
                      ["check", lenet, "--json"], ["topo"], ["topo", "--of", "json"],
                      ["doctor"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([DLCORE, *words], stdout=full, cwd=self.folder,
                                      stderr=subprocess.PIPE, check=False, timeout=120)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(b"No space left on device", done.stderr, words)

    def test_closed_descriptors(self):
        """No file that is opened later becomes stdout or stderr."""
        self.write(b"net.ini", self.net())
        for words in (["check", "net.ini"], ["time", "net.ini", "--passes=5"],
                      ["train", "net.ini", "--iterations=2"]):
            done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&- 2>&-', DLCORE, *words,
                                   "--log-file=log"], cwd=self.folder, check=False,
                                  timeout=120)
            self.assertEqual(done.returncode, 1, words)
            for line in pathlib.Path(os.fsdecode(self.folder), "log").read_text(
                    encoding="utf-8").splitlines():
                self.assertIn("event", json.loads(line), words)

    def test_a_reader_that_left(self):
        """A closed pipe does not look like a lost rank."""
        for words in (["topo"], ["topo", "--json"], ["bench", "comm", "--max=4K"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([DLCORE, *words], stdout=writer, cwd=self.folder,
                                  stderr=subprocess.PIPE, check=False, timeout=120)
            os.close(writer)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(b"writing to stdout: Broken pipe", done.stderr, words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
