#!/usr/bin/env python3
"""Uses dlcore as somebody does who has only the installed packages. Each word is a test:

  install        cmake --install into a scratch folder, and the values in dlcore.pc
  docs           every command of docs/writing-plugins.md (blocks that begin ```sh run)
  new            dlcore plugin new: what it refuses, and that failures leave no files
  cxx            a solver in C++: its rule is built as in C
  package        a Debian package of a plugin that `plugin new` made
  packages       every installed file is in one Debian package and in one RPM (packages.py)
  man            the manual pages: all present, none with a warning
  completion     what completion in bash offers
  example NAME   examples/NAME, copied out of the tree, built and tested
"""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["DLCORE_BUILD_DIR"])
PREFIX = BUILD / "tests/sdk/prefix"
KINDS = ("device", "transport", "layer", "solver", "consistency", "data", "decoder")
SKIP = 77


def environment():
    """The environment of a third party: nothing of this build except the installation."""
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("DLCORE_", "CMAKE_", "CTEST_", "DEB_", "DH_", "DPKG_",
                                  "MAKE", "MFLAGS", "DESTDIR"))}
    clean["PATH"] = f"{PREFIX / 'bin'}:{clean['PATH']}"
    clean["CMAKE_PREFIX_PATH"] = str(PREFIX)
    clean["DLCORE_CONFORMANCE_TIMEOUT_SCALE"] = "6"  # other tests need the cores, too
    library = next(PREFIX.rglob("libdlcore.so.0"))
    clean["LD_LIBRARY_PATH"] = str(library.parent)  # packages install without RPATH
    clean["PKG_CONFIG_PATH"] = str(library.parent / "pkgconfig")
    # An RPM installs to lib64, where CMake on Debian does not look.
    if library.parent.name == "lib64" and pathlib.Path("/etc/debian_version").exists():
        clean["dlcore_DIR"] = str(library.parent / "cmake/dlcore")
    return clean


def run(*command, cwd=None, env=None, code=0):
    """Runs a command and returns its output; fails unless its exit code is `code`."""
    done = subprocess.run([str(word) for word in command], cwd=cwd,
                          env=env or environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200)
    if done.returncode != code:
        print(f"$ {' '.join(map(str, command))}\n{done.stdout}\n"
              f"exit code {done.returncode}, not {code}")
        sys.exit(1)
    return done.stdout


def expect(condition, what):
    if not condition:
        print(what)
        sys.exit(1)


def plugin_abi():
    """The version of the interface that the installed header has."""
    text = (PREFIX / "include/dlcore/plugin.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"^#define DLC_ABI_{part} (\d+)$", text, re.MULTILINE)[1]
                    for part in ("MAJOR", "MINOR"))


def build_and_test(folder):
    run("cmake", "-S", folder, "-B", folder / "build")
    run("cmake", "--build", folder / "build", "-j", "2")
    print(run("ctest", "--test-dir", folder / "build", "--output-on-failure",
              "--no-tests=error"))


