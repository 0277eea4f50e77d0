#!/usr/bin/env python3
"""Tests resuming with the command: a checkpoint of another run is refused with a list of
differences, a damaged one is not read, schedules continue from where they were, and a
checkpoint has what it takes to train again."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import unittest
import zlib

from runs import Runs, TEST
from test_transports import tensors_digest

MODELS = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "models"


def metadata(path):
    data = pathlib.Path(path).read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]


class Compatibility(Runs):
    """A checkpoint of another run is refused with a list of differences."""

    def mismatch(self, *sentences, options=()):
        said = self.refused(4, "does not match this run", "--run-dir=one", "--resume=auto",
                            *options)
        self.assertNotIn("starting", said)
        self.assertNotIn("trying the one before", said)
        for sentence in sentences:
            self.assertIn(sentence, said)

    def setUp(self):
        super().setUp()
        self.write(run="checkpoint_interval = 5\n")
        self.train("--run-dir=one")

    def test_other_nets(self):
        self.write(width=16)
        self.mismatch("[ip1] num_output: 8 -> 16")
        self.write()
        text = self.net.read_text()
        self.net.write_text(text.replace("type = relu", "type = sigmoid"))
        self.mismatch("[relu1] type: relu -> sigmoid")
        self.net.write_text(text.replace("[relu1]\ntype = relu\n", ""))
        self.mismatch("[relu1]: present -> none", "[ip2] input: relu1 -> ip1")
        self.net.write_text(text.replace("[ip2]", "[ip3]"))
        self.mismatch("[ip2]: present -> none", "[ip3]: none -> present")
        self.net.write_text(text.replace("[loss]", "[again]\ntype = relu\n[loss]"))
        self.mismatch("[again]: none -> present")

    def test_other_data_and_seed(self):
        self.mismatch("seed (use --seed 1 for that of the checkpoint): 1 -> 7",
                   "training samples (their digest)", options=["--seed=7"])
        self.mismatch("number of training samples: 96 -> 95",
                   options=["--set=data.samples=95"])
        self.mismatch("training samples (their digest): ", options=["--set=data.first=1"])

    def test_another_solver(self):
        """It cannot use the state in the checkpoint, and lacks the state that it needs."""
        adam = "--set=solver.type=adam"
        self.mismatch("[solver] type (the new solver cannot use momentum/ip1.bias): "
                   "sgd -> adam", options=[adam])
        self.train("--run-dir=two", adam, "--iterations=5")
        said = self.refused(4, "does not match this run", "--run-dir=two", "--resume=auto")
        self.assertRegex(said, r"\[solver\] type \(the new solver cannot use \w+/[\w.]+\): "
                               "adam -> sgd")
        self.assertEqual(self.names(self.folder / "two"), ["small-00000005.safetensors"])
        # Another consistency model continues from it.
        _, said = self.train("--run-dir=one", "--resume=auto", "--iterations=25",
                             "--consistency=ssp", "--ranks=2", "--scaling=strong")
        self.assertIn("resumed from ", said)

    def test_all_differences_in_one_run(self):
        self.write(width=16)
        self.mismatch("[ip1] num_output: 8 -> 16", "number of training samples: 96 -> 95",
                   "seed", options=["--set=data.samples=95", "--seed=2"])

    def test_ranks_say_it_once(self):
        self.write(width=16)
        done = self.run_it("--run-dir=one", "--resume=auto", "--ranks=3")
        self.assertEqual(done.returncode, 4)
        self.assertEqual(done.stderr.count("num_output: 8 -> 16"), 1)

    def test_what_may_change(self):
        _, said = self.train("--run-dir=one", "--resume=auto", "--iterations=25",
                             "--set=solver.momentum=0.5", "--set=ip1.bias_lr_mult=2",
                             "--set=ip1.weight_filler=gaussian(0.1)",
                             "--set=relu1.negative_slope=0.1")
        self.assertIn("changed since the checkpoint: [solver] momentum: 0.9 -> 0.5", said)
        self.assertIn("changed since the checkpoint: [ip1] bias_lr_mult: 1 -> 2", said)
        self.assertNotIn("weight_filler", said)

    def test_a_default_that_is_written_out_is_no_change(self):
        self.net.write_text(self.net.read_text().replace(
            "[relu1]", "bias = yes\n[relu1]").replace("type = relu\n",
                                                      "type = relu\ninput = ip1\n"))
        _, said = self.train("--run-dir=one", "--resume=auto", "--iterations=25")
        self.assertNotIn("changed", said)

    def test_a_partly_matching_checkpoint_changes_nothing(self):
        """The first tensors match, a later one does not: none is loaded, nor is an older
        checkpoint tried."""
        self.net.write_text(self.net.read_text().replace("num_output = 4",
                                                         "num_output = 5"))
        self.mismatch("[ip2] num_output: 4 -> 5")
        weights = "one/small-00000020.safetensors"
        self.refused(4, "ip2.bias", f"--weights={weights}")

    def test_one_whose_metadata_is_gone(self):
        """A file of weights alone is not a checkpoint to resume from."""
        newest = self.folder / "one" / "small-00000020.safetensors"
        data = newest.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        self.assertEqual(header["ip2.weight"]["shape"], [4, 8])
        for key in [key for key in header["__metadata__"]
                    if key in ("dlcore.checksum", "dlcore.sealed", "dlcore.net_ini")]:
            del header["__metadata__"][key]
        header["ip2.weight"]["shape"] = [8, 4]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        # Without these keys it looks like a file of another program.
        text = text.replace(b'"dlcore.', b'"elcore.')
        newest.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length:])
        done = self.run_it("--run-dir=one", "--resume=auto")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertNotIn("training for", done.stderr)

    def test_an_unreadable_one_is_skipped(self):
        newest = self.folder / "one" / "small-00000020.safetensors"
        newest.unlink()
        newest.mkdir()
        _, said = self.train("--run-dir=one", "--resume=auto", "--iterations=18")
        self.assertIn("trying the one before", said)
        self.assertIn("at iteration 15", said)
        # It is not in the way of the next one.
        self.assertIn("small-00000020.safetensors is from before the run was resumed", said)
        self.assertTrue((self.folder / "one/small-00000020.superseded.safetensors").is_dir())
        _, said = self.train("--run-dir=one", "--resume=auto", "--iterations=19")
        self.assertIn("at iteration 18", said)

    def test_all_damaged_starts_no_new_run(self):
        for path in (self.folder / "one").glob("*.safetensors"):
            path.write_bytes(b"x" * 100)
        self.refused(4, "small-00000010.safetensors", "--run-dir=one", "--resume=auto")


class Huge(Runs):
    """A sparse file that is larger than the memory, or claims to be."""

    def sparse(self, path, header, mib):
        """Writes a tensor 'ip1.bias' of so many MiB, and the entries of `header`."""
        header["ip1.bias"] = {"dtype": "U8", "shape": [mib << 20],
                                "data_offsets": [0, mib << 20]}
        text = json.dumps(header, separators=(",", ":")).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        os.truncate(path, 8 + len(text) + (mib << 20))

    def refused_in_little_memory(self, sentence, *options):
        with open(self.folder / "said", "w+", encoding="utf-8") as said:
            job = subprocess.Popen(self.command(*options), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=said,
                                   cwd=self.folder)
            _, status, usage = os.wait4(job.pid, 0)  # includes its ranks
            job.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read()
        self.assertEqual(job.returncode, 4, text)
        self.assertIn(sentence, text)
        self.assertLess(usage.ru_maxrss, 600 << 10, "KiB")

    def test_weights(self):
        path = self.folder / "weights.safetensors"
        self.sparse(path, {}, 64 << 10)
        self.refused_in_little_memory("ip1.bias is of type U8",
                                      f"--weights={path}")
        # A file of dlcore's is refused before all of it is read for its checksum.
        self.sparse(path, {"__metadata__": {"dlcore.checksum": "0" * 16}}, 64 << 10)
        self.refused_in_little_memory("ip1.bias is of type U8",
                                      f"--weights={path}")

    def test_resume(self):
        folder = self.folder / self.train()[0]["run_dir"]
        path = folder / self.names(folder)[0]
        self.sparse(path, {"__metadata__": metadata(path)}, 1 << 10)
        self.refused_in_little_memory("the file was damaged or edited", "--resume=auto",
                                      "--iterations=30")


class Continues(Runs):
    def test_a_finished_run(self):
        done = self.train("--run-dir=one")[0]
        path = self.folder / "one" / "small-00000020.safetensors"
        before = path.read_bytes(), path.stat().st_mtime_ns
        for ranks in ("1", "2"):
            found = self.run_it("--run-dir=one", "--resume=auto", f"--ranks={ranks}",
                                "--scaling=strong")
            self.assertEqual(found.returncode, 0, found.stderr)
            self.assertIn("nothing to do: the run in one is complete after 20 iterations",
                          found.stdout)
        again, _ = self.train("--run-dir=one", "--resume=auto")
        self.assertEqual(again["iterations"], 20)
        self.assertAlmostEqual(again["training_loss"], done["training_loss"], delta=1e-6)
        self.assertEqual((path.read_bytes(), path.stat().st_mtime_ns), before)
        self.assertEqual(len(self.names(self.folder / "one")), 1)

    def test_fewer_iterations_than_completed(self):
        self.train("--run-dir=one")
        self.refused(2, "has completed 20 iterations, but this run is to end after 19",
                     "--run-dir=one", "--resume=auto", "--iterations=19")
        self.refused(2, "has completed 20 iterations", "--run-dir=one", "--resume=auto",
                     "--set=train.iterations=0")

    def rates(self, *options):
        """The learning rate of each iteration."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        report, said = self.train(f"--log-file={log}", "--set=train.display=1",
                                  "--run-dir=one", *options)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        return report, said, {event["iteration"]: event["learning_rate"]
                              for event in events if event["event"] == "train"}

    def stop_at(self, iteration, *options):
        """As if the run had been killed at that iteration."""
        _, _, rates = self.rates("--set=train.checkpoint_interval=1", "--set=train.keep=0",
                                 *options)
        for path in (self.folder / "one").glob("*.safetensors"):
            if int(path.stem.split("-")[1]) > iteration:
                path.unlink()
        return rates

    def check_poly(self, rates, begin, end):
        """A straight line from the current learning rate to zero."""
        first = rates[begin + 1]
        for i in range(begin + 1, end + 1):
            self.assertAlmostEqual(rates[i], first * (end + 1 - i) / (end - begin),
                                   delta=1e-6 * first)

    def test_another_length(self):
        for policy in ("poly", "cosine"):
            for more in (30, 14):
                shutil.rmtree(self.folder / "one", ignore_errors=True)
                poly = f"--set=solver.policy={policy}"
                straight = self.stop_at(10, poly)
                _, said, rates = self.rates(poly, "--resume=auto", f"--iterations={more}")
                self.assertIn(f"was to end after 20 iterations and now ends after {more}",
                              said)
                self.assertEqual(sorted(rates), list(range(11, more + 1)))
                self.assertAlmostEqual(rates[11], straight[11], delta=1e-9)
                if policy == "poly":
                    self.check_poly(rates, 10, more)
                self.assertLess(rates[more], straight[11] / 2)

    def test_another_length_twice(self):
        poly = "--set=solver.policy=poly"
        self.stop_at(10, poly)
        self.rates(poly, "--resume=auto", "--iterations=30", "--set=train.keep=0",
                   "--set=train.checkpoint_interval=1")
        for path in (self.folder / "one").glob("*.safetensors"):
            if int(path.stem.split("-")[1]) > 20:
                path.unlink()
        # The same length as before: nothing changes.
        _, said, rates = self.rates(poly, "--resume=auto", "--iterations=30")
        self.assertNotIn("was to end", said)
        self.check_poly({**rates, 11: 0.01 * 0.5, 20: 0}, 20, 30)
        shutil.rmtree(self.folder / "one")

    def test_a_schedule_that_has_ended(self):
        poly = "--set=solver.policy=poly"
        self.rates(poly)
        said = self.refused(2, "its learning rate has reached 0", "--run-dir=one",
                            "--resume=auto", "--iterations=40", poly)
        self.assertIn("--weights FILE", said)
        # A schedule that does not end with the run continues.
        shutil.rmtree(self.folder / "one")
        step = ("--set=solver.policy=step", "--set=solver.step_size=8")
        self.rates(*step)
        _, _, rates = self.rates(*step, "--resume=auto", "--iterations=26")
        self.assertEqual([round(rates[i], 9) for i in (21, 24, 25, 26)],
                         [0.0001, 0.0001, 0.00001, 0.00001])

    def test_another_batch(self):
        for batch, begin, end in (("16", 5, 10), ("4", 20, 40)):
            for policy in (["--set=solver.policy=poly"],
                           ["--set=solver.policy=step", "--set=solver.step_size=8"]):
                shutil.rmtree(self.folder / "one", ignore_errors=True)
                straight = self.stop_at(10, *policy)
                report, said, rates = self.rates(
                    *policy, "--resume=auto", f"--set=data.batch={batch}",
                    f"--iterations={end}")
                self.assertIn(f"the effective batch was 8 and is now {batch}: 10 "
                              f"earlier iterations count as {begin}", said)
                self.assertEqual(sorted(rates), list(range(begin + 1, end + 1)))
                self.assertAlmostEqual(rates[begin + 1], straight[11], delta=1e-9)
                if "poly" in policy[0]:
                    self.check_poly(rates, begin, end)
                else:  # at the same samples as before: iterations 8 and 16 of batch 8
                    self.assertAlmostEqual(rates[begin + 1], 0.001)
                    self.assertAlmostEqual(rates[8 * end // 10 + 1], 0.0001)
                # The one to resume from is the last one written.
                _, said, _ = self.rates(*policy, "--resume=auto",
                                        f"--set=data.batch={batch}",
                                        f"--iterations={end + 1}",
                                        *(["--set=solver.max_iterations=100"]
                                          if "poly" in policy[0] else []))
                self.assertIn(f"at iteration {end}", said)

    def test_another_batch_and_epochs(self):
        """As many epochs with a batch that does not divide them: still finished."""
        for batch in ("5", "7", "32"):
            shutil.rmtree(self.folder / "one", ignore_errors=True)
            self.write(run="")
            self.net.write_text(self.net.read_text().replace("iterations = 20",
                                                             "epochs = 2"))
            self.train("--run-dir=one")
            found = self.run_it("--run-dir=one", "--resume=auto",
                                f"--set=data.batch={batch}")
            self.assertEqual(found.returncode, 0, found.stderr)
            self.assertIn("nothing to do", found.stdout)

    def test_weights_and_resume(self):
        self.train("--run-dir=one")
        file = "one/small-00000020.safetensors"
        self.refused(2, "give one of them", f"--weights={file}", f"--resume={file}")
        report, said = self.train(f"--weights={file}", "--iterations=5")
        self.assertEqual(report["iterations"], 5)
        self.assertNotIn("resumed from", said)


def png(size, color):
    """An image of one color."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + color * size) * size)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) +
            chunk(b"IEND", b""))


class Metadata(Runs):
    def test_keys(self):
        self.write(name="told", run="test_interval = 10\n")
        self.net.write_text(self.net.read_text().replace("[loss]", TEST + "[loss]"))
        report, _ = self.train("--run-dir=a b", "--set=train.keep=4", "--ranks=2")
        found = metadata(self.folder / report["checkpoint"])
        expected = {"dlcore.net": "told", "dlcore.iteration": "20", "dlcore.ranks": "2",
                    "dlcore.max_iterations": "20", "dlcore.effective_batch": "16",
                    "dlcore.seed": "1", "dlcore.solver": "sgd", "dlcore.device": "cpu",
                    "dlcore.data.source": "synthetic", "dlcore.data.samples": "96",
                    "dlcore.data.shape": "1,6,6", "dlcore.data.classes": "4",
                    "dlcore.tested": "20"}
        for key, value in expected.items():
            self.assertEqual(found[key], value, key)
        self.assertRegex(found["dlcore.date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("train", found["dlcore.command"])
        self.assertIn("'--run-dir=a b'", found["dlcore.command"])
        self.assertIn("sgd ", found["dlcore.plugins"])
        self.assertIn("libdlcore.so", found["dlcore.libraries"])
        self.assertAlmostEqual(float(found["dlcore.accuracy"]), report["accuracy"],
                               delta=1e-6)
        self.assertAlmostEqual(float(found["dlcore.test_loss"]), report["test_loss"],
                               delta=1e-6)
        self.assertAlmostEqual(float(found["dlcore.training_loss"]),
                               report["training_loss"], delta=0.5)
        self.assertIn("keep = 4\n", found["dlcore.net_ini"])

    def test_paths_of_data(self):
        """They are absolute, whatever folder the run was started in."""
        data = "[data]\nsource = idx\nimages = pictures\nlabels = names\nbatch = 8\n"
        (self.folder / "pictures").write_bytes(
            struct.pack(">HBBIII", 0, 8, 3, 24, 6, 6) + bytes(24 * 36))
        (self.folder / "names").write_bytes(
            struct.pack(">HBBI", 0, 8, 1, 24) + bytes([0, 1, 2, 3] * 6))
        text = self.net.read_text()
        self.net.write_text(re.sub(r"(?ms)^\[data\]\n.*?(?=^\[solver\])", data, text))
        report, _ = self.train()
        found = metadata(self.folder / report["checkpoint"])
        self.assertEqual(found["dlcore.data.source"], "idx")
        for line in ("images = {}/pictures", "labels = {}/names"):
            self.assertIn(line.format(self.folder.resolve()), found["dlcore.data.paths"])

    def test_names_of_classes(self):
        for i, name in enumerate(("ant", "bee", "Zebra fish", "\u00e9cureuil")):
            (self.folder / "pictures" / name).mkdir(parents=True)
            for k in range(4):
                (self.folder / "pictures" / name / f"{k}.png").write_bytes(
                    png(6, bytes([60 * i + k] * 3)))
        data = ("[data]\nsource = images\nfolder = pictures\ntransforms = center_crop(6)\nbatch = 8\n")
        text = self.net.read_text()
        self.net.write_text(re.sub(r"(?ms)^\[data\]\n.*?(?=^\[solver\])", data, text))
        report, _ = self.train()
        found = metadata(self.folder / report["checkpoint"])
        self.assertEqual(found["dlcore.data.classes"], "4")
        self.assertEqual(found["dlcore.data.class_names"].split("\n"),
                         ["Zebra fish", "ant", "bee", "\u00e9cureuil"])

    def test_digest(self):
        """The same samples have the same digest, other samples another."""
        found = {options: metadata(self.folder / self.train(*options, "--iterations=1")[0]
                                   ["checkpoint"])["dlcore.data.digest"]
                 for options in ((), ("--set=data.batch=4",), ("--set=data.first=1",),
                                 ("--set=data.samples=95",))}
        self.assertRegex(found[()], r"^[0-9a-f]{16}$")
        self.assertNotEqual(found[()], "0" * 16)
        self.assertEqual(found[()], found["--set=data.batch=4",])
        self.assertEqual(len(set(found.values())), 3, found)

    def test_schedule(self):
        """It is stored only if a resumed run changed its length: where it starts, and its pace."""
        poly = "--set=solver.policy=poly"
        report, _ = self.train(poly, "--run-dir=one", "--set=train.keep=0",
                               "--set=train.checkpoint_interval=10")
        self.assertNotIn("dlcore.schedule", metadata(self.folder / report["checkpoint"]))
        (self.folder / report["checkpoint"]).unlink()
        report, _ = self.train(poly, "--run-dir=one", "--resume=auto", "--iterations=30")
        schedule = metadata(self.folder / report["checkpoint"])["dlcore.schedule"].split()
        # Planned for 20 iterations, 12 per epoch. Resumed at 10, from position 10 in steps of
        # one; the 10 that were left of the schedule now take 20.
        self.assertEqual([float(word) for word in schedule], [20, 12, 10, 10, 1, 10, 0.5])

    def test_net_ini_makes_the_same_net(self):
        """Also for models with blocks, which the stored net.ini has expanded."""
        for model in ("lenet", "resnet18", "mobilenet-v2"):
            text = (MODELS / f"{model}.ini").read_text()
            data = re.search(r"(?ms)^\[data\]\n.*?(?=^\[solver\])", text)[0]
            shape = "1,28,28" if model == "lenet" else "3,64,64"
            made_up = (f"[data]\nsource = synthetic\nsamples = 4\nshape = {shape}\n"
                       "classes = 10\nbatch = 2\n[data.test]\nsource = synthetic\n"
                       f"samples = 4\nshape = {shape}\nclasses = 10\nbatch = 2\n")
            self.net.write_text(text.replace(data, made_up))
            report, _ = self.train("--iterations=1", "--set=train.test_interval=0",
                                   "--set=data.batch=2", "--scaling=weak")
            one = self.folder / report["checkpoint"]
            self.net.write_text(metadata(one)["dlcore.net_ini"])
            report, _ = self.train()
            other = self.folder / report["checkpoint"]
            self.assertNotEqual(one, other)
            self.assertEqual(tensors_digest(one), tensors_digest(other), model)


if __name__ == "__main__":
    unittest.main(verbosity=2)
