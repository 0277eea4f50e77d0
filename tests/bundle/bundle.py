#!/usr/bin/env python3
"""Tests packaging/bundle/bundle.py on this build: the bundle is unpacked as an ordinary user,
moved, used in an empty environment, and moved again. It must not look for or load anything
from outside the bundle, except what every system has.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["DLCORE_BUILD_DIR"])
NAME = "dlcore-test"
# What the README.md of the bundle says comes from the machine: the C and C++ libraries; MPI,
# RDMA, HDF5 and NVIDIA's libraries, with their dependencies.
SYSTEM = re.compile(r"/(ld-linux[\w-]*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+))\.so\.[\d.]+$")
MACHINE = re.compile(r"/lib(mpi|ibverbs|rdmacm|mlx\d|nl-[\w-]+|hdf5\w*|cuda|nvidia-ml)\.so\.[\d.]+$"
                     r"|/libibverbs/")


def expect(condition, what):
    if not condition:
        print(what)
        sys.exit(1)


def run(*command, cwd="/", code=0, **environment):
    """In an empty environment."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False)
    expect(done.returncode == code, f"$ {' '.join(map(str, command))}\n{done.stdout}"
           f"{done.stderr}\nexit code {done.returncode}, not {code}")
    return done


def tool(*command):
    return run(*command, PATH=os.environ["PATH"], LC_ALL="C").stdout


# ---- The file ----------------------------------------------------------------------


def check_members(archive):
    """Reproducible, and with permissions that the plugin loader accepts."""
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    expect(names == sorted(names, key=lambda name: pathlib.PurePath(name).parts),
           "the members are not in order")
    expect(all(name.split("/")[0] == NAME for name in names), "more than one folder")
    for member in members:
        expect((member.uid, member.gid, member.uname) == (0, 0, "root"),
               f"{member.name}: owned by {member.uid}, {member.uname}")
        expect(member.issym() or not member.mode & 0o022, f"{member.name}: {member.mode:o}")
        expect(member.mtime == members[0].mtime, f"{member.name}: has another time")
        expect(member.isfile() or member.isdir() or member.issym(), member.name)
    with open(archive, "rb") as file:
        expect(file.read(8)[3:] == bytes(5), "the gzip header has a name or a time")


def check_files(root):
    """Files other than programs."""
    for name in ("README.md", "LICENSE", "licenses/SOURCES", "share/man/man1/dlcore.1",
                 "share/bash-completion/completions/dlcore", "include/dlcore/dlcore.h",
                 "share/dlcore/models/lenet-fashion.ini"):
        expect((root / name).is_file(), f"{name} is missing")
    readme = (root / "README.md").read_text(encoding="utf-8")
    expect("@" not in readme and re.search(r"glibc is 2\.\d+ ", readme), readme)
    sources = (root / "licenses/SOURCES").read_text(encoding="utf-8")
    listed = set(re.findall(r"^    (\S+)$", sources, re.M))
    lib = next(root.rglob("libdlcore.so.0")).parent
    theirs = {path.name for folder in (lib, lib / "ucx") if folder.is_dir()
              for path in folder.iterdir()
              if ".so" in path.name and not path.name.startswith("libdlcore")}
    expect(theirs <= listed, f"not listed in licenses/SOURCES: {theirs - listed}")
    # Brought by a module of UCX's benchmark.
    expect(not any(name.startswith("libLLVM") for name in theirs), theirs)
    for package in re.findall(r"^(\S+) \S+ \(source: ", sources, re.M):
        expect((root / f"licenses/{package}.copyright").stat().st_size > 100, package)
    return lib


def check_links(root, lib):
    """Each program and library finds its dependencies in the bundle."""
    objects = [path for path in root.rglob("*") if path.is_file() and not
               path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
    expect(len(objects) > 15, f"only {len(objects)} programs and libraries")
    for path in objects:
        dynamic = tool("readelf", "-dW", path)
        expect("(RPATH)" not in dynamic, f"{path.name}: RPATH cannot be overridden")
        for folders in re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic):
            for folder in folders.split(":"):
                real = os.path.realpath(folder.replace("$ORIGIN", str(path.parent)))
                expect(folder.startswith("$ORIGIN") and real.startswith(str(lib)),
                       f"{path.name}: looks in '{folder}'")
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            expect((lib / name).is_file() or (path.parent / name).is_file()
                   or SYSTEM.search(f"/{name}") or MACHINE.search(f"/{name}"),
                   f"{path.name}: {name} was not found")
        expect(str(BUILD).encode() not in path.read_bytes(), f"{path}: contains the path of the build")


