"""Tests that a reported checkpoint survives a power failure, and that one that could not be
written does no harm: the file is flushed before it is renamed, its name before older files
are removed, and if a call fails on the way the older files remain."""

import errno
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
PRELOAD = sys.argv.pop(1)
NET = """[net]
name = net
[data]
source = synthetic
shape = 1,8,8
classes = 4
samples = 64
batch = 8
[solver]
type = sgd
learning_rate = 0.01
[train]
iterations = 4
checkpoint_interval = 2
checkpoint_minutes = 0
keep = 1
keep_best = no
threads = 1
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""
ENOTSUPP = 524  # the kernel's own, which some file systems let through
FIRST, SECOND = "net-00000002.safetensors", "net-00000004.safetensors"


class Durability(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()
        (self.folder / "net.ini").write_text(NET, encoding="ascii")

    def train(self, *words, **environment):
        done = subprocess.run([DLCORE, "train", "net.ini", *words], cwd=self.folder,
                              check=False, timeout=120, text=True,
                              env=dict(os.environ, LD_PRELOAD=PRELOAD, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stderr

    def logged(self, *words, **environment):
        """The file operations below the folder, in order, with paths relative to it."""
        log = self.folder / "log"
        code, said = self.train(*words, FILES_LOG=str(log), **environment)
        self.assertEqual(code, 0, said)
        calls = [line.split("\t") for line in log.read_text().splitlines()]
        log.unlink()
        here = str(self.folder)
        return [(*call[:2], *(os.path.relpath(os.path.join(here, path), here)
                              for path in call[2:])) for call in calls
                if call[2].startswith(here) or not call[2].startswith(("/", "pipe:", "socket:"))]

    def names(self, folder="run"):
        return sorted(path.name for path in (self.folder / folder).iterdir() if path.name not in (".lock", "best", "last"))

    def resumes_from(self, name):
        """It is valid, and the newest checkpoint."""
        code, said = self.train("--run-dir=run", "--resume=auto", "--set=train.iterations=6",
                                "--set=train.keep=0")
        self.assertEqual(code, 0, said)
        self.assertIn(f"resumed from run/{name} ", said)


class Order(Durability):
    def test_of_a_checkpoint(self):
        calls = self.logged("--run-dir=run")
        for name in (FIRST, SECOND):
            path, part = f"run/{name}", f"run/{name}.part"
            named = calls.index(("rename", "file", part, path))
            of_part = [(i, call[0]) for i, call in enumerate(calls) if call[2] == part]
            written = [what for i, what in of_part if i < named]
            self.assertEqual(written[0], "create", calls)
            self.assertGreater(written.count("write"), 2, calls)
            self.assertEqual(written.index("fsync"), len(written) - 1, calls)
            # Nothing is written in between, and the name is flushed before the next file is
            # created and before the checkpoint that it replaces is removed.
            self.assertEqual(calls[named - 1], ("fsync", "file", part), calls)
            self.assertEqual(calls[named + 1], ("fsync", "folder", "run"), calls)
            self.assertEqual(of_part[-1][0], named, calls)
        gone = calls.index(("unlink", "file", f"run/{FIRST}"))
        self.assertGreater(gone, calls.index(("rename", "file", f"run/{SECOND}.part",
                                              f"run/{SECOND}")) + 1, calls)
        self.assertEqual(self.names(), [SECOND])

    def test_of_a_new_run_folder(self):
        """The name of each folder is flushed before anything is created in it."""
        for words, made in ((["--run-dir=deep/run"], ["deep", "deep/run"]),
                            ([f"--run-dir={self.folder}/whole/"], ["whole"]),
                            ([], ["runs", r"runs/net-[\d-]+Z"])):
            calls = self.logged(*words)
            for path in made:
                at = next(i for i, call in enumerate(calls)
                          if call[0] == "mkdir" and re.fullmatch(path, call[2]))
                parent = os.path.dirname(path) or "."
                self.assertEqual(calls[at + 1], ("fsync", "folder", parent), calls)


class Failing(Durability):
    STEPS = (  # of saving, in order
        ("create", None, errno.ENOSPC, f"cannot write run/{SECOND}.part: "),
        ("create", None, errno.EIO, f"cannot write run/{SECOND}.part: "),
        ("write", None, errno.ENOSPC, f"cannot write run/{SECOND}.part: "),
        ("write", None, errno.EIO, f"cannot write run/{SECOND}.part: "),
        ("fsync", "file", errno.EIO, f"cannot write run/{SECOND}.part: "),
        ("fsync", "file", errno.ENOSPC, f"cannot write run/{SECOND}.part: "),
        ("rename", None, errno.EIO, f"cannot write run/{SECOND}: "),
        ("rename", None, errno.ENOSPC, f"cannot write run/{SECOND}: "),
    )

    def fail(self, call, what, error, at=1, where=SECOND):
        of = {"FILES_OF": what} if what else {}
        return self.train("--run-dir=run", FILES_FAIL=call, FILES_ERROR=str(error),
                          FILES_AT=str(at), FILES_EVER="1", FILES_IN=where, **of)

    def test_steps(self):
        """The previous file is kept, nothing of this one remains, and the message names it."""
        for call, what, error, says in self.STEPS:
            for at in (1, 2, 3, 4) if call == "write" else (1,):
                with self.subTest(call=call, error=errno.errorcode[error], at=at):
                    self.setUp()
                    code, said = self.fail(call, what, error, at)
                    self.assertEqual(code, 1, said)
                    self.assertIn(says + os.strerror(error), said)
                    self.assertEqual(self.names(), [FIRST])
                    self.resumes_from(FIRST)

    def test_in_the_middle(self):
        """Training continues, and the next checkpoint is written."""
        for call, what, error, says in self.STEPS:
            with self.subTest(call=call, error=errno.errorcode[error]):
                self.setUp()
                code, said = self.fail(call, what, error, where=FIRST)
                self.assertEqual(code, 0, said)
                self.assertIn("warning: no checkpoint at iteration 2: " +
                              says.replace(SECOND, FIRST) + os.strerror(error), said)
                self.assertEqual(self.names(), [SECOND])
                self.resumes_from(SECOND)

    def test_the_name(self):
        """The new name may be lost, so the checkpoint that it replaces is kept."""
        code, said = self.fail("fsync", "folder", errno.EIO, 2, "/run")
        self.assertEqual(code, 1, said)
        self.assertIn(f"run/{SECOND} was written, but may be lost if the power fails: "
                      f"its folder cannot be flushed: {os.strerror(errno.EIO)}", said)
        self.assertEqual(self.names(), [FIRST, SECOND])
        self.resumes_from(SECOND)

    def test_what_the_file_system_lacks(self):
        """Locks and flushing that are not supported are warnings, once."""
        for call, what, says in (("fsync", "folder", "cannot be flushed"), ("fsync", "file", "cannot be flushed"),
                                 ("flock", "file", "cannot be locked")):
            for error in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, ENOTSUPP):
                with self.subTest(call=call, what=what, error=error):
                    self.setUp()
                    code, said = self.train("--run-dir=run", FILES_FAIL=call, FILES_OF=what,
                                            FILES_EVER="1", FILES_ERROR=str(error))
                    self.assertEqual(code, 0, said)
                    self.assertEqual(said.count("warning: "), 1, said)
                    self.assertIn(says, said)
                    self.assertEqual(self.names(), [SECOND])

    def test_interrupted(self):
        """Calls that a signal interrupts are made again."""
        for call in ("fsync", "flock", "write", "create"):
            for at in (1, 2, 3, 4):
                with self.subTest(call=call, at=at):
                    self.setUp()
                    code, said = self.train("--run-dir=run", FILES_FAIL=call, FILES_AT=str(at),
                                            FILES_IN=f"{self.folder}/run" if call != "create" else ".lock",
                                            FILES_ERROR=str(errno.EINTR))
                    self.assertEqual(code, 0, said)
                    self.assertNotIn("warning: ", said)
                    self.assertEqual(self.names(), [SECOND])

    def test_a_broken_disk_is_no_other_process(self):
        for call, where in (("lstat", "/.lock"), ("lstat", ".part"), ("flock", "/.lock"), ("flock", ".part")):
            with self.subTest(call=call, where=where):
                self.setUp()
                code, said = self.train("--run-dir=run", FILES_FAIL=call, FILES_IN=where, FILES_EVER="1",
                                        FILES_ERROR=str(errno.EIO))
                self.assertEqual(code, 1, said)
                self.assertIn(os.strerror(errno.EIO), said)
                self.assertNotIn("another process", said)

    def test_remaining_part(self):
        """A .part file that cannot be removed is no checkpoint and does not get in the way."""
        code, said = self.train("--run-dir=run", FILES_FAIL="rename,unlink", FILES_EVER="1",
                                FILES_IN=f"{SECOND}.part")
        self.assertEqual(code, 1, said)
        self.assertEqual(self.names(), [FIRST, f"{SECOND}.part"])
        self.resumes_from(FIRST)
        self.assertEqual(self.names(), [FIRST, SECOND, "net-00000006.safetensors"])

    def test_new_run_folder(self):
        """A parent that cannot be flushed, as on some file systems, is no error."""
        code, said = self.train("--run-dir=run", FILES_FAIL="fsync", FILES_OF="folder",
                                FILES_AT="1", FILES_ERROR=str(errno.EIO))
        self.assertEqual(code, 0, said)
        self.assertEqual(self.names(), [SECOND])

    def test_where_it_cannot_write(self):
        for call in ("write", "fsync"):
            code, said = self.train("--run-dir=run", FILES_FAIL=call, FILES_IN="/.probe-",
                                    FILES_ERROR=str(errno.ENOSPC))
            self.assertEqual(code, 1, said)
            self.assertIn("the run folder run cannot be written: " +
                          os.strerror(errno.ENOSPC), said)
            self.assertFalse((self.folder / "run").exists())


class Listing(Durability):
    """A folder that cannot be listed is not taken for an empty one."""

    def unlisted(self, at, where, folder, *words):
        before = {path: path.read_bytes() for path in self.folder.rglob("*.safetensors")}
        code, said = self.train(*words, FILES_FAIL="readdir", FILES_IN=where, FILES_EVER="1",
                                FILES_AT=str(at), FILES_ERROR=str(errno.EIO))
        self.assertEqual(code, 1, said)
        self.assertRegex(said, f"error: folder {folder} cannot be read: {os.strerror(errno.EIO)}")
        self.assertNotIn("training for", said)
        after = {path: path.read_bytes() for path in self.folder.rglob("*.safetensors")}
        self.assertEqual(after, before)

    def test_of_checkpoints(self):
        code, said = self.train("--run-dir=run")
        self.assertEqual(code, 0, said)
        for at in (1, 3):  # fails at the first entry, and after some
            for words in ([], ["--resume=auto"], ["--resume=run"]):
                with self.subTest(at=at, words=words):
                    self.unlisted(at, "/run", "run", "--run-dir=run", *words)

    def test_of_runs(self):
        code, said = self.train()
        self.assertEqual(code, 0, said)
        for at in (1, 3):
            with self.subTest(at=at):
                self.unlisted(at, f"{self.folder}/runs", "runs(/net-[0-9-]+Z)?", "--resume=auto")

    def test_while_old_ones_are_removed(self):
        """They are kept, and a warning says so."""
        calls = self.logged("--run-dir=run")
        new = calls.index(("rename", "file", f"run/{SECOND}.part", f"run/{SECOND}"))
        before = calls[:new].count(("readdir", "folder", "run"))
        self.setUp()
        code, said = self.train("--run-dir=run", FILES_FAIL="readdir", FILES_IN="/run",
                                FILES_AT=str(before + 2), FILES_EVER="1")
        self.assertEqual(code, 0, said)
        self.assertIn("warning: old checkpoints were not removed: folder run cannot be read: " +
                      os.strerror(errno.EIO), said)
        self.assertEqual(self.names(), [FIRST, SECOND])


if __name__ == "__main__":
    unittest.main(verbosity=2)
