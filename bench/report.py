"""Writes the report of side_by_side.py: its runs (one line of JSON each) as Markdown tables;
and replaces the old report in a page, or the report of one model of CPU."""
import collections
import datetime
import json
import pathlib
import statistics
import subprocess

median = statistics.median
BEGIN, END = "<!-- report: made by {} -->", "<!-- end of report -->"
NEXT = "<!-- reports of other CPUs go here: {} -->"  # where a page has a report for each
TITLES = {"dlcore": "dlcore", "tuned": "PyTorch tuned", "default": "PyTorch default",
          "tuned-13": "PyTorch tuned, Debian 13", "default-13": "PyTorch default, Debian 13"}


def number(value):
    """Formats a number with three significant digits, or as an integer."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values):
    return f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else "one run"


def table(head, rows):
    numeric = ["---" if i < 1 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, numeric, *rows])


class Runs:
    """All runs by (net, batch, threads, bf16), in order."""

    def __init__(self, path):
        lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.all = [run for run in lines if "shares" not in run]
        # The last of each job: --keep may have added to older ones.
        self.shares = {(run["net"], run["batch"], run["bf16"]): run["shares"] for run in lines if "shares" in run}
        self.jobs = collections.defaultdict(lambda: collections.defaultdict(list))
        for run in self.all:
            self.jobs[run["net"], run["batch"], run["threads"], run["bf16"]][run["who"]].append(run)
        self.who = [name for name in TITLES if any(run["who"] == name for run in self.all)]

    def chosen(self, threads, bf16):
        return {key: job for key, job in self.jobs.items() if key[2:] == (threads, bf16)}

    def peak(self, threads, bf16):
        """The fastest arithmetic that could be used: for bf16 tiles, vectors, or float32."""
        kinds = ("float32", "bf16", "bf16_tile") if bf16 else ("float32",)
        return max((self.limit(threads, kind) for kind in kinds), default=0)

    def limit(self, threads, kind):
        """The best measurement: other load on the machine can only slow it down."""
        return max((run["limits"][kind] for run in self.all if run["threads"] == threads), default=0)

    def threads(self):
        return sorted({run["threads"] for run in self.all}, reverse=True)


def values(runs, key="images_per_s"):
    return [run[key] for run in runs if run.get(key)]


def ratio(job, other):
    if not job.get("dlcore") or not job.get(other):
        return ""
    return f"{median(values(job['dlcore'])) / median(values(job[other])):.2f}"


def speed_table(runs, threads, bf16):
    peers = [who for who in runs.who if who != "dlcore"]
    rows = []
    peak = runs.peak(threads, bf16)
    for (net, batch, *_), job in runs.chosen(threads, bf16).items():
        row = [f"{net}, b{batch}"]
        for who in runs.who:
            found = values(job.get(who, []))
            row.append(f"{number(median(found))} ({spread(found)})" if found else "")
        row += [ratio(job, who) for who in peers]
        own = job.get("dlcore")
        if own:
            rate = own[0]["flop"] * median(values(own)) / 1e9
            row += [f"{rate:.0f}", f"{rate / peak:.0%}" if peak else ""]
        else:
            row += ["", ""]
        rows.append(row)
    head = ["net", *(TITLES[who] for who in runs.who), *(f"times {who}" for who in peers), "GFLOP/s", "of peak"]
    return table(head, rows) if rows else ""


def own_ratio_table(runs, threads):
    rows = []
    for (net, batch, *_), job in runs.chosen(threads, True).items():
        single = runs.jobs.get((net, batch, threads, False), {})
        if job.get("dlcore") and single.get("dlcore"):
            gain = median(values(job["dlcore"])) / median(values(single["dlcore"]))
            rows.append([f"{net}, b{batch}", f"{gain:.2f}"])
    return table(["net", "dlcore bf16 / dlcore float32"], rows) if rows else ""


def memory_table(runs, threads):
    peers = [who for who in runs.who if who != "dlcore"]
    rows = []
    for (net, batch, _, bf16), job in runs.jobs.items():
        if _ != threads or not job.get("dlcore"):
            continue
        taken = {who: median(values(job[who], "peak_bytes")) for who in runs.who if job.get(who)}
        row = [f"{net}, b{batch}{', bf16' if bf16 else ''}"]
        row += [f"{taken[who] / 1e6:,.0f}" if who in taken else "" for who in runs.who]
        row += [f"{taken['dlcore'] / taken[who]:.2f}" if who in taken else "" for who in peers]
        planned = median(values(job["dlcore"], "planned_bytes"))
        rows.append([*row, f"{planned / 1e6:,.0f}", f"{taken['dlcore'] / planned - 1:+.0%}"])
    head = ["MB at most", *(TITLES[who] for who in runs.who), *(f"of {who}" for who in peers),
            "`dlcore check` says", "off by"]
    return table(head, rows) if rows else ""


def share(of_limit, of_time=None):
    if not of_limit:
        return ""
    return f"{of_limit:.0%}" + (f" ({of_time:.0%})" if of_time is not None else "")


def share_table(runs):
    named = ("convolution", "batch_norm", "pooling", "inner_product")
    rows = []
    for (net, batch, bf16), shares in runs.shares.items():
        row = [f"{net}, b{batch}{', bf16' if bf16 else ''}",
               f"{number(shares['limits']['gflops'])} GFLOP/s, {number(shares['limits']['gbytes_per_s'])} GB/s",
               share(shares["of_limit"])]
        for kind in named:
            made = shares["types"].get(kind)
            row.append(share(made["of_limit"], made["us"] / shares["us"]) if made else "")
        others = [made for kind, made in shares["types"].items() if kind not in named]
        taken = sum(made["us"] for made in others)
        least = sum(made["us"] * (made["of_limit"] or 0) for made in others)
        rows.append([*row, share(least / taken, taken / shares["us"]) if taken else ""])
    return table(["share of the limit", "the limit", "all", *named, "others"], rows) if rows else ""


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return "?"


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "?")


def machine():
    """The model of the CPU, and whether it has tiles: a page keeps one report of each."""
    with open("/proc/cpuinfo") as info:
        return f"{cpu_name()}, {'with' if ' amx_bf16' in info.read() else 'without'} AMX"


def today():
    return datetime.date.today()


def limits_of(runs, threads):
    """The best of all measurements; limits that the CPU lacks are left out."""
    kinds = (("float32", "GFLOP/s in float32"), ("bf16", "in bf16 by AVX-512"), ("bf16_tile", "in bf16 by AMX"),
             ("read", "GB/s read"), ("copy", "GB/s copied"))
    found = [f"{number(value)} {what}" for kind, what in kinds if (value := runs.limit(threads, kind))]
    return f"with {threads} thread{'s' * (threads > 1)} {', '.join(found)}"


def circumstances(runs, command, dlcore):
    torches = sorted({run["torch"] for run in runs.all if run.get("torch")})
    versions = [output_of(dlcore, "--version")] if any(run["who"] == "dlcore" for run in runs.all) else []
    versions += [f"{name} {found}" for name, package in (("oneDNN", "libdnnl2"), ("jemalloc", "libjemalloc2"),
                                                         ("OpenBLAS", "libopenblas0-openmp"))
                 if (found := output_of("dpkg-query", "-W", "-f", "${Version}", package)) != "?"]
    versions += [f"PyTorch {', '.join(torches)}"] if torches else []
    limits = [limits_of(runs, threads) for threads in runs.threads()]
    loads = [run["load"] for run in runs.all]
    rounds = max(run["round"] for run in runs.all)
    return (f"## {machine()}\n\n    {command}\n\n{today()}, {cpu_name()}, {rounds} round{'s' * (rounds > 1)}; "
            f"{', '.join(versions)}. The machine's load was {min(loads):.1f} to {max(loads):.1f}. "
            f"Its limits (bench/peak.c): {'; '.join(limits)}.")


def make(path, command, dlcore):
    runs = Runs(path)
    parts = [circumstances(runs, command.strip(), dlcore)]
    for bf16 in (False, True):
        for threads in runs.threads():
            made = speed_table(runs, threads, bf16)
            if made:
                parts.append(f"**{'bf16' if bf16 else 'float32'}, {threads} thread{'s' * (threads > 1)}**: images/s, "
                             f"median (range)\n\n{made}")
    most = runs.threads()[0]
    for title, made in (("**Share of the limit** that each type of layer reaches (and of the time that it takes), "
                         f"{most} threads: `dlcore time`", share_table(runs)),
                        ("**bf16 against float32**", own_ratio_table(runs, most)),
                        (f"**Peak memory** of the process, {most} threads", memory_table(runs, most))):
        if made:
            parts.append(f"{title}\n\n{made}")
    return "\n\n".join(parts) + "\n"


def put(page, text, maker="bench/side_by_side.py", machine=None):
    """Replaces the script's last report in the page, and keeps the rest. With `machine` it replaces
    the last report of such a machine, or adds the first."""
    old, begin = page.read_text(), BEGIN.format(f"{maker} on {machine}" if machine else maker)
    place = NEXT.format(maker)
    if machine and begin not in old and place in old:
        old = old.replace(place, f"{begin}\n{END}\n\n{place}")
    if begin not in old or END not in old.split(begin, 1)[1]:
        raise SystemExit(f"{page} has no lines '{begin}' and '{END}' to put the report between")
    before, rest = old.split(begin, 1)
    after = rest.split(END, 1)[1]
    page.write_text(f"{before}{begin}\n\n{text}\n{END}{after}")
