#!/usr/bin/env python3
"""Tests the commands dlcore plugin and dlcore doctor: what they print, the JSON, the exit
codes, also without any plugin."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["DLCORE_BIN"])
FIXTURES = pathlib.Path(sys.argv.pop(1))


def dlcore(*arguments, path=None, program=BIN, **more):
    environment = {k: v for k, v in os.environ.items() if k != "DLCORE_PLUGIN_PATH"}
    if path is not None:
        environment["DLCORE_PLUGIN_PATH"] = str(path)
    environment.update(more)
    return subprocess.run([program, *map(str, arguments)], env=environment,
                          capture_output=True, text=True, timeout=60)


class PluginFolder(unittest.TestCase):
    """A folder of plugins."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name).resolve() / "dir"
        self.dir.mkdir(mode=0o755)
        self.dir.chmod(0o755)

    def put(self, name):
        copy = self.dir / f"{name}.so"
        shutil.copyfile(FIXTURES / f"{name}.so", copy)
        copy.chmod(0o644)
        return copy


class Command(PluginFolder):
    def test_list(self):
        for name in ("good", "major2", "unavailable", "feature-name"):
            self.put(name)
        done = dlcore("plugin", "list", path=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"data +tiny +any +good +1\.0 +")
        self.assertIn("unavailable: no abacus was found", done.stdout)
        self.assertIn("built for version 2 of the plugin interface", done.stdout)
        self.assertIn("refused: its name is not valid", done.stdout)

    def test_folders_above_the_library(self):
        """Whoever can replace them can replace dlcore, too, as in a checkout of another user."""
        top = self.dir / "top"
        for place, names in (("bin", ["dlcore"]), ("lib", ["libdlcore.so.0"]), ("lib/dlcore/0", ["solver-sgd.so"])):
            (top / place).mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copy(BIN.parent.parent / place / name, top / place / name)
        for folder in (top, *top.rglob("*")):
            folder.chmod(0o755)
        top.chmod(0o777)
        program = top / "bin/dlcore"
        self.assertRegex(dlcore("plugin", "list", program=program).stdout, r"solver +sgd")
        (top / "lib/dlcore").chmod(0o777)  # here the plugins alone could be replaced
        self.assertIn("any user may replace this folder", dlcore("plugin", "list", program=program).stderr)

    def test_list_is_aligned(self):
        """The longest name of a layer of ours does not shift the columns after it."""
        head, *rows = dlcore("plugin", "list").stdout.splitlines()
        column = head.index("STATE")
        self.assertTrue(any("sigmoid_cross_entropy_loss" in row for row in rows))
        for row in rows:
            self.assertRegex(row[column - 1:column + 1], r"^ \S$", row)

    def test_list_json_is_utf8(self):
        self.put("good")
        environment = {**os.environb, b"DLCORE_PLUGIN_PATH": os.fsencode(self.dir),
                       b"FIXTURE_ABSENT": b"no \xff\xc3 here \xe2\x82"}
        done = subprocess.run([BIN, "plugin", "list", "--json"], env=environment, capture_output=True, check=False)
        plugins = json.loads(done.stdout.decode())["plugins"]
        self.assertIn("no \ufffd\ufffd here ", [plugin["reason"] for plugin in plugins if plugin["name"] == "good"][0])

    def test_list_json(self):
        self.put("good")
        done = dlcore("plugin", "list", "--json", path=f"{self.dir}:relative")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        good = [p for p in document["plugins"] if p["name"] == "good"][0]
        self.assertEqual(good["path"], str(self.dir / "good.so"))
        self.assertEqual(good["state"], "usable")
        self.assertIsNone(good["reason"])
        self.assertEqual(good["features"][0]["kind"], "data")
        self.assertIn("begin with '/'", document["folders"][2]["reason"])

    def test_list_outlives_a_crash(self):
        """It is told, the others are listed, and it is tried again when that is asked for."""
        cache = self.dir.parent / "cache"
        cache.mkdir()
        where = {"path": self.dir, "XDG_CACHE_HOME": str(cache)}
        orders = self.dir.parent / "orders"
        orders.write_text(f"signal {signal.SIGSEGV:d}")
        where |= {"FIXTURE_ORDERS": str(orders), "FIXTURE_NOISE": "1"}
        self.put("obeys")
        self.put("good")
        done = dlcore("plugin", "list", **where)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"data +tiny +any +good +1\.0 +usable")
        self.assertRegex(done.stdout, r"obeys +- +refused: ")
        self.assertIn("obeys.so: crashed (signal 11, Segmentation fault) in its load()", done.stdout)
        self.assertNotIn("noise", done.stdout + done.stderr)
        orders.unlink()
        self.assertEqual(dlcore("plugin", "list", **where).stdout, done.stdout)
        document = json.loads(dlcore("plugin", "list", "--json", "--rescan", **where).stdout)
        states = {plugin["name"]: plugin["state"] for plugin in document["plugins"]}
        self.assertEqual((states["good"], states["obedient"]), ("usable", "usable"))
        self.assertIn("obedient", dlcore("plugin", "inspect", "obedient", **where).stdout)

    def test_inspect_outlives_a_crash(self):
        done = dlcore("plugin", "inspect", self.put("opened-crash"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("crashed (signal 11, Segmentation fault) while it was opened", done.stderr)
        done = dlcore("plugin", "inspect", self.put("loaded-crash"))
        self.assertEqual(done.returncode, 0, done.stderr)  # its load() is not called

    def test_check_opens_nothing_that_others_may_change(self):
        file = self.put("opened-crash")
        done = dlcore("plugin", "check", file)
        self.assertRegex(done.stdout, r"FAILED +file\.modes")
        file.chmod(0o646)
        for options in ((), ("--only=load",)):
            done = dlcore("plugin", "check", file, *options)
            self.assertEqual(done.returncode, 3)
            self.assertRegex(done.stdout, r"FAILED +file\.accepted .*\n.*the file is writable by all users")
            self.assertEqual(re.findall(r"file\.\w+", done.stdout), ["file.accepted"])

    def test_check_does_not_count_time_while_stopped(self):
        """The limit is 4 s; the plugin needs 1 s, and is stopped for 5 s."""
        orders, log = self.dir.parent / "orders", self.dir.parent / "log"
        orders.write_text("sleep 1000")
        check = subprocess.Popen([BIN, "plugin", "check", "--only=load.reports", self.put("obeys")], text=True,
                                 env=dict(os.environ, FIXTURE_ORDERS=str(orders), FIXTURE_LOG=str(log),
                                          DLCORE_CONFORMANCE_TIMEOUT_SCALE=str(4 / 30)), stdout=subprocess.PIPE)
        timeout = time.monotonic() + 60
        while not log.exists():
            self.assertLess(time.monotonic(), timeout)
            time.sleep(0.05)
        child = int(pathlib.Path(f"/proc/{check.pid}/task/{check.pid}/children").read_text().split()[0])
        for pid in (check.pid, child):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        for pid in (check.pid, child):
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.3)
        out = check.communicate(timeout=60)[0]
        self.assertIn("load changes the environment", out)  # it has come to its end

    def test_list_warns_of_folders(self):
        done = dlcore("plugin", "list", path="/no/such/folder")
        self.assertEqual(done.returncode, 0)
        self.assertIn("/no/such/folder", done.stderr)

    def test_inspect_by_plugin_feature_and_file(self):
        file = self.put("two")
        for name in ("two", "digits", file):
            done = dlcore("plugin", "inspect", name, path=self.dir)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(str(file), done.stdout)
            self.assertIn("data digits: one sample", done.stdout)
            self.assertRegex(done.stdout, r"samples +whole number, 1 \.\. 9; default 1")
        self.assertIn("not loaded", done.stdout)  # the file's code was not run

    def test_inspect_json(self):
        self.put("good")
        done = dlcore("plugin", "inspect", "tiny", "--json", path=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        option = json.loads(done.stdout)["plugins"][0]["features"][0]["options"][0]
        self.assertEqual(option["name"], "samples")
        self.assertEqual((option["type"], option["default"]), ("int", "1"))
        self.assertEqual((option["min"], option["max"]), (1, 9))

    def test_inspect_refused(self):
        done = dlcore("plugin", "inspect", self.put("small"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("too small for its required fields", done.stderr)
        self.assertIn("refused", done.stdout)
        done = dlcore("plugin", "inspect", "goood", path=self.dir)
        self.assertEqual(done.returncode, 3)
        self.put("good")
        done = dlcore("plugin", "inspect", "goood", path=self.dir)
        self.assertEqual(done.returncode, 3)
        self.assertIn('did you mean good?', done.stderr)

    def test_usage(self):
        for arguments in ([], ["lsit"], ["list", "x"], ["inspect"],
                          ["inspect", "a", "b"], ["list", "--bad"], ["inspect", "a", "--rescan"]):
            done = dlcore("plugin", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stdout, "")
            self.assertIn("dlcore plugin: ", done.stderr)
        self.assertEqual(dlcore("doctor", "now").returncode, 2)
        self.assertEqual(dlcore("plugin", "--help").returncode, 0)

    def test_doctor(self):
        self.put("unavailable")
        done = dlcore("doctor", path=self.dir)
        self.assertIn("abacus 1.0 is unavailable: no abacus was found", done.stdout)
        text = done.stdout
        done = dlcore("doctor", "--json", path=self.dir)
        document = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if document["can_train"] else 3)
        self.assertGreaterEqual(document["machine"]["cores"], 1)
        self.assertGreater(document["machine"]["memory"], 0)
        for device in document["devices"]:
            self.assertIn(f"{device['device']} {device['index']}: ", text)

    def test_doctor_knows_which_transports_join_ranks(self):
        """What loads without fault may have nothing to work with: no GPU, no mpirun."""
        built = BIN.parent.parent / "lib/dlcore/0"
        text = dlcore("doctor", path=built).stdout
        document = json.loads(dlcore("doctor", "--json", path=built).stdout)
        works = re.search(r"^  ok  transport  +(.*)$", text, re.M)[1].split(", ")
        self.assertIn("host-staged", works)
        seen = {entry["transport"]: False for entry in document["transports"]}
        for entry in document["transports"]:
            self.assertTrue(entry["reason"], entry)
            seen[entry["transport"]] |= entry["works"]
        self.assertEqual({name for name, good in seen.items() if good}, set(works))
        gpus = [device for device in document["devices"] if device["device"] == "cuda"]
        for name, without in (("nccl", not gpus), ("mpi", True)):
            if name in seen and without:
                self.assertNotIn(name, works)
                self.assertRegex(text, rf"(?m)^  --  {name} \S+ cannot connect ranks here: \S")
                self.assertNotRegex(text, rf"(?m)^  ok  {name} ")

    def test_doctor_without_plugins(self):
        """A copy of the command and the library, with nothing beside them."""
        root = self.dir.parent / "root"
        (root / "bin").mkdir(parents=True)
        (root / "lib").mkdir()
        program = shutil.copy(BIN, root / "bin/dlcore")
        for library in (BIN.parent.parent / "lib").glob("libdlcore.so.0"):
            shutil.copy(library, root / "lib")
        done = dlcore("doctor", program=program)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("missing: device, transport, layer, solver, data",
                      done.stderr)
        self.assertIn(str(root / "lib/dlcore/0"), done.stdout)
        self.assertEqual(done.stdout.count("none is usable"), 5)


NET = """[net]
name = small
[data]
source = synthetic
batch = 4
[solver]
type = sgd
learning_rate = 0.01
[train]
device = cpu
iterations = 2
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""


class Crashing(PluginFolder):
    """A third party's plugin that loads without fault, but of which every call aborts."""

    COUNT = r"count\(\) of device 'bad-device' of plugin 'crashing' crashed \(signal 6, Aborted\)"
    PREDICT = r"predict\(\) of transport 'bad-transport' of plugin 'crashing' crashed \(signal 6, Aborted\)"

    def setUp(self):
        super().setUp()
        self.put("crashing")
        self.net = self.dir.parent / "net.ini"
        self.net.write_text(NET)

    def run_dlcore(self, *arguments):
        done = dlcore(*arguments, path=self.dir, XDG_CACHE_HOME=str(self.dir.parent))
        self.assertGreaterEqual(done.returncode, 0, done.stderr)
        return done

    def test_doctor(self):
        done = self.run_dlcore("doctor")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, self.COUNT)
        self.assertRegex(done.stdout, self.PREDICT)

    def test_topo(self):
        done = self.run_dlcore("topo", "--ranks=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout + done.stderr, self.COUNT)

    def test_train(self):
        """What is not used does no harm; a rank that dies of a prediction says of which."""
        self.assertEqual(self.run_dlcore("train", self.net).returncode, 0)
        done = self.run_dlcore("train", self.net, "--ranks=2", "--transport=host-staged")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_dlcore("train", self.net, "--ranks=2")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"killed by signal 6 \(Aborted\) during prediction of transport bad-transport")

    def test_inspection_does_not_close_it_here(self):
        file = self.put("closed-crash")
        for arguments in ((), ("--json",)):
            done = self.run_dlcore("plugin", "inspect", file, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("how many there are", done.stdout)
            self.assertEqual(done.stdout.count("BSD-2-Clause"), 1)


class Hanging(PluginFolder):
    """A plugin whose load() never returns, in the process that inspects it or in the job's
    own: a signal ends the job at once, and none of its processes remains."""

    def setUp(self):
        super().setUp()
        self.net = self.dir.parent / "net.ini"
        self.net.write_text(NET.replace("synthetic", "tiny"))
        self.environment = dict(os.environ, DLCORE_PLUGIN_PATH=str(self.dir),
                                XDG_CACHE_HOME=str(self.dir.parent))

    def processes(self, job):
        """The job's own process and all that descend from it."""
        found = [job.pid]
        for pid in found:
            try:
                children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except OSError:
                children = ()
            found.extend(map(int, children))
        return found

    def state(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            return "Z"

    def hangs(self, pid, file):
        """Whether it sleeps and has opened the file."""
        try:
            return str(file) in pathlib.Path(f"/proc/{pid}/maps").read_text() and self.state(pid) == "S"
        except OSError:
            return False

    def end(self, file, inside, *options, **more):
        """`inside`: it hangs in a process that the job has started, not in the job's own."""
        job = subprocess.Popen([BIN, "train", self.net, *options], env=dict(self.environment, **more),
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (job.kill(), job.wait(), job.stderr.close()))
        timeout, pids = time.monotonic() + 60, []
        while not any(self.hangs(pid, file) for pid in (pids[1:] if inside else pids[:1])):
            self.assertIsNone(job.poll())
            self.assertLess(time.monotonic(), timeout)
            time.sleep(0.2)
            pids = self.processes(job)
        job.send_signal(signal.SIGTERM)
        start = time.monotonic()
        self.assertEqual(job.wait(5), -signal.SIGTERM)
        while any(self.state(pid) != "Z" for pid in pids):
            self.assertLess(time.monotonic() - start, 10, pids)
            time.sleep(0.05)

    def test_while_it_is_inspected(self):
        for name in ("opened-hang", "loaded-hang"):
            for options in ((), ("--ranks=2",)):
                with self.subTest(name=name, options=options):
                    file = self.put(name)
                    self.end(file, True, *options)
                    file.unlink()

    def test_while_the_job_loads_it(self):
        """It was usable when it was inspected."""
        file = self.put("hang-on-request")
        done = subprocess.run([BIN, "plugin", "list"], env=self.environment, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertRegex(done.stdout, r"data +tiny +any +sleepy +1\.0 +usable")
        for options in ((), ("--ranks=2",)):
            self.end(file, False, *options, FIXTURE_HANG="1")


class Job(unittest.TestCase):
    """With 50 plugins more than a job needs, and all that is built here."""

    MANY = 50

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        root = pathlib.Path(self.folder.name).resolve()
        self.dir, self.cache, self.log = root / "dir", root / "cache", root / "log"
        for folder in (self.dir, self.cache, self.log):
            folder.mkdir(mode=0o755)
        self.dir.chmod(0o755)
        self.net = root / "net.ini"
        self.net.write_text(NET)
        code = (FIXTURES / "numbered.so").read_bytes()
        for i in range(self.MANY):
            file = self.dir / f"numbered-{i:02}.so"
            file.write_bytes(code.replace(b"-XX", f"-{i:02}".encode()))
            file.chmod(0o644)

    def dlcore(self, *arguments, **more):
        return dlcore(*arguments, path=self.dir, XDG_CACHE_HOME=str(self.cache), **more)

    def loaded(self, *arguments):
        """The plugins of each process, by the loader's own account."""
        done = self.dlcore("train", self.net, *arguments, LD_DEBUG="files", LD_DEBUG_OUTPUT=str(self.log / "log"))
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = {file.name for folder in (self.dir, BIN.parent.parent / "lib/dlcore/0") for file in folder.glob("*.so")}
        processes = {}
        for log in self.log.iterdir():
            for process, file in re.findall(r"(\d+):\s+calling init: \S*/([\w.-]+\.so)\n", log.read_text()):
                if file in ours:
                    processes.setdefault(process, set()).add(file)
            log.unlink()
        return list(processes.values())

    def test_loads_what_it_uses(self):
        listed = json.loads(self.dlcore("plugin", "list", "--json").stdout)["plugins"]
        states = {pathlib.Path(plugin["path"]).name: plugin["state"] for plugin in listed}
        self.assertEqual(list(states.values()).count("usable") >= self.MANY, True)
        needed = {"device-cpu.so", "data-synthetic.so", "solver-sgd.so", "layers-onednn.so"}
        named = needed | {"transport-host-staged.so"}
        self.assertLessEqual(named, {name for name, state in states.items() if state == "usable"})
        for arguments, wanted in (((), needed), (("--ranks=2", "--transport=host-staged"), named)):
            for process in self.loaded(*arguments):
                # What says that it cannot work here is asked again each time, by nobody but the inspecting child.
                if not all(states[name] == "unavailable" for name in process):
                    self.assertEqual(process, wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
