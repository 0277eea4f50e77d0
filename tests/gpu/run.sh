#!/bin/bash
# Runs all checks that need a GPU, in less than eight minutes:
#
#     tests/gpu/bundle.sh                                               (here)
#     tar xJf gpu-bundle.tar.xz && gpu-bundle/run.sh OUT [PATTERN...]    (there)
#
# Or, on a machine with the build and a GPU: tests/gpu/run.sh OUT. Patterns select checks
# (checks.py). The report is OUT/report.md and OUT/report.json; the last line says how many
# checks passed, failed and were not run. Without a GPU each check says why it was not run,
# which tests the script itself.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${OUT:-gpu-report}}
shift $(($# > 0))
mkdir -p "$out"
if [ -x "$here/bin/dlcore" ]; then
    bundle=$here
else
    "$here/bundle.sh"
    bundle=$here/../../build/gpu-bundle
fi
python=${PYTHON:-python3}

# cuDNN, cuBLAS and NCCL come from the toolkit or from PyTorch's packages.
folders=$("$python" - <<'PY'
import glob, sysconfig
wanted = ("libcudnn.so.9", "libcublasLt.so.1?", "libnccl.so.2")
roots = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"],
         "/usr/lib/python3/dist-packages"}
found = []
for name in wanted:
    places = [p for root in sorted(roots) for p in glob.glob(f"{root}/nvidia/*/lib/{name}")]
    places += glob.glob(f"/usr/local/cuda/lib64/{name}")
    if places:
        found.append(places[0].rsplit("/", 1)[0])
print(":".join(dict.fromkeys(found)))
PY
)
export LD_LIBRARY_PATH="$bundle/needed:$bundle/lib${folders:+:$folders}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export DLCORE_PLUGIN_PATH="$bundle/lib/dlcore/0"
export XDG_CACHE_HOME="$out/cache"
chmod -R go-w "$bundle/lib" # what others could change is not loaded
status=0
"$python" "$bundle/checks.py" "$bundle" "$out" "$@" || status=$?
rm -rf "$out/cache"
exit $status
