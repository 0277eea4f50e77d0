"""A job reports once why it failed: ranks that fail for the same reason, or because of another
rank, are silent. The rank is named only if the failure is its own. A control channel on which
sending fails, at either end, ends the job at once."""

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DLCORE = os.environ["DLCORE_BIN"]
PRELOAD = sys.argv.pop(1) if len(sys.argv) > 1 else None
NET = """[net]
name = net
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
learning_rate = 0.01
[train]
iterations = 4
checkpoint_last = no
keep_best = no
[parallel]
hang_timeout = 60
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


class Jobs(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        with open(os.path.join(self.folder, "net.ini"), "w", encoding="ascii") as file:
            file.write(NET)

    def train(self, *words, **environment):
        """The exit code, the lines of stderr with errors, and all of stderr."""
        done = subprocess.run([DLCORE, "train", "net.ini", *words], cwd=self.folder,
                              check=False, timeout=120, text=True,
                              env=dict(os.environ, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        errors = [line for line in done.stderr.splitlines() if "error: " in line]
        return done.returncode, errors, done.stderr

    def test_all_ranks_fail_alike(self):
        with open(os.path.join(self.folder, "junk"), "wb") as file:
            file.write(b"\xff" * 64)
        for code, says, words in (
                (1, "the run folder /proc/x cannot be created", ["--run-dir=/proc/x"]),
                (2, "cannot connect these ranks", ["--transport=mpi"]),
                (4, "not a safetensors file", ["--weights=junk"]),
                (4, "takes safetensors files", ["--weights=net.ini"]),
                (4, "none", ["--weights=none"]),
                (2, "4 ranks cannot be split", ["--set=parallel.pipeline=9"]),
                (2, "none", ["--set=solver.type=none"])):
            with self.subTest(words=words):
                found, errors, said = self.train("--ranks=4", *words)
                self.assertEqual(found, code, said)
                self.assertEqual(len(errors), 1 + said.count("error: 1 mistake"), said)
                self.assertTrue(errors[0].startswith("error: "), said)
                self.assertIn(says, errors[0])
                self.assertNotIn("(host ", errors[0])

    def test_too_few_files(self):
        """Where the system allows too few open files, the error names the limit."""
        def limit(files):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        for files in (20, 26):
            done = subprocess.run([DLCORE, "train", "net.ini", "--ranks=12"], cwd=self.folder, check=False, timeout=120,
                                  text=True, capture_output=True, preexec_fn=limit(files))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"(this process may have {files} open files: see ulimit -n)", done.stderr)
        # A soft limit is raised.
        done = subprocess.run([DLCORE, "train", "net.ini", "--ranks=12"], cwd=self.folder, check=False, timeout=120,
                              text=True, capture_output=True, preexec_fn=lambda: resource.setrlimit(
                                  resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_newlines_are_kept(self):
        code, errors, said = self.train("--ranks=2")
        self.assertEqual((code, errors), (0, []), said)
        self.assertIn("\n    not ", said)
        self.assertNotIn("\\n", said)

    def test_sent_signals(self):
        """A process ends by the very signal that another one sends, as a watchdog does that wants a
        core file, and at once: nothing would crash again if it ran on."""
        for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE):
            for ranks in (1, 2):
                with self.subTest(number=number, ranks=ranks):
                    self.send(number, ranks)

    def wait_until_it_computes(self, pid):
        """It may still hold the lock of the line that was read; then it would end without a word."""
        def ticks():
            with open(f"/proc/{pid}/task/{pid}/stat", encoding="ascii") as stat:
                return int(stat.read().rsplit(")", 1)[1].split()[11])
        begin, deadline = ticks(), time.monotonic() + 60
        while ticks() < begin + 5:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def send(self, number, ranks):
        # The address sanitizer would exit where the default action is wanted.
        options = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0:handle_sigfpe=0:handle_abort=0"
        job = subprocess.Popen([DLCORE, "train", "net.ini", f"--ranks={ranks}", "--iterations=1000000000"],
                               cwd=self.folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=dict(os.environ, ASAN_OPTIONS=options))
        try:
            said = ""
            while "training for" not in said:
                line = job.stderr.readline()
                self.assertTrue(line, said)
                said += line
            pid = job.pid
            if ranks > 1:
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
                    pid = int(children.read().split()[-1])
            self.wait_until_it_computes(pid)
            os.kill(pid, number)
            said += job.stderr.read()
            code = job.wait(30)
        finally:
            job.kill()
            job.wait()
            job.stderr.close()
        self.assertIn(f"process {os.getpid()} has sent this one signal {number:d} (", said)
        self.assertEqual(code, -number if ranks == 1 else 5, said)
        if ranks > 1:
            self.assertRegex(said, rf"error: rank \d \(host .*, pid {pid}\) was killed by signal {number:d} \(")

    @unittest.skipUnless(PRELOAD, "a sanitizer must be loaded first")
    def test_sending_fails(self):
        for where in ("parent", "child"):
            for ever in ({}, {"FAIL_SEND_EVER": "1"}):
                for at in (1, 2, 3, 5, 8, 13, 21):
                    self.fail_at(at, where, ever)

    def fail_at(self, at, where, ever):
        start = time.monotonic()
        code, errors, said = self.train(
            "--ranks=2", LD_PRELOAD=PRELOAD, FAIL_SEND_AT=str(at), FAIL_SEND_IN=where,
            FAIL_SEND_ERROR=str(errno.ENOBUFS), **ever)
        told = (where, ever, at, said)
        if code == 0:  # fewer messages were sent
            self.assertGreater(at, 13, told)
            return
        self.assertLess(time.monotonic() - start, 20, told)
        self.assertEqual(code, 1, told)
        self.assertTrue(any(os.strerror(errno.ENOBUFS) in line for line in errors), told)

    @unittest.skipUnless(PRELOAD, "a sanitizer must be loaded first")
    def test_sending_is_interrupted(self):
        for error in (errno.EINTR, errno.EAGAIN):
            code, errors, said = self.train("--ranks=2", LD_PRELOAD=PRELOAD,
                                            FAIL_SEND_AT="3", FAIL_SEND_IN="parent",
                                            FAIL_SEND_ERROR=str(error))
            self.assertEqual((code, errors), (0, []), said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
