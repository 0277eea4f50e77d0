#!/usr/bin/env python3
"""Makes one tar file of a build, which runs wherever it is unpacked.

    bundle.py BUILD OUT.tar.gz [--level N]

It has what `cmake --install` installs, and the shared libraries that this needs and that
a bare distribution may lack, in the same lib/. The project's own files find those beside
them (cmake's install RPATH); the libraries come from this system's packages without
one, and get theirs from patchelf. What of the system they come from, and under which
licence, is gathered in licenses/. The same build gives the same bytes.
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

# Always the machine's own. Of the C library there can be one in a process; that of C++
# must be the newest that anything in the process wants, say a driver's, and every
# distribution has it that has a package manager.
SYSTEM = re.compile(r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libutil"
                    r"|libgcc_s|libstdc\+\+)\.so\.\d+$")
# The machine's, too, where there are any: MPI must be the one that its mpirun belongs
# to, the libraries of RDMA those of its drivers. What wants them says so where they
# are missing, and harms nothing.
MACHINE = re.compile(r"(libmpi|libmpich|libibverbs|librdmacm|libmlx\d+)\.so\.\d+$")
# Opened by name, so that no file says that it needs them: plugin, library, and the folder
# beside it out of which that library opens others.
OPENED = [("transport-ucx.so", "libucp.so.0", "ucx")]
# The CUDA runtime is linked into these; NVIDIA's licence goes along with it.
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
    """The highest version of symbols, like (2, 36) of GLIBC_2.36, that any one wants."""
    found = [()]
    for path in paths:
        for version in re.findall(rf"Name: {name}_([\d.]+)", output("readelf", "-VW", path)):
            found.append(tuple(map(int, version.split("."))))
    return ".".join(map(str, max(found)))


# ---- What is in it -----------------------------------------------------------------


def install(build, stage):
    output("cmake", "--install", build, "--prefix", stage, "--strip")
    # `cmake --install --prefix` writes down where it installs; pkg-config can tell.
    for path in stage.rglob("dlcore.pc"):
        up = "/".join(".." for _ in path.parent.relative_to(stage).parts)
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^prefix=.*$", f"prefix=${{pcfiledir}}/{up}", text, flags=re.M)
        path.write_text(text, encoding="utf-8")
    # Nor is a folder of this machine of any use that something was linked from.
    for path in elves(stage):
        found = re.search(r"\(RUNPATH\).*\[(.*)\]", output("readelf", "-dW", path))
        folders = found[1].split(":") if found else []
        kept = [name for name in folders if name.startswith("$ORIGIN")]
        if kept != folders:
            output("patchelf", "--set-rpath", ":".join(kept), path)


def find_library(name):
    """Where the system's loader has it."""
    for line in output("/sbin/ldconfig", "-p").splitlines():
        words = line.split()
        if words and words[0] == name:
            return pathlib.Path(words[-1])
    return die(f"{name} is not installed here; packaging/deps.sh installs it")


def gather(stage, lib):
    """Copies into lib what anything in there needs; returns {copy: original}."""
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
        path = lib / "dlcore/1" / plugin
        if not path.is_file():
            continue
        if name.encode() not in path.read_bytes():
            die(f"{plugin} does not open {name} any more: see OPENED")
        original = find_library(name)
        waiting.append(take(original, lib))
        (lib / modules).mkdir()
        waiting += [take(module, lib / modules)
                    for module in sorted((original.resolve().parent / modules).glob("*.so.0"))]
    while waiting:
        path = waiting.pop()
        where = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", path), re.M))
        for name in needed(path):
            if SYSTEM.match(name) or MACHINE.match(name) or (lib / name).exists() or \
                    (lib / path.parent.name / name).exists():
                continue
            if name not in where:
                die(f"{path} needs {name}, which is not here")
            waiting.append(take(pathlib.Path(where[name]), lib))
    return copies


# ---- Licences ----------------------------------------------------------------------


def package_of(path):
    for name in (str(path), str(path).replace("/usr/", "/", 1)):
        done = subprocess.run(["dpkg-query", "-S", name], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return die(f"{path} belongs to no Debian package, so its licence is unknown")


def licences(copies, folder):
    """The copyright files of all packages whose libraries are in it, what these refer to,
    and a list that says what came from where."""
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
    """Where CMake found the CUDA toolkit; the compiler may be a script elsewhere."""
    for path in sorted((build / "CMakeFiles").glob("*/CMakeCUDACompiler.cmake")):
        match = re.search(r'\(CMAKE_CUDA_COMPILER_TOOLKIT_ROOT "(.+)"\)',
                          path.read_text(encoding="utf-8"))
        if match:
            return pathlib.Path(match[1])
    return die(f"{build} does not tell where the CUDA toolkit is")


def cuda_licence(build, folder):
    root = toolkit(build)
    found = [*root.glob("EULA.txt"),
             *root.glob("dist-info/nvidia_cuda_runtime-*/licenses/*"),
             *pathlib.Path("/usr/share/doc").glob("nvidia-cuda-dev/copyright")]
    if not found:
        die(f"{root} has no EULA.txt; it must go along with CUDA's runtime")
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
    lines = licences(copies, stage / "licenses")
    if (lib / "dlcore/1" / CUDA[0]).exists():
        lines += cuda_licence(build, stage / "licenses")
    files = elves(stage)
    words = {"VERSION": cached(build, "CMAKE_PROJECT_VERSION"), "LIB": lib.name,
             "GLIBC": newest(files, "GLIBC"), "GLIBCXX": newest(files, "GLIBCXX")}
    (stage / "licenses/SOURCES").write_text(
        fill("SOURCES.in", words) + "\n" + "\n".join(lines), encoding="utf-8")
    (stage / "README.md").write_text(fill("README.md.in", words), encoding="utf-8")
    shutil.copyfile(SOURCE / "LICENSE", stage / "LICENSE")
    return words


def moment():
    """Of everything in it: the newest entry of the changelog, as in manual pages."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    text = (SOURCE / "packaging/debian/changelog").read_text(encoding="utf-8")
    stamp = re.search(r"^ -- .*>  (.*)$", text, re.M)[1]
    return int(email.utils.parsedate_to_datetime(stamp).timestamp())


def pack(stage, out, level):
    """Sorted, of one time and owner, and writable by nobody else: dlcore refuses plugins
    that others could change, and the umask of who unpacks only takes rights away."""
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
    parser.add_argument("--level", type=int, default=9, help="of gzip")
    args = parser.parse_args()
    if not args.out.name.endswith(".tar.gz"):
        die(f"{args.out}: the name must end in .tar.gz")
    if not shutil.which("dpkg-query"):
        die("bundles are made on Debian, whose packages tell the licences")
    with tempfile.TemporaryDirectory(dir=args.out.resolve().parent) as folder:
        stage = pathlib.Path(folder) / "stage"
        words = stage_all(args.build.resolve(), stage)
        pack(stage, args.out, args.level)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, for {platform.machine()} with glibc "
          f"{words['GLIBC']} and libstdc++ of GLIBCXX_{words['GLIBCXX']}, or newer")


if __name__ == "__main__":
    main()