def install(_work):
    shutil.rmtree(PREFIX, ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", PREFIX, env=os.environ)
    for folder in [PREFIX, *PREFIX.rglob("dlcore/0")]:
        folder.chmod(folder.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    said = {name: run("pkg-config", f"--variable={name}", "dlcore").strip()
            for name in ("pluginsdir", "abi", "plugin_abi", "includedir", "prefix")}
    expect(said["prefix"] == str(PREFIX), f"prefix={said['prefix']}")
    expect(said["abi"] == "0", f"abi={said['abi']}")
    expect(said["plugin_abi"] == plugin_abi(), f"plugin_abi={said['plugin_abi']}")
    for script in PREFIX.rglob("dlcoreConfig.cmake"):
        expect(f"set(DLCORE_PLUGIN_ABI {plugin_abi()})" in script.read_text(), script)
    expect((pathlib.Path(said["pluginsdir"]) / "device-cpu.so").is_file(),
           f"pluginsdir={said['pluginsdir']}")
    expect((pathlib.Path(said["includedir"]) / "dlcore/dlcore.h").is_file(),
           f"includedir={said['includedir']}")
    version = run("pkg-config", "--modversion", "dlcore").strip()
    expect(run("dlcore", "--version").strip() == f"dlcore {version}", version)


def docs(work):
    """Runs all blocks in one shell in order, as a reader would."""
    text = (SOURCE / "docs/writing-plugins.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh run\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    expect(len(blocks) >= 5, "writing-plugins.md has fewer than five blocks of commands")
    for kind in KINDS:
        expect(any(f"dlcore plugin new {kind} " in block for block in blocks),
               f"writing-plugins.md makes no {kind}")
    # With `set -e`, `! command` never ends a script; here the command must fail.
    lines = [re.sub(r"^! (.*)$", r"if \1; then exit 1; fi", line)
             for line in "".join(blocks).splitlines()]
    script = work / "commands.sh"
    script.write_text("\n".join(["set -eux", *lines, ""]), encoding="utf-8")
    print(run("sh", script, cwd=work))


def new(work):
    def refuse(words, sentence, code=2, prefix=()):
        before = sorted(work.rglob("*"))
        said = run(*prefix, "dlcore", "plugin", "new", *words, cwd=work, code=code)
        expect(sentence in said, f"{words}: {said}")
        expect(said.count("\n") <= 2, f"more than a sentence: {said}")
        expect(sorted(work.rglob("*")) == before, f"{words} left something behind")

    said = run("dlcore", "plugin", "--help")
    missing = [kind for kind in KINDS if not re.search(rf"Kinds:[^.]*\b{kind}\b", said)]
    expect(not missing, f"the help lacks {missing}: {said}")
    said = run("dlcore", "plugin", "new", cwd=work, code=2)
    expect(all(kind in said for kind in KINDS), said)
    refuse(["layr", "x"], "did you mean 'layer'?")
    refuse(["", "x"], "the kinds are device")
    for name in ("", "X", "9x", "-x", "_x", "x/y", "../x", "x y", "x.", "ü", "x" * 41):
        refuse(["layer", "--", name], "is not a valid plugin name")
    refuse(["layer"], "needs a kind")
    refuse(["layer", "x", "y"], "one argument too many")
    refuse(["layer", "x", "--json"], "--json goes with list, inspect and check")
    refuse(["layer", "x", "--dir", ""], "--dir is empty")
    refuse(["layer", "x", "--dir", "no/such/folder"], "No such file", code=1)
    (work / "there").mkdir()
    refuse(["layer", "x", "--dir", "there/"], "already exists")
    (work / "layer-x").symlink_to("nowhere")
    refuse(["layer", "x"], "already exists")
    # One that would never be used, since the other comes first.
    refuse(["solver", "sgd"], "there is a solver 'sgd' already")
    refuse(["layer", "relu"], "there is a layer 'relu' already, by plugin ")
    refuse(["layer", "sgd"], "there is a plugin 'sgd' already")
    # The first long file cannot be written, as if the disk were full.
    refuse(["solver", "x"], "File too large", code=1, prefix=("prlimit", "--fsize=500"))

    # The longest name is filled in everywhere, and no placeholder is left.
    name = "a" + "-9z" * 13
    run("dlcore", "plugin", "new", "device", name, "--dir", "made", cwd=work)
    files = [path for path in (work / "made").rglob("*") if path.is_file()]
    expect(len(files) > 10, files)
    for path in files:
        text = path.read_text(encoding="utf-8")
        expect("NAME" not in path.name and not re.search("@[A-Z]+@", text), path)
    expect(os.access(work / "made/debian/rules", os.X_OK), "debian/rules")
    expect(os.access(work / "made/tests/train.sh", os.X_OK), "tests/train.sh")

    # Features may have a '_' in their names, packages may not.
    run("dlcore", "plugin", "new", "layer", "soft_sign", cwd=work)
    control = (work / "layer-soft_sign/debian/control").read_text(encoding="utf-8")
    expect("Package: dlcore-layer-soft-sign\n" in control, control)
    expect('.name = "soft_sign"' in (work / "layer-soft_sign/soft_sign.c").read_text(encoding="utf-8"), "soft_sign.c")


def package(work):
    if not shutil.which("dpkg-query"):
        print("skipped: this is not Debian")
        sys.exit(SKIP)
    run("dlcore", "plugin", "new", "solver", "packed", cwd=work)
    # -d: the dependencies are installed, but not as packages. nocheck: `docs` runs its tests.
    run("dpkg-buildpackage", "-d", "-b", "-us", "-uc", cwd=work / "solver-packed",
        env=dict(environment(), DEB_BUILD_OPTIONS="nocheck"))
    made = next(work.glob("dlcore-solver-packed_*.deb"))
    listing = run("dpkg", "-c", made)
    folder = run("pkg-config", "--variable=pluginsdir", "dlcore").strip()
    expect(f".{folder}/solver-packed.so" in listing, listing)
    run("dpkg", "-x", made, work / "root")
    said = run("readelf", "--dynamic", work / f"root{folder}/solver-packed.so")
    expect("[libc." in said, said)
    # Neither another draft of the interface nor none: a newer dlcore refuses the plugin.
    needs = run("dpkg-deb", "--field", made, "Depends").strip().split(", ")
    ours = [name for name in needs if name.startswith("dlcore")]
    expect(ours == [f"dlcore-plugin-abi-{plugin_abi()}"], needs)
    # Without dlcore.pc nothing says which draft it is.
    lost = run("dpkg-buildpackage", "-d", "-b", "-us", "-uc", cwd=work / "solver-packed", code=2,
               env=dict(environment(), DEB_BUILD_OPTIONS="nocheck", PKG_CONFIG_PATH=""))
    expect("dlcore.pc was not found" in lost, lost)
    rpm_of_a_plugin(work)


def rpm_of_a_plugin(work):
    if not shutil.which("rpmspec"):
        return
    spec = work / "solver-packed/packed.spec"
    needs = re.findall(r"^dlcore[^\s(]*", run("rpmspec", "-q", "--requires", spec), re.MULTILINE)
    expect(needs == [f"dlcore-plugin-abi-{plugin_abi()}"], needs)


def packages(_work):
    print(run(SOURCE / "tests/sdk/packages.py", PREFIX))


def help_of(*words):
    text = run("dlcore", *words, "--help")
    expect(all(len(line) <= 80 for line in text.splitlines()), f"more than 80 columns: {text}")
    return text


def commands():
    """The words of each command that has options: ["train"], ["bench", "comm"], ..."""
    for name in re.findall(r"^  ([a-z]+) ", help_of(), re.MULTILINE):
        text = help_of(name)
        subjects = [] if "--help  " in text else re.findall(r"^  ([a-z]+) ", text, re.MULTILINE)
        yield from ([name, subject] for subject in subjects)
        if not subjects:
            yield [name]


def options_of(words):
    """["-q, --quiet log only warnings and errors", ...] as --help shows them."""
    text = help_of(*words)
    found = re.findall(r"^ {2,6}(-.*(?:\n {20,}\S.*)*)", text, re.MULTILINE)
    expect(len(found) > 2, text)
    return [re.sub(r"\s+", " ", option) for option in found]


def man_of_the_options(folder):
    """Each page has the options of --help, each with its own description."""
    shown = {}
    for words in commands():
        shown.setdefault(words[0], set()).update(options_of(words))
    for name, options in shown.items():
        page = (folder / f"man1/dlcore-{name}.1").read_text(encoding="utf-8")
        entries = re.findall(r"^\.TP\n\\fB(.*)\\fR\n(.*)", page.replace("\\-", "-"), re.MULTILINE)
        written = {" ".join(entry) for entry in entries}
        expect(written == options, f"dlcore-{name}(1) and --help differ: {written ^ options}")


def man(_work):
    folder = PREFIX / "share/man"
    expect(folder.is_dir(), "no pages were made")
    listed = re.findall(r"^  ([a-z]+) ", run("dlcore", "--help"), re.MULTILINE)
    expect(len(listed) >= 8, listed)
    pages = [folder / "man1" / f"{name}.1"
             for name in ["dlcore", *(f"dlcore-{word}" for word in listed)]]
    headers = [path.stem for path in (PREFIX / "include/dlcore").glob("*.h")]
    pages += [folder / "man3" / f"dlcore_{name}.3" for name in headers
              if name != "dlcore"]
    pages.append(folder / "man5/dlcore-net.ini.5")
    run("mandoc", "-Tlint", "-Wwarning", *pages)
    # Calls of a table and options of a command are in the pages.
    text = run("mandoc", "-Tutf8", "-Owidth=200", folder / "man3/dlcore_transport.3")
    text = re.sub(".\b", "", text)
    expect("dlc_status (*send)(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, " in
           text and "without waiting for a peer." in text, text)
    text = run("mandoc", "-Tutf8", folder / "man1/dlcore-train.1")
    for option in ("--ranks=N", "--resume=PATH|auto", "-q, --quiet"):
        expect(option in re.sub(".\b", "", text), option)
    for name in ("dlc_transport_ops", "dlc_host", "dlc_shape_count"):
        line = (folder / f"man3/{name}.3").read_text(encoding="utf-8")
        expect((folder / line.split()[1]).is_file(), line)
    man_of_the_options(folder)
    man_of_the_environment(re.sub(".\b", "", run("mandoc", "-Tutf8", "-Owidth=200",
                                                 folder / "man1/dlcore.1")))


def man_of_the_environment(page):
    """dlcore(1) lists every variable that the sources read and every signal that a job
    handles, and no DLCORE_ variable that nothing reads."""
    sources = [path for part in ("core", "plugins", "tools")
               for path in sorted((SOURCE / part).rglob("*.c"))
               if "templates" not in path.parts]
    read, ours, signals = set(), set(), set()
    for path in sources:
        text = path.read_text(encoding="utf-8")
        read |= set(re.findall(r'(?:getenv|environment_text|environment_number|number_of)\("([A-Z_]+)"', text))
        for words in re.findall(r"names\[\] = \{([^}]*)\}|slurm\[\] = \{([^}]*)\}", text):
            read |= set(re.findall(r'"([A-Z]+_[A-Z_]+)"', "".join(words)))
        ours |= set(re.findall(r'"(DLCORE_[A-Z_]+)"', text))
        signals |= set(re.findall(r"sigaddset\([^,]+, (SIG[A-Z0-9]+)\)", text))
    signals -= {"SIGCHLD"}  # internal to the process that waits
    read -= {"LC_ALL"}  # common to all programs; `plugin check` compares it
    expect(len(read) > 25 and len(ours) > 5 and len(signals) > 4, (read, ours, signals))
    words = set(re.findall(r"[A-Z][A-Z0-9_]+", page))
    missing = sorted((read | ours | signals) - words)
    expect(not missing, f"dlcore(1) lacks {missing}")
    gone = sorted(word for word in words if word.startswith("DLCORE_") and word not in ours)
    expect(not gone, f"nothing reads {gone}")
    # Each needs an entry of its own, not only a mention in the text of another one.
    section = re.search(r"(?ms)^ENVIRONMENT$(.*?)^FILES$", page)[1]
    indent = re.search(r"(?m)^ +(?=DLCORE_PLUGIN_PATH)", section)[0]
    terms = "\n".join(re.findall(rf"(?m)^{indent}\S.*$", section))
    without = sorted(word for word in read | ours if not re.search(rf"\b{word}\b", terms)
                    and not word.startswith("UCX_") and word != "GOMP_SPINCOUNT")
    expect(not without, f"dlcore(1) has no entry for {without}")


def completion(work):
    script = PREFIX / "share/bash-completion/completions/dlcore"

    def offered(*words):
        """The completions after `dlcore` and these words, the last of which is incomplete.
        As in readline, = is a word of its own."""
        current = "" if words[-1] == "=" else words[-1]
        previous = ["dlcore", *words][-2]
        code = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                'compopt() { :; }; _dlcore dlcore "$CURRENT" "$PREVIOUS"; '
                'printf "%s\\n" "${COMPREPLY[@]}"')
        return run("bash", "-c", code, "bash", script, "dlcore", *words,
                   env=dict(environment(), CURRENT=current, PREVIOUS=previous)).split()

    listed = re.findall(r"^  ([a-z]+) ", run("dlcore", "--help"), re.MULTILINE)
    expect(sorted(offered("")) == sorted(listed), offered(""))
    expect(offered("tra") == ["train"], offered("tra"))
    for command in commands():
        options = re.findall(r"(?m)^(?:-., )?(--[a-z-]+=?)", "\n".join(options_of(command)))
        expect(sorted(offered(*command, "--")) == sorted(options), (command, options))
    expect({"list", "inspect", "new"} <= set(offered("plugin", "")),
           offered("plugin", ""))
    expect(offered("bench", "") == ["comm"], offered("bench", ""))
    expect(offered("plugin", "new", "la") == ["layer"], "plugin new la")
    expect("convolution" in offered("plugin", "inspect", "conv"), "inspect conv")
    expect("auto" in offered("train", "net.ini", "--transport", "="), "--transport=")
    expect(offered("train", "--solver", "=", "sg") == ["sgd"], "--solver=sg")
    expect(offered("train", "--scaling", "=", "w") == ["weak"], "--scaling=w")
    expect(sorted(offered("topo", "--of", "=")) == ["ascii", "json", "svg"], "topo --of=")
    expect(offered("time", "--order", "n") == ["net"], "time --order n")
    expect("auto" in offered("train", "--resume", "=", "au"), "--resume=au")
    expect(sorted(offered("predict", "--data", "=")) == ["test", "train"], "predict --data=")
    expect(not offered("train", "--epochs", "="), "--epochs=")
    (work / "w.safetensors").touch()
    expect(offered("test", "--weights", "=", f"{work}/w") == [f"{work}/w.safetensors"],
           "--weights=FILE")
    completion_of_settings(work, offered)


def completion_of_settings(work, offered):
    net = work / "small.ini"
    net.write_text("[solver]\ntype = sgd\n[pool]\ntype = pooling\n", encoding="utf-8")
    expect({"train.", "solver.", "data.test."} <= set(offered("train", "--set", "")), "--set")
    expect(offered("train", str(net), "--set", "poo") == ["pool."], "a layer of the net")
    expect(offered("train", "--set", "=", "train.prec") == ["train.precision="], "a key")
    expect("solver.momentum=" in offered("train", str(net), "--set", "solver.mo"),
           "a key of the solver")
    expect(offered("train", "--set", "train.precision", "=", "b") == ["bf16"], "a value")
    expect(offered("train", "--set", "=", "train.bind", "=") == ["true", "false"], "a switch")
    for key, name in (("solver.type", "sgd"), ("data.test.source", "idx"), ("train.device", "cpu"),
                      ("pool.type", "pooling")):
        expect(name in offered("check", str(net), "--set", key, "=", name[:2]), key)
    expect("average" in offered("check", str(net), "--set", "pool.method", "=", "a"),
           "a value of a layer's key")


def cxx(work):
    """Bitwise identical results need code without FMA, which x86-64-v4 has."""
    (work / "rule.cpp").write_text((SOURCE / "tests/sdk/rule.cpp").read_text())
    (work / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(rule VERSION 1.0 LANGUAGES CXX)\n"
        "set(CMAKE_BUILD_TYPE RelWithDebInfo)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
        "find_package(dlcore REQUIRED)\ndlcore_add_plugin(solver rule SOURCES rule.cpp)\n"
        "target_compile_options(solver-rule PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Werror)\n")
    run("cmake", "-S", work, "-B", work / "build")
    run("cmake", "--build", work / "build")
    run("dlcore", "plugin", "check", work / "build/plugins/solver-rule.so")
    command = (work / "build/compile_commands.json").read_text()
    expect("-ffp-contract=off" in command and "-O3" in command, command)


def example(work, name):
    copy = work / name
    shutil.copytree(SOURCE / "examples" / name, copy)
    build_and_test(copy)


def main():
    test = {"install": install, "docs": docs, "new": new, "cxx": cxx, "package": package,
            "packages": packages, "man": man, "completion": completion,
            "example": example}[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="dlcore-sdk-") as folder:
        os.chmod(folder, 0o755)
        test(pathlib.Path(folder).resolve(), *sys.argv[2:])


if __name__ == "__main__":
    main()
