#!/usr/bin/env python3
"""Tests run folders with the command: no file of another run is overwritten, a folder that
cannot be written is reported before training begins, --resume finds the right run, and the
right checkpoints stay."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from runs import ENDLESS, Runs, TEST


class Folders(Runs):
    def test_each_run_has_its_own(self):
        reports = [self.train()[0] for _ in range(3)]
        folders = {report["run_dir"] for report in reports}
        self.assertEqual(len(folders), 3)
        for folder in folders:
            self.assertRegex(folder, r"^runs/small-\d{8}-\d{6}Z(-\d+)?$")
            self.assertEqual(self.names(self.folder / folder),
                             ["small-00000020.safetensors"])

    def test_ranks_have_one(self):
        report, said = self.train("--ranks=3")
        self.assertEqual(self.runs(), [report["run_dir"].removeprefix("runs/")])
        self.assertEqual(said.count("run folder: "), 1)

    def test_named(self):
        report, _ = self.train("--run-dir=deep/down/here")
        self.assertEqual(report["run_dir"], "deep/down/here")
        self.assertEqual(self.names(self.folder / "deep/down/here"),
                         ["small-00000020.safetensors"])
        self.assertFalse((self.folder / "runs").exists())

    def test_no_folder_without_checkpoints(self):
        self.write(run="checkpoint_last = no\ncheckpoint_minutes = 0\n")
        report, _ = self.train("--run-dir=named")
        self.assertIsNone(report["checkpoint"])
        self.train()
        self.assertEqual(list(self.folder.iterdir()), [self.net])

    def test_a_signal_creates_the_folder(self):
        self.write(iterations=ENDLESS,
                   run="checkpoint_last = no\ncheckpoint_minutes = 0\n")
        job = self.start("--ranks=2")
        self.assertFalse((self.folder / "runs").exists())
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(30), 128 + signal.SIGTERM)
        self.assertEqual(len(self.names(self.folder / "runs" / self.runs()[0])), 1)

    def test_a_failed_start_leaves_no_folder(self):
        self.write(run="precision = fp16\n")
        done = self.run_it()
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "runs").exists())

    def test_other_files_in_it(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "notes.txt").write_text("notes")
        (self.folder / "mine" / "model.safetensors").write_text("of another program")
        self.train("--run-dir=mine")
        self.assertEqual((self.folder / "mine" / "notes.txt").read_text(), "notes")
        self.assertEqual(len(self.names(self.folder / "mine")), 2)


class Refused(Runs):
    def test_unwritable(self):
        (self.folder / "file").write_text("in the way")
        places = [("/proc/x", "/proc/x cannot be created: No such file or directory"),
                  ("/proc", "the run folder /proc cannot be written"),
                  ("file", "file cannot be created: a file is in the way"),
                  ("file/deeper", "file cannot be created: a file is in the way"),
                  ("x" * 300, "File name too long")]
        for place, sentence in places:
            with self.subTest(place=place[:20]):
                self.refused(1, sentence, f"--run-dir={place}")
        self.refused(2, "no value", "--run-dir=")
        self.refused(2, "an empty path", '--run-dir=""')

    def test_runs_is_a_file(self):
        (self.folder / "runs").write_text("in the way")
        self.refused(1, "runs cannot be created: a file is in the way")

    def test_read_only(self):
        (self.folder / "locked").mkdir(mode=0o500)
        self.refused(1, "Permission denied", "--run-dir=locked", as_user=True)

    def test_full(self):
        """A file system without room, which needs the right to mount one."""
        full = self.folder / "full"
        full.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none",
                                  str(full)], capture_output=True, check=False)
        if mounted.returncode:
            self.skipTest("a file system cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", str(full)], check=False)
        with open(full / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        self.refused(1, "No space left on device", "--run-dir=full")

    def test_names_of_nets(self):
        for name in ("../up", "a/b", "..", ".hidden", "x" * 65, "x" * 300, "a b", "ä",
                     '""'):
            with self.subTest(name=name):
                self.write(name=name)
                said = self.refused(2, "[net] name = ")
                self.assertIn("net.ini:3: ", said)
        for name in ("x" * 64, "A.b-c_9"):
            self.write(name=name)
            self.train()

    def test_used(self):
        self.train("--run-dir=used")
        before = (self.folder / "used" / "small-00000020.safetensors").read_bytes()
        said = self.refused(2, "used holds checkpoints of another run (net 'small', up "
                               "to iteration 20)", "--run-dir=used", "--seed=3")
        self.assertIn("--resume auto", said)
        self.write(name="other")
        self.refused(2, "net 'small'", "--run-dir=used")
        self.refused(4, "used holds checkpoints of net 'small', but none of this run's "
                        "net 'other'", "--run-dir=used", "--resume=auto")
        self.assertEqual(self.names(self.folder / "used"),
                         ["small-00000020.safetensors"])
        self.assertEqual(
            (self.folder / "used" / "small-00000020.safetensors").read_bytes(), before)

    def test_two_at_once(self):
        self.write(iterations=ENDLESS)
        job = self.start("--run-dir=one")
        done = self.run_it("--run-dir=one")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, rf"one is in use by process \d+ on "
                                      rf"{re.escape(os.uname().nodename)}")
        done = self.run_it("--run-dir=one", "--resume=auto")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIsNone(job.poll())
        job.kill()
        job.wait()
        self.write()
        self.train("--run-dir=one")  # the lock has ended with the process

    def test_the_lock_of_killed_ranks_ends(self):
        self.write(iterations=ENDLESS)
        job = self.start("--run-dir=one", "--ranks=2")
        job.kill()
        job.wait()
        self.write()
        self.train("--run-dir=one")

    def test_lock_is_not_a_regular_file(self):
        for make in (lambda path: os.mkfifo(path), lambda path: path.mkdir(),
                     lambda path: path.symlink_to(self.net),
                     lambda path: os.link(self.net, path)):
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
            make(folder / ".lock")
            before = self.net.read_text()
            done = self.run_it(f"--run-dir={folder}")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(self.net.read_text(), before)


class Resumed(Runs):
    def test_auto_takes_the_last_run(self):
        self.train("--iterations=10")
        second = self.train("--iterations=12")[0]["run_dir"]
        report, said = self.train("--resume=auto")
        self.assertIn(f"resumed from {second}/small-00000012.safetensors", said)
        self.assertEqual(report["run_dir"], second)
        self.assertEqual(len(self.runs()), 2)
        self.assertIn("small-00000020.safetensors", self.names(self.folder / second))

    def test_auto_orders_runs_by_utc(self):
        """As in autumn, when local time goes back, and in containers with other zones."""
        for zone, last in (("UTC-1", "UTC"), ("UTC-14", "UTC+12")):
            with self.subTest(zone=zone):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                self.train("--iterations=10", environment={"TZ": zone})
                self.train("--iterations=12", environment={"TZ": last})
                _, said = self.train("--resume=auto", environment={"TZ": "UTC+3"})
                self.assertIn("/small-00000012.safetensors", said)

    def test_auto_does_not_take_another_nets_run(self):
        self.write(name="small-net")
        self.train()
        self.write(name="small")
        report, said = self.train("--resume=auto")
        self.assertIn("there is no checkpoint of 'small' in runs: starting a new run",
                      said)
        self.assertNotIn("resumed from", said)
        self.assertEqual(report["iterations"], 20)

    def test_auto_skips_runs_without_a_checkpoint(self):
        first = self.train("--iterations=10")[0]["run_dir"]
        (self.folder / "runs" / "small-29990101-000000Z").mkdir()
        (self.folder / "runs" / "small-2999").mkdir()
        _, said = self.train("--resume=auto")
        self.assertIn(f"resumed from {first}/", said)

    def test_auto_skips_files(self):
        first = self.train("--iterations=10")[0]["run_dir"]
        runs = self.folder / "runs"
        (runs / "small-20300101-000000Z").write_text("notes")
        (runs / "small-20300101-000001Z").symlink_to("gone")
        _, said = self.train("--resume=auto")
        self.assertIn(f"resumed from {first}/", said)

    def test_auto_does_not_skip_unreadable_folders(self):
        """There may be a checkpoint in it, so starting a new run would be wrong."""
        self.train("--iterations=10")
        last = self.folder / "runs" / "small-20300101-000000Z"
        last.symlink_to(last.name)
        self.refused(1, f"runs/{last.name} cannot be read: Too many levels of symbolic",
                     "--resume=auto")
        last.unlink()
        last.mkdir(mode=0)
        done = self.run_it("--resume=auto", as_user=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"runs/{last.name} cannot be read: Permission denied", done.stderr)

    def test_auto_where_runs_cannot_be_read(self):
        (self.folder / "runs").symlink_to("runs")
        self.refused(1, "folder runs cannot be read: Too many levels of symbolic links",
                     "--resume=auto")

    def test_auto_compares_suffixes_as_numbers(self):
        first = self.train("--iterations=10")[0]["run_dir"]
        for name in ("small-20300101-000000Z", "small-20300101-000000Z-2",
                     "small-20300101-000000Z-10"):
            (self.folder / "runs" / name).mkdir()
            for file in (self.folder / first).glob("*.safetensors"):
                (self.folder / "runs" / name / file.name).write_bytes(file.read_bytes())
        _, said = self.train("--resume=auto")
        self.assertIn("resumed from runs/small-20300101-000000Z-10/", said)

    def test_auto_starts_a_new_run_if_there_is_none(self):
        report, said = self.train("--resume=auto", "--run-dir=new")
        self.assertIn("there is no checkpoint of 'small' in new: starting a new run",
                      said)
        self.assertEqual(report["run_dir"], "new")

    def test_a_folder(self):
        self.train("--run-dir=one", "--iterations=10")
        report, said = self.train("--resume=one")
        self.assertIn("resumed from one/small-00000010.safetensors", said)
        self.assertEqual(report["run_dir"], "one")
        report, said = self.train("--resume=one", "--run-dir=two", "--iterations=30")
        self.assertIn("resumed from one/small-00000020.safetensors", said)
        self.assertEqual(self.names(self.folder / "two"), ["small-00000030.safetensors"])
        (self.folder / "empty").mkdir()
        self.refused(4, "empty holds no checkpoint to resume from", "--resume=empty")
        self.refused(4, "--resume gone: No such file or directory", "--resume=gone")

    def test_an_older_file_needs_a_new_folder(self):
        self.write(run="checkpoint_interval = 5\n")
        self.train("--run-dir=one")
        before = self.names(self.folder / "one")
        old = f"one/{before[0]}"
        report, said = self.train(f"--resume={old}")
        self.assertIn(f"resumed from {old}", said)
        self.assertRegex(report["run_dir"], "^runs/small-")
        self.assertEqual(self.names(self.folder / "one"), before)
        self.refused(2, "is not the newest checkpoint of its run", f"--resume={old}",
                     "--run-dir=one")
        report, _ = self.train(f"--resume=one/{before[-1]}", "--iterations=25")
        self.assertEqual(report["run_dir"], "one")


class Kept(Runs):
    def iterations(self, folder):
        return [int(re.search(r"(\d+)\.safetensors", name)[1])
                for name in self.names(folder)]

    def test_the_last_ones(self):
        for keep, expected in (("", [15, 18, 20]), ("keep = 1\n", [20]),
                               ("keep = 0\n", [3, 6, 9, 12, 15, 18, 20])):
            self.write(run="checkpoint_interval = 3\n" + keep)
            report, _ = self.train()
            self.assertEqual(self.iterations(self.folder / report["run_dir"]), expected)

    def test_older_checkpoints_stay_when_keep_changes(self):
        """Older checkpoints than the last `keep` are left alone."""
        self.write(run="checkpoint_interval = 2\n")
        self.train("--run-dir=one", "--set=train.keep=0", "--iterations=10")
        self.train("--run-dir=one", "--resume=auto")
        self.assertEqual(self.iterations(self.folder / "one"), [2, 4, 16, 18, 20])

    def with_tests(self, *options, run=""):
        """A run with tests; the accuracy at each, by the iteration."""
        self.write(run="test_interval = 2\ncheckpoint_interval = 1\n" + run)
        self.net.write_text(self.net.read_text().replace("[loss]", TEST + "[loss]"))
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        report, _ = self.train(f"--log-file={log}", *options)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        return report, {event["iteration"]: event["accuracy"] for event in events
                        if event["event"] == "test"}

    def test_the_best(self):
        # Such a high learning rate that it gets worse again.
        report, tests = self.with_tests("--set=solver.learning_rate=3", "--seed=5")
        best = min(at for at in tests if tests[at] == max(tests.values()))
        self.assertLess(best, 18, tests)  # or the test shows nothing
        folder = self.folder / report["run_dir"]
        self.assertEqual(self.iterations(folder), [best, 18, 19, 20])
        # It stays the best when the run goes on, until there is a better one.
        report, more = self.with_tests("--set=solver.learning_rate=0.000001", "--seed=5",
                                   "--resume=auto", "--iterations=26")
        self.assertLessEqual(max(more.values()), tests[best], more)
        self.assertEqual(self.iterations(folder), [best, 24, 25, 26])

    def test_the_best_is_written_when_it_is_tested(self):
        report, tests = self.with_tests("--set=solver.learning_rate=3", "--seed=5",
                                    "--set=train.checkpoint_interval=0")
        best = min(at for at in tests if tests[at] == max(tests.values()))
        self.assertEqual(set(self.iterations(self.folder / report["run_dir"])) & {best, 20},
                         {best, 20})
        report, _ = self.with_tests("--set=solver.learning_rate=3", "--seed=5",
                                "--set=train.checkpoint_interval=0",
                                "--set=train.keep_best=no")
        self.assertEqual(self.iterations(self.folder / report["run_dir"]), [20])

    def limit(self, job, limit):
        for pid in (job.pid, *(int(child) for child in pathlib.Path(
                f"/proc/{job.pid}/task/{job.pid}/children").read_text().split())):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def said(self):
        return (self.folder / "said").read_text()

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.said())
            time.sleep(0.01)

    def test_a_full_disk_in_the_middle(self):
        """Training goes on, the last good checkpoint stays, and the next is tried."""
        for ranks in ("1", "2"):
            self.write(iterations=ENDLESS, width=2000,
                       run="checkpoint_minutes = 0.005\n")
            folder = self.folder / f"run{ranks}"
            job = self.start(f"--run-dir={folder}", f"--ranks={ranks}",
                             until="checkpoint: ")
            self.limit(job, 50000)
            self.wait_until(lambda: "training goes on" in self.said())
            warning = re.search(r"warning: no checkpoint at iteration (\d+): (.*)",
                                self.said())
            self.assertIn(f"{folder}/small-", warning[2])
            self.assertIn("File too large", warning[2])
            self.assertEqual(self.said().count("warning"),
                             self.said().count("warning: no checkpoint at"))
            good = self.iterations(folder)[-1]
            self.assertLess(good, int(warning[1]))
            self.assertEqual([path.name for path in folder.iterdir()
                              if path.suffix != ".safetensors" and not path.is_symlink()],
                             [".lock"])
            time.sleep(0.5)
            self.assertEqual(self.iterations(folder)[-1], good)
            self.limit(job, resource.RLIM_INFINITY)
            self.wait_until(lambda: self.iterations(folder)[-1] > good)
            # At the end of the run it is an error.
            self.limit(job, 50000)
            job.send_signal(signal.SIGTERM)
            self.assertNotIn(job.wait(30), (0, 128 + signal.SIGTERM), self.said())
            self.assertRegex(self.said(), "error: .*File too large")

    def test_killed_at_any_moment(self):
        """No more is lost than what was trained since the last checkpoint was due."""
        minutes, slack = 0.01, 1.0
        for attempt in range(6):
            self.write(iterations=ENDLESS, run=f"checkpoint_minutes = {minutes}\n")
            folder = self.folder / f"run{attempt}"
            job = self.start(f"--run-dir={folder}", f"--ranks={attempt % 2 + 1}",
                             until="checkpoint: ")
            time.sleep(0.31 * attempt)
            killed = time.time()
            job.kill()
            job.wait()
            newest = sorted(folder.glob("*.safetensors"))[-1]
            self.assertLess(killed - newest.stat().st_mtime, 60 * minutes + slack)
            iteration = int(newest.stem.split("-")[-1])
            self.write(iterations=iteration + 1)
            report, said = self.train(f"--run-dir={folder}", "--resume=auto",
                                      f"--ranks={attempt % 2 + 1}")
            self.assertIn(f"resumed from {newest} at iteration {iteration}", said)
            self.assertEqual(report["iterations"], iteration + 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
