#!/usr/bin/env python3
"""Compares what is installed with packaging/: every file must be in exactly one Debian
package and in exactly one RPM, both must be divided in the same way, versions and names must
agree, packages with plugins must need the version of the interface, and each plugin must name
the libraries that it is linked against.

Usage: packages.py PREFIX (the folder that sdk.py install made)
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DEBIAN = SOURCE / "packaging/debian"
SPEC = SOURCE / "packaging/rpm/dlcore.spec"
# Packages with different names: Debian's name and the RPM's.
RENAMED = {"libdlcore0": "dlcore-libs", "libdlcore-dev": "dlcore-devel"}

findings = []


def found(where, what):
    findings.append(f"{where}: error: {what}")


def text_of(path):
    return path.read_text(encoding="utf-8")


def libdir(prefix):
    return next(prefix.rglob("libdlcore.so.0")).parent.relative_to(prefix)


def was_not_built(pattern):
    """1 if the pattern is for a plugin of this source tree that was left out of the build,
    because a library was missing."""
    match = re.search(r"dlcore/0/(\w+)-([\w-]+)\.so$", pattern)
    kinds = {"decoder": "decoders", "device": "devices", "solver": "solvers"}
    return match and (SOURCE / "plugins" / kinds.get(match[1], match[1]) /
                      match[2]).is_dir()


def files_of(prefix, patterns, where):
    """The installed files that match the patterns; a folder stands for all files in it."""
    files = set()
    for pattern in patterns:
        hits = list(prefix.glob(pattern))
        if not hits and not was_not_built(pattern):
            found(where, f"{pattern}: no such file is installed")
        for hit in hits:
            files |= {path for path in [hit, *hit.rglob("*")] if not path.is_dir()}
    return files


def debian_packages(prefix):
    names = re.findall(r"^Package: (\S+)$", text_of(DEBIAN / "control"), re.MULTILINE)
    packages = {}
    for name in names:
        path = DEBIAN / f"{name}.install"
        if not path.is_file():
            found("packaging/debian/control", f"{name} has no {path.name}")
            continue
        patterns = [line.split()[0].removeprefix("usr/").replace("lib/*/",
                                                                 f"{libdir(prefix)}/")
                    for line in text_of(path).splitlines()
                    if line.strip() and not line.startswith("#")]
        packages[name] = files_of(prefix, patterns, f"packaging/debian/{path.name}")
    for path in DEBIAN.glob("*.*"):
        if path.suffix in (".install", ".docs", ".examples", ".symbols") and \
                path.stem not in names:
            found(f"packaging/debian/{path.name}", "control has no such package")
    return packages


def rpm_packages(prefix):
    macros = {"_bindir": "bin", "_libdir": str(libdir(prefix)), "_includedir": "include",
              "_datadir": "share", "_mandir": "share/man", "name": "dlcore",
              "version": re.search(r"^Version: *(\S+)", text_of(SPEC), re.MULTILINE)[1]}
    packages, patterns = {}, None
    for line in text_of(SPEC).splitlines():
        section = re.match(r"%files\b *(-n +)?(\S*)", line)
        if section:
            name = section[2] if section[1] or not section[2] else f"dlcore-{section[2]}"
            patterns = packages.setdefault(name or "dlcore", [])
        elif re.match(r"%(changelog|package|description|prep|build|install|check|post)\b",
                      line):
            patterns = None
        elif patterns is not None and line.startswith("%{_"):
            pattern = re.sub(r"%{(\w+)}", lambda m: macros.get(m[1], m[0]), line.strip())
            patterns.append(pattern)
    return {name: files_of(prefix, patterns, f"packaging/rpm: %files {name}")
            for name, patterns in packages.items()}


def check_complete(prefix, packages, kind):
    """Each file must be in exactly one package."""
    for path in sorted(path for path in prefix.rglob("*") if not path.is_dir()):
        having = [name for name, files in packages.items() if path in files]
        if len(having) != 1:
            found(kind, f"{path.relative_to(prefix)} is in "
                  f"{' and '.join(having) or 'no package'}")


def check_same(debian, rpm):
    for name, files in debian.items():
        other = RENAMED.get(name, name)
        if other not in rpm:
            found("packaging/rpm/dlcore.spec", f"has no %files for {other}")
        elif files != rpm[other]:
            names = ", ".join(sorted(path.name for path in files ^ rpm[other]))
            found("packaging", f"{name} and the RPM {other} differ in: {names}")
    for name in set(rpm) - {RENAMED.get(name, name) for name in debian}:
        found("packaging/debian/control", f"has no package for the RPM {name}")


def check_names():
    """The packages that documents and templates mention must exist."""
    known = set(re.findall(r"^(?:Package|Provides): (\S+)$", text_of(DEBIAN / "control"),
                           re.MULTILINE))
    texts = [SOURCE / "README.md", *SOURCE.glob("docs/*.md"), *SOURCE.glob("*/README.md")]
    for path in texts:
        for line in re.findall(r"apt(?:-get)? install (.*)", text_of(path)):
            for name in re.findall(r"[\w-]*dlcore[\w-]*", line):
                if name not in known:
                    found(path.relative_to(SOURCE), f"there is no package {name}")
    template = "tools/templates/common/debian/control"
    for name in re.findall(r"^ ([\w-]*dlcore[\w-]*)\b", text_of(SOURCE / template),
                           re.MULTILINE):
        if name not in known:
            found(template, f"there is no package {name}")


def check_linked(prefix):
    """Each plugin names the C library, even if it calls nothing in it: lintian takes a plugin without
    it for one that was linked wrongly."""
    for path in sorted(prefix.glob("lib*/**/dlcore/0/*.so")):
        said = subprocess.run(["readelf", "--dynamic", path], check=True, capture_output=True, text=True).stdout
        if not re.search(r"\(NEEDED\).*\[libc\.", said):
            found(path.relative_to(prefix), "it is not linked against the C library")


def check_descriptions():
    """Lines of descriptions fit into 80 columns, as lintian and rpmlint want them."""
    for block in re.findall(r"^Description: .*\n((?: .*\n)+)", text_of(DEBIAN / "control"), re.MULTILINE):
        for line in block.splitlines():
            if len(line) > 80:
                found("packaging/debian/control", f"a line of a description is too long: {line}")
    for block in re.findall(r"^%description\b.*\n((?:[^%].*\n|\n)+)", text_of(SPEC), re.MULTILINE):
        for line in block.splitlines():
            if len(line) > 79 and not line.startswith("#"):
                found("packaging/rpm/dlcore.spec", f"a line of a description is too long: {line}")


def plugin_abi():
    text = text_of(SOURCE / "include/dlcore/plugin.h")
    return ".".join(re.search(rf"^#define DLC_ABI_{part} (\d+)$", text, re.MULTILINE)[1]
                    for part in ("MAJOR", "MINOR"))


def has_plugins(name):
    """Apart from dlcore, which provides what these need."""
    return re.match("dlcore-(layers|plugin)-", name) is not None


def check_debian_abi():
    """dlcore provides the version of the interface, and every other package with plugins
    depends on it."""
    for paragraph in text_of(DEBIAN / "control").split("\n\n"):
        name = re.search(r"^Package: (\S+)$", paragraph, re.MULTILINE)
        if not name:
            continue
        fields = dict(re.findall(r"^([A-Z][\w-]*):((?:.*\n)(?: .*\n?)*)", paragraph + "\n", re.MULTILINE))
        wanted = {"Provides": name[1] == "dlcore",
                  "Depends": has_plugins(name[1])}
        for field, is_wanted in wanted.items():
            if ("${dlcore:ABI}" in fields.get(field, "")) != is_wanted:
                found("packaging/debian/control", f"{name[1]}: {field} must "
                      f"{'' if is_wanted else 'not '}have ${{dlcore:ABI}}")
    if not shutil.which("make") or not pathlib.Path("/usr/share/dpkg/buildopts.mk").is_file():
        return
    said = subprocess.run(["make", "-s", "-f", DEBIAN / "rules", "--eval", "says:;@echo $(abi)", "says"],
                          cwd=SOURCE, check=True, capture_output=True, text=True).stdout.strip()
    if said != plugin_abi():
        found("packaging/debian/rules", f"the interface is {said}, and {plugin_abi()} in plugin.h")


def check_rpm_abi(packages):
    """The same for RPMs, as rpmspec reads the spec beside an archive of the sources."""
    if not shutil.which("rpmspec"):
        return
    version = re.search(r"^Version: *(\S+)", text_of(SPEC), re.MULTILINE)[1]
    abi = f"dlcore-plugin-abi-{plugin_abi()}"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(f"{folder}/dlcore-{version}.tar.gz", "w:gz") as archive:
            archive.add(SOURCE / "include/dlcore/plugin.h", f"dlcore-{version}/include/dlcore/plugin.h")
        query = "[%{=NAME} provides %{PROVIDES}\n][%{=NAME} requires %{REQUIRES}\n]"
        said = subprocess.run(["rpmspec", "-q", "--define", f"_sourcedir {folder}", "--with=cuda", "--qf", query, SPEC],
                              check=True, capture_output=True, text=True).stdout
    for name in packages:
        word = "provides" if name == "dlcore" else "requires"
        is_wanted = name == "dlcore" or has_plugins(name)
        if bool(re.search(rf"^{name} {word} {re.escape(abi)}\(", said, re.MULTILINE)) != is_wanted:
            found("packaging/rpm/dlcore.spec", f"{name} {word} {abi}: {not is_wanted}")


def check_versions():
    version = re.search(r"project\(dlcore VERSION (\S+)",
                        text_of(SOURCE / "CMakeLists.txt"))[1]
    says = {"packaging/debian/changelog": r"^dlcore \(([^)]+)\)",
            "packaging/rpm/dlcore.spec": r"^Version: *(\S+)"}
    for path, pattern in says.items():
        match = re.search(pattern, text_of(SOURCE / path), re.MULTILINE)
        if not match or match[1] != version:
            found(path, f"the version is {match and match[1]}, CMakeLists.txt says {version}")


def main():
    prefix = pathlib.Path(sys.argv[1])
    debian, rpm = debian_packages(prefix), rpm_packages(prefix)
    check_complete(prefix, debian, "packaging/debian")
    check_complete(prefix, rpm, "packaging/rpm/dlcore.spec")
    check_same(debian, rpm)
    check_names()
    check_linked(prefix)
    check_descriptions()
    check_debian_abi()
    check_rpm_abi(rpm)
    check_versions()
    if findings:
        print("\n".join(findings))
        sys.exit(1)
    print(f"{len(debian)} packages, {sum(map(len, debian.values()))} files, each in one of them")


if __name__ == "__main__":
    main()
