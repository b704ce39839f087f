#!/usr/bin/env python3
"""The table of a run, from its results.json: `table.py FOLDER` writes it again without measuring."""

import json
import os
import sys

# Rows that a quick run leaves out, or that a run may leave out because they were not asked for: what they are, and their goal.
LEFT_OUT = {
    "binaries-randwrite": ("the same traffic with real binaries as payload", "beside"),
    "kill-mapped": ("kill -9 under load with 64 GiB mapped, to ready", "≤2 s"),
    "duplicates-memory": ("memory with 64 GiB written at random, mostly duplicates", "≤ cache + 256 MiB"),
    "terabyte-written": ("1 TiB mapped, 100 snapshots: bytes written for one", "≤3.5"),
    "terabyte-cold": ("on that disk: engine reads for a cold 4K read", "≤2"),
    "terabyte-reclaim": ("on that disk: reads of a reclaim after 1% changed, of a full walk's", "≤0.05"),
    "terabyte-memory": ("on that disk: memory", "≤ cache + 256 MiB"),
    "many-snapshots": ("100,000 snapshots in a pool", "create p99 ≤10 ms, ≤ cache + 256 MiB"),
    "images": ("import of a Debian disk, its upgraded sister and its clone, against borg", "≤1.15 ×"),
}
# The same of protection, where a run has any of its rows.
LEFT_OUT_PROTECT = {
    "guest-incremental": ("a foreign QEMU guest after 1% changed", "≤1.05 × the changed bytes read, ≥20 × faster"),
    "guest-writes": ("a guest's write p99 during a backup", "≤1.25 × without"),
    "pgbench": ("pgbench on a recovered disk", "≥0.9 × raw, ≥2 × qcow2 over 24 incrementals"),
    "pgbench-migration": ("a database's disk moved home", "≥0.75 × the rate before, in its worst ten seconds"),
    "boot": ("boot from the recovered point", "≤1.1 × raw"),
}


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
    # A part that failed stands there with its own name, and why.
    known = {row.get("name") for row in results["rows"]}
    may_be_left_out = LEFT_OUT_PROTECT if known & {"recover-first-block", "backup-full", *LEFT_OUT_PROTECT} else LEFT_OUT
    left_out = [told for name, told in may_be_left_out.items() if name not in known]
    out += [f"| {what} | | {wanted} | | not in this run |" for what, wanted in left_out]
    notes = [f"- *{row['title']}*: {row['note']}{since(row)}." for row in results["rows"] if row.get("note")]
    out += ["", "Notes:", "", *notes] if notes else []
    out += ["", "Raw: [results.json](results.json). How it was measured, and what would make it untrue: [../README.md](../README.md)."]
    return "\n".join(out) + "\n"


def since(row):
    return f" (measured {row['measured']})" if row.get("measured") else ""


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
