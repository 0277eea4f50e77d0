#!/usr/bin/env python3
"""What `dlcore plan` predicts of a mesh, beside training with it, in turns.

    bench/mesh_prediction.py NET.INI...
    bench/mesh_prediction.py models/caffenet.ini --batch 16 --meshes 2x1x1,1x2x1,1x1x2 --rounds 5

Meshes are data x tensor x pipeline; each rank has one thread, and plan measures with as many
ranks as then train. In a round each mesh is predicted and then trained for some seconds;
medians over the rounds are shown, and their order.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
DLCORE = os.environ.get("DLCORE", str(ROOT / "build/bin/dlcore"))


def run(*words):
    done = subprocess.run([DLCORE, *words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-600:]}")
    return done.stdout


def settings(mesh, args):
    data, tensor, pipeline = mesh
    chosen = {"parallel.data": data, "parallel.tensor": tensor, "parallel.pipeline": pipeline,
              "parallel.tensor_schedule": "whole_batch", "parallel.scaling": "weak",
              "data.batch": args.batch, "train.threads": 1, "train.checkpoint_last": "no",
              "train.checkpoint_minutes": 0, "solver.learning_rate": 1e-6}
    return [f"--ranks={data * tensor * pipeline}", *(f"--set={key}={value}" for key, value in chosen.items()),
            *(f"--set={one}" for one in args.set)]


def predict(net, mesh, args):
    """Images/s of all ranks."""
    plan = json.loads(run("plan", str(net), "--json", "--no-check", *settings(mesh, args)))
    if "mesh_as_set" in plan:
        return plan["mesh_as_set"]["images_per_s"]
    return plan["scaling"][-1]["weak"]["images_per_s"]


def measure(net, mesh, args, iterations, folder):
    log = folder / "log"
    log.unlink(missing_ok=True)
    done = json.loads(run("train", str(net), "--json", f"--iterations={iterations}", f"--log-file={log}",
                          f"--run-dir={tempfile.mkdtemp(dir=folder)}", *settings(mesh, args)))
    return done["images_per_s"]


def compare(net, args, folder):
    meshes = [tuple(map(int, mesh.split("x"))) for mesh in args.meshes.split(",")]
    found = {mesh: ([], []) for mesh in meshes}
    for number in range(args.rounds):
        for mesh, (predicted, measured) in found.items():
            predicted.append(predict(net, mesh, args))
            ranks = mesh[0] * mesh[1] * mesh[2]
            all_images = args.seconds * predicted[-1]
            iterations = max(12, round(all_images / (args.batch * mesh[0] * mesh[1])))
            measured.append(measure(net, mesh, args, iterations, folder))
            print(f"round {number + 1}/{args.rounds} {net.stem} {'x'.join(map(str, mesh))}, {ranks} ranks: "
                  f"predicted {predicted[-1]:.1f}, measured {measured[-1]:.1f} images/s",
                  file=sys.stderr, flush=True)
    rows = []
    for mesh, both in found.items():
        predicted, measured = map(statistics.median, both)
        rows.append([net.stem, "x".join(map(str, mesh)), report.number(predicted), report.number(measured),
                     f"{measured / predicted - 1:+.0%}"])
    for at, what in enumerate(("predicted", "measured")):
        order = sorted(found, key=lambda mesh, at=at: -statistics.median(found[mesh][at]))
        print(f"{net.stem}, {what}:", " > ".join("x".join(map(str, mesh)) for mesh in order))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("nets", nargs="+", type=pathlib.Path)
    parser.add_argument("--meshes", default="2x1x1,1x2x1,1x1x2,2x2x1")
    parser.add_argument("--batch", type=int, default=16, help="of a rank of the first stage")
    parser.add_argument("--set", action="append", default=[], help="as dlcore's --set, of both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for net in args.nets:
            rows += compare(net, args, pathlib.Path(name))
    print(report.table(["net", "mesh", "predicted images/s", "measured", "off by"], rows))


if __name__ == "__main__":
    main()
