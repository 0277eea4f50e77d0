#!/usr/bin/env python3
"""Makes one tar file of a build, which runs wherever it is unpacked.

    bundle.py BUILD OUT.tar.gz [--level N]

It has what `cmake --install` installs and, in the same lib/, the shared libraries that
this needs and that a minimal distribution may lack. dlcore's own files find them by their
install RPATH; the libraries, which come from this system's packages, get one from patchelf.
licenses/ lists these packages and their licenses. The result is reproducible.
"""

import argparse
import email.utils
import gzip
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]

# Always from the machine. A process can have only one C library, and its C++ library must be
# the newest that anything in the process needs, such as a driver; every distribution with a
# package manager has one.
SYSTEM = re.compile(r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libutil"
                    r"|libgcc_s|libstdc\+\+)\.so\.\d+$")
# Also from the machine, if it has them: MPI must be that of its mpirun, and RDMA libraries
# must match its drivers; Debian's HDF5 needs curl, and with it thirty libraries for networks.
# Plugins that need them report it if they are missing.
MACHINE = re.compile(r"(libmpi|libmpich|libibverbs|librdmacm|libmlx\d+|libhdf5\w*)\.so\.\d+$")
# Opened by name, so no ELF file lists them: plugin, library, and the modules that the library
# opens in a folder beside it. There, libucx_perftest_* are for UCX's own benchmark only; Debian
# 13's need AMD's compiler, five times as large as everything else.
OPENED = [("transport-ucx.so", "libucp.so.0", "ucx/libuc[mst]_*.so.0")]
# The CUDA runtime is linked into these, so its license must be included.
CUDA = ("device-cuda.so", "layers-cudnn.so", "transport-nccl.so")


def die(text):
    sys.exit(f"bundle: {text}")


def output(*command, **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
    try:
        done = subprocess.run([str(word) for word in command], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(clean, LC_ALL="C"), **more)
    except FileNotFoundError:
        die(f"{command[0]} is missing; packaging/deps.sh installs it")
    if done.returncode:
        die(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout}")
    return done.stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def elves(folder):
    return [path for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and is_elf(path)]


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path))


def newest(paths, name):
    """The highest symbol version, like 2.36 of GLIBC_2.36, that any of the files needs."""
    found = [()]
    for path in paths:
        for version in re.findall(rf"Name: {name}_([\d.]+)", output("readelf", "-VW", path)):
            found.append(tuple(map(int, version.split("."))))
    return ".".join(map(str, max(found)))


# ---- What is in it -----------------------------------------------------------------


def install(build, stage):
    output("cmake", "--install", build, "--prefix", stage, "--strip")
    # Makes the prefix relative, since `cmake --install --prefix` writes an absolute path.
    for path in stage.rglob("dlcore.pc"):
        up = "/".join(".." for _ in path.parent.relative_to(stage).parts)
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^prefix=.*$", f"prefix=${{pcfiledir}}/{up}", text, flags=re.M)
        path.write_text(text, encoding="utf-8")
    # Removes folders of this machine from RUNPATHs.
    for path in elves(stage):
        found = re.search(r"\(RUNPATH\).*\[(.*)\]", output("readelf", "-dW", path))
        folders = found[1].split(":") if found else []
        kept = [name for name in folders if name.startswith("$ORIGIN")]
        if kept != folders:
            output("patchelf", "--set-rpath", ":".join(kept), path)


def find_library(name):
    """The path of a library according to the system's loader."""
    for line in output("/sbin/ldconfig", "-p").splitlines():
        words = line.split()
        if words and words[0] == name:
            return pathlib.Path(words[-1])
    return die(f"{name} is not installed; packaging/deps.sh installs it")


def gather(stage, lib):
    """Copies needed libraries to lib; returns {copy: original}."""
    copies = {}

    def take(original, folder):
        copy = folder / original.name
        shutil.copyfile(original, copy)
        runpath = "$ORIGIN" if folder == lib else "$ORIGIN:$ORIGIN/.."
        output("patchelf", "--set-rpath", runpath, copy)
        copies[copy] = original.resolve()
        return original

    waiting = elves(stage)
    for plugin, name, modules in OPENED:
        path = lib / "dlcore/0" / plugin
        if not path.is_file():
            continue
        if name.encode() not in path.read_bytes():
            die(f"{plugin} no longer opens {name}: update OPENED in bundle.py")
        original = find_library(name)
        waiting.append(take(original, lib))
        for module in sorted(original.resolve().parent.glob(modules)):
            folder = lib / module.parent.name
            folder.mkdir(exist_ok=True)
            waiting.append(take(module, folder))
    while waiting:
        path = waiting.pop()
        where = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", path), re.M))
        for name in needed(path):
            if SYSTEM.match(name) or MACHINE.match(name) or (lib / name).exists() or \
                    (lib / path.parent.name / name).exists():
                continue
            if name not in where:
                die(f"{path} needs {name}, which was not found")
            waiting.append(take(pathlib.Path(where[name]), lib))
    return copies


# ---- Licenses ----------------------------------------------------------------------