# ---- Its use -----------------------------------------------------------------------


def check_loaded(root, *words, wanted=()):
    """Runs dlcore and checks that every file which the dynamic loader opened, in any process,
    is in the bundle or the system's, and that those `wanted` are among them. Returns its
    output."""
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        done = run(root / "bin/dlcore", *words, LD_DEBUG="files",
                   LD_DEBUG_OUTPUT=f"{folder}/loader")
        traced = "".join(path.read_text(encoding="utf-8")
                       for path in pathlib.Path(folder).iterdir())
    opened = {os.path.realpath(path)
              for path in re.findall(r"calling init: (/.+)$", traced, re.M)}
    inside = {path for path in opened if path.startswith(f"{root}/")}
    expect(len(inside) > 5, f"the loader reported nothing: {opened}")
    foreign = sorted(path for path in opened - inside
                     if not SYSTEM.search(path) and not MACHINE.search(path))
    expect(not foreign, f"loaded from elsewhere: {foreign}")
    lacking = {*wanted, "libdlcore.so"} - {os.path.basename(path).split(".so")[0] + ".so"
                                           for path in inside}
    expect(not lacking, f"not loaded: {lacking}")
    return done.stdout


def check_use(root, work):
    net = SOURCE / "tests/bundle/net.ini"
    listed = json.loads(check_loaded(root, "plugin", "list", "--json"))
    refused = [entry for entry in listed["plugins"] if entry["state"] == "refused"]
    expect(not refused and len(listed["plugins"]) > 8, listed)
    # For ucx also a module that UCX opens itself.
    transports = {"host-staged": ["libdnnl.so"], "p2p-tree": ["libgomp.so"]}
    if next(root.rglob("transport-ucx.so"), None):
        transports["ucx"] = ["libucp.so", "libuct_cma.so"]
    for name, wanted in transports.items():
        said = json.loads(check_loaded(root, "train", net, "--json", "--ranks=2",
                                       f"--transport={name}", f"--run-dir={work / name}",
                                       wanted=wanted))
        expect(said["transport"] == name and said["iterations"] == 4, said)


def check_sdk(root, lib, work):
    """pkg-config and CMake find the current location."""
    said = tool("env", f"PKG_CONFIG_PATH={lib}/pkgconfig", "pkg-config",
                "--variable=pluginsdir", "dlcore").strip()
    expect(os.path.realpath(said) == str(lib / "dlcore/0"), said)
    (work / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(finds NONE)\n"
        "find_package(dlcore REQUIRED)\n"
        "message(STATUS \"in ${dlcore_PLUGINS_DIR}, ${dlcore_COMMAND}\")\n",
        encoding="utf-8")
    said = tool("cmake", "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={root}")
    expect(f"in {lib}/dlcore/0, {root}/bin/dlcore" in said, said)


def main():
    if not shutil.which("dpkg-query"):
        print("skipped: this is not Debian")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="dlcore-bundle-") as folder:
        work = pathlib.Path(folder).resolve()
        archive = work / f"{NAME}.tar.gz"
        tool(SOURCE / "packaging/bundle/bundle.py", BUILD, archive, "--level=1")
        check_members(archive)
        # A user who is not root gets permissions by umask, commonly 002.
        tool("sh", "-c", f"umask 002 && cd {work} && tar --no-same-permissions "
             f"--no-same-owner -xzf {archive.name}")
        places = [work / NAME, work / "moved here", work / "and" / "there"]
        places[2].parent.mkdir()
        places[0].rename(places[1])
        root = places[1]
        lib = check_files(root)
        check_links(root, lib)
        # Would load all of this machine's MPI and HDF5; most machines have none.
        for name in ("transport-mpi.so", "data-hdf5.so"):
            (lib / "dlcore/0" / name).unlink(missing_ok=True)
        check_use(root, work)
        root = places[1].rename(places[2])
        lib = next(root.rglob("libdlcore.so.0")).parent
        check_loaded(root, "doctor")
        check_sdk(root, lib, work)


if __name__ == "__main__":
    main()
