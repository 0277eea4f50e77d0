#!/usr/bin/env python3
"""Makes docs/net-ini.md, the manual of net.ini, from the option tables of the core and of
all plugins, as `dlcore plugin inspect --all --json` gives them, and net-ini.md.in.

Usage: net_ini.py DLCORE FILE
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# For each kind of plugin: the heading, and where its keys go.
KINDS = {
    "layer": ("Layers", "`type` in a layer's section selects one; its keys go into the same section."),
    "data": ("Data sources", "`source` in [data] and in [data.test] selects one; its keys go into the same "
             "section."),
    "solver": ("Solvers", "`type` in [solver] selects one; its keys go into the same section."),
    "consistency": ("Consistency models", "`type` in [consistency] selects one; its keys go into the same "
                    "section."),
    "transport": ("Transports", "`type` in [transport] selects one; its keys go into the same section. With `auto`, "
                  "keys of single transports are not allowed."),
    "device": ("Devices", "`device` in [train] selects one; its keys go into the same section."),
}


def inspect(dlcore):
    """What is found beside the library that the command has, and nowhere else."""
    environment = {key: value for key, value in os.environ.items() if key != "DLCORE_PLUGIN_PATH"}
    with tempfile.TemporaryDirectory() as cache:
        environment["XDG_CACHE_HOME"] = cache
        done = subprocess.run([dlcore, "plugin", "inspect", "--all", "--json"], env=environment, check=True,
                              capture_output=True, text=True, timeout=100)
    return json.loads(done.stdout)


def cell(text):
    return text.replace("|", "\\|")


def code(text):
    return f"`{cell(text)}`"


def takes(option):
    if option["type"] == "choice":
        return ", ".join(map(code, option["choices"].split("|")))
    if option["type"] == "filler":
        return "filler"
    return cell(re.sub(r"^size \([^)]*\)", "size", option["takes"]))


def row(option):
    default = option["default"]
    if option["required"]:
        default = "required"
    elif default is not None:
        default = code(default or '""')
    text = option["help"] + ("; may change while the job runs" if option["live"] else "")
    return f"| {code(option['name'])} | {takes(option)} | {default or '-'} | {cell(text)} |"


def table(options):
    return ["| key | takes | default | what it is |", "| --- | --- | --- | --- |", *map(row, options), ""]


def sentence(text):
    return text[0].upper() + text[1:] + "."


def sections(found):
    out = []
    for section in found:
        out += [f"## {section['title']}", "", sentence(section["help"])]
        if section["plugins"]:
            heading = KINDS[section["plugins"]][0]
            out[-1] += f" The keys of the plugin that `{section['named_by']}` selects go here, too: see {heading}."
        out += ["", *table(section["options"])]
    return out


def transforms(found):
    out = []
    for transform in found:
        out += [f"### {transform['name']}", "", sentence(transform["help"]), "", *table(transform["options"])]
    return out


def features(plugins):
    """{(kind, name): [(plugin, feature)]}, in the order of the search."""
    found = {}
    for plugin in plugins:
        if plugin["state"] == "refused":
            raise ValueError(f"plugin {plugin['name']} is refused: {plugin['reason']}")
        for feature in plugin["features"]:
            if "options" not in feature:
                raise ValueError(f"the options of {feature['name']} of plugin {plugin['name']} cannot be read")
            found.setdefault((feature["kind"], feature["name"]), []).append((plugin["name"], feature))
    return found


def one_feature(name, offers):
    """A net.ini means the same on every device: all that offer it have one table."""
    plugin, first = offers[0]
    for other, feature in offers[1:]:
        for what in ("help", "options"):
            if feature[what] != first[what]:
                raise ValueError(f"{name}: plugins {plugin} and {other} differ in {what}:\n"
                                 f"{first[what]}\n{feature[what]}")
    out = [f"### {name}", "", cell(first["help"]), ""]
    out += [f"- For {feature['device'] or 'any device'}, by plugin {plugin}." for plugin, feature in offers
            if feature["kind"] != "device"]
    if out[-1]:
        out.append("")
    return out + (table(first["options"]) if first["options"] else ["It has no keys of its own.", ""])


def plugins(found):
    out = []
    for kind, (heading, where) in KINDS.items():
        out += [f"## {heading}", "", where, ""]
        for (what, name), offers in sorted(features(found).items()):
            if what == kind:
                out += one_feature(name, offers)
    return out


def manual(dlcore):
    """The page, and the names of the plugins that it was made from."""
    document = inspect(dlcore)
    text = (HERE / "net-ini.md.in").read_text(encoding="utf-8")
    for key, lines in {"SECTIONS": sections(document["sections"]),
                       "TRANSFORMS": transforms(document["transforms"]),
                       "PLUGINS": plugins(document["plugins"])}.items():
        text = text.replace(f"@{key}@", "\n".join(lines).strip("\n"))
    return text, {plugin["name"] for plugin in document["plugins"]}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pathlib.Path(sys.argv[2]).write_text(manual(sys.argv[1])[0], encoding="utf-8")


if __name__ == "__main__":
    main()