def package_of(path):
    for name in (str(path), str(path).replace("/usr/", "/", 1)):
        done = subprocess.run(["dpkg-query", "-S", name], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return die(f"{path} belongs to no Debian package, so its license is unknown")


def licenses(copies, folder):
    """Copies the copyright files of all packages whose libraries were copied, and the license
    texts that these refer to; returns a list of packages and libraries."""
    folder.mkdir()
    packages, lines, common = {}, [], set()
    for copy, original in sorted(copies.items()):
        packages.setdefault(package_of(original), []).append(copy.name)
    for package, names in sorted(packages.items()):
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
        (folder / f"{package}.copyright").write_bytes(text)
        common |= set(re.findall(rb"/usr/share/common-licenses/([A-Za-z0-9.+-]*\w)", text))
        form = "${Version}\t${source:Package} ${source:Version}"
        version, source = output("dpkg-query", "-W", "-f", form, package).split("\t")
        lines.append(f"{package} {version} (source: {source})\n"
                     + "".join(f"    {name}\n" for name in sorted(names)))
    for name in sorted(common):
        shutil.copyfile(f"/usr/share/common-licenses/{name.decode()}",
                        folder / name.decode())
    return lines


def toolkit(build):
    """Where CMake found the CUDA toolkit; nvcc itself may be a script elsewhere."""
    for path in sorted((build / "CMakeFiles").glob("*/CMakeCUDACompiler.cmake")):
        match = re.search(r'\(CMAKE_CUDA_COMPILER_TOOLKIT_ROOT "(.+)"\)',
                          path.read_text(encoding="utf-8"))
        if match:
            return pathlib.Path(match[1])
    return die(f"{build} does not say where the CUDA toolkit is")


def cuda_license(build, folder):
    root = toolkit(build)
    found = [*root.glob("EULA.txt"),
             *root.glob("dist-info/nvidia_cuda_runtime-*/licenses/*"),
             *pathlib.Path("/usr/share/doc").glob("nvidia-cuda-dev/copyright")]
    if not found:
        die(f"{root} has no EULA.txt; which must be included with the CUDA runtime")
    shutil.copyfile(found[0], folder / "cuda-runtime.copyright")
    return ["NVIDIA's CUDA runtime, linked into\n"
            + "".join(f"    {name}\n" for name in CUDA)]


# ---- The whole ---------------------------------------------------------------------


def cached(build, name):
    text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{name}:\w+=(.*)$", text, re.M)
    return match[1] if match else die(f"{build} has no {name}")


def fill(template, words):
    text = (HERE / template).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z]+)@", lambda match: words[match[1]], text)


def stage_all(build, stage):
    install(build, stage)
    lib = next(stage.rglob("libdlcore.so.0")).parent
    copies = gather(stage, lib)
    lines = licenses(copies, stage / "licenses")
    if (lib / "dlcore/0" / CUDA[0]).exists():
        lines += cuda_license(build, stage / "licenses")
    files = elves(stage)
    words = {"VERSION": cached(build, "CMAKE_PROJECT_VERSION"), "LIB": lib.name,
             "GLIBC": newest(files, "GLIBC"), "GLIBCXX": newest(files, "GLIBCXX")}
    (stage / "licenses/SOURCES").write_text(
        fill("SOURCES.in", words) + "\n" + "\n".join(lines), encoding="utf-8")
    (stage / "README.md").write_text(fill("README.md.in", words), encoding="utf-8")
    shutil.copyfile(SOURCE / "LICENSE", stage / "LICENSE")
    return words


def moment():
    """The time of all files: the newest entry of the changelog, as in manual pages."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    text = (SOURCE / "packaging/debian/changelog").read_text(encoding="utf-8")
    stamp = re.search(r"^ -- .*>  (.*)$", text, re.M)[1]
    return int(email.utils.parsedate_to_datetime(stamp).timestamp())


def pack(stage, out, level):
    """Packs the files sorted, with one time and owner, and writable by the owner only: dlcore
    refuses plugins that others can change, and a umask can only remove permissions."""
    when = moment()

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = when
        runs = member.isdir() or member.name.startswith(f"{top}/bin/")
        member.mode = 0o777 if member.issym() else 0o755 if runs else 0o644
        return member

    top = out.name[:-len(".tar.gz")]
    part = out.with_name(out.name + ".part")
    with open(part, "wb") as file, \
            gzip.GzipFile("", "wb", level, file, mtime=0) as packed, \
            tarfile.open(mode="w", fileobj=packed, format=tarfile.GNU_FORMAT) as tar:
        for path in [stage, *sorted(stage.rglob("*"))]:
            tar.add(path, pathlib.Path(top) / path.relative_to(stage), recursive=False,
                    filter=plain)
    part.replace(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--level", type=int, default=9, help="compression level of gzip")
    args = parser.parse_args()
    if not args.out.name.endswith(".tar.gz"):
        die(f"{args.out}: the name must end in .tar.gz")
    if not shutil.which("dpkg-query"):
        die("bundles can only be made on Debian, whose packages have the licenses")
    with tempfile.TemporaryDirectory(dir=args.out.resolve().parent) as folder:
        stage = pathlib.Path(folder) / "stage"
        words = stage_all(args.build.resolve(), stage)
        pack(stage, args.out, args.level)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, for {platform.machine()} with glibc "
          f"{words['GLIBC']} and libstdc++ of GLIBCXX_{words['GLIBCXX']}, or newer")


if __name__ == "__main__":
    main()
