"""What both makers of manual pages have in common: text to roff (man(7))."""

import email.utils
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def date():
    """Of the newest entry of the changelog, so that two builds give the same pages."""
    text = (SOURCE / "packaging/debian/changelog").read_text(encoding="utf-8")
    stamp = re.search(r"^ -- .*>  (.*)$", text, re.MULTILINE)[1]
    return email.utils.parsedate_to_datetime(stamp).date().isoformat()


def escape(text):
    """Plain text: dashes stay dashes, no line is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def quote(text):
    """One argument of a request."""
    return '"' + escape(text).replace('"', '""') + '"'


def head(name, section, version, summary):
    return [f".TH {quote(name.upper())} {section} {date()} {quote('dlcore ' + version)}",
            ".SH NAME", f"{escape(name)} \\- {escape(summary)}"]


def tidy(lines):
    """Without the requests for space that have nothing between them."""
    out = []
    for line in (part for entry in lines for part in entry.split("\n")):
        heading = bool(out) and out[-1].startswith((".SH", ".SS", ".PP"))
        if line in (".PP", ".br") and heading:
            continue
        while line.startswith((".SH", ".SS", ".TP", ".PP")) and out and \
                out[-1] in (".br", ".PP"):
            out.pop()
        out.append(line)
    while out and out[-1] in (".br", ".PP"):
        out.pop()
    return out


def write(folder, name, section, lines):
    path = folder / f"{name}.{section}"
    path.write_text("\n".join(tidy(lines)) + "\n", encoding="utf-8")
