#!/usr/bin/env python3
"""The table of a run, from its results.json: `table.py FOLDER` writes it again without measuring."""

import json
import os
import sys

NOT_YET = [
    ("the same traffic with real binaries as payload", "beside"),
    ("kill -9 with 64 GiB mapped; memory with 64 GiB of duplicates", "≤2 s; ≤ cache + 256 MiB"),
    ("bytes written for one, 1 TiB disk by a synthetic tool, 100 snapshots", "≤3.5"),
    ("on that disk: engine reads for a cold 4K read; reads of a reclaim after 1% changed; RAM", "≤2; ≤5%; in budget"),
    ("100,000 snapshots in a pool", "create p99 <10 ms, RAM in budget"),
    ("import of a Debian image, its upgraded sister and its clone, against borg", "≤1.15 ×"),
]


def write(folder):
    with open(os.path.join(folder, "results.json")) as file:
        results = json.load(file)
    with open(os.path.join(folder, "README.md"), "w") as file:
        file.write(text(results))


def text(results):
    out = [f"# {results['machine']['date']}{', quick' if results['settings']['quick'] else ''}\n"]
    out += [f"- {key}: {shown(value)}" for key, value in results["machine"].items()]
    out += [f"- {key}: {shown(value)}" for key, value in results["settings"].items()]
    out += ["", "Ratios are medians over rounds, then the smallest and the largest; rates are of the median round.", ""]
    if results["settings"]["quick"]:
        out += ["A quick run is short and small: it finds what is badly wrong and proves nothing.", ""]
    out += ["| measure | figures | goal | found | verdict |", "|---|---|---|---|---|"]
    for row in results["rows"]:
        out += lines(row)
    out += [f"| {what} | | {wanted} | | not yet |" for what, wanted in NOT_YET]
    notes = [f"- *{row['title']}*: {row['note']}." for row in results["rows"] if row.get("note")]
    out += ["", "Notes:", "", *notes] if notes else []
    out += ["", "Raw: [results.json](results.json). How it was measured, and what would make it untrue: [../README.md](../README.md)."]
    return "\n".join(out) + "\n"


def lines(row):
    title = row["title"]
    if "failed" in row:
        return [f"| {title} | failed: {row['failed'].replace('|', '/')} | | | not measured |"]
    figures = "; ".join(f"{arm} {figure}" for arm, figure in row["arms"].items())
    out = []
    for goal in row["goals"]:
        found = goal["figure"] + (f" [{goal['condition']}]" if goal.get("condition") else "")
        out.append(f"| {title} | {figures} | {goal['goal']} | {found} | {goal['verdict']} |")
        title, figures = "", ""
    return out


def shown(value):
    return ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else value


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: table.py FOLDER")
    write(sys.argv[1])
