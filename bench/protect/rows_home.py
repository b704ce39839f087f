"""A database whose disk is moved home while thirteen users work on it: `stonefold lab run migrate-live`, of which this takes the figures.
The lab's mirror goes as fast as it can, and that of `stonefold migrate` is paced by its guest: so this is what the pace has to hold back, and
not judged by what the pace promises. A machine that `stonefold migrate` moves is a QEMU's, and needs KVM for a database in it."""

import json
import os
import shutil
import subprocess

from arms import Stonefold
from database import programs
from figures import judged
from processes import Failed

ROWS = ("pgbench-migration",)
GIB = 2**30


def plan(options):
    """Warehouses, some 100 MiB each and kept twice: the move is to last some windows of ten seconds."""
    return 10 if options.quick else 50


def needs(options):
    return (5, 6 << 30) if options.quick else (10, 24 << 30)


def run(lab):
    programs()
    lab.row("pgbench-migration", lambda: measured(lab))


def measured(lab):
    warehouses = plan(lab.options)
    stonefold = Stonefold(lab, "home")
    lab.keep = [stonefold]
    stonefold.create("database", (warehouses * 250 << 20) + 8 * GIB)
    out, home = os.path.join(lab.scratch, "lab"), os.path.join(lab.scratch, "home.img")
    ours = [lab.binary, "--api", f"unix://{stonefold.api_socket}", "lab"]
    argv = [*ours, "run", "migrate-live", "--quick", "--warehouses", str(warehouses), "--seed", str(lab.first_seed)]
    argv += ["--target", "stonefold:database", "--to", f"file:{home}", "--out", out]
    try:
        with open(os.path.join(lab.scratch, "lab.log"), "wb") as log:
            # 1, 3 and 4 are verdicts.
            status = subprocess.run(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=1800).returncode
        if status not in (0, 1, 3, 4) or not os.path.exists(out):
            with open(os.path.join(lab.scratch, "lab.log"), errors="replace") as log:
                raise Failed(f"the lab ended with status {status}: {log.read()[-400:]}")
        # Its status is the verdict again.
        report = json.loads(subprocess.run([*ours, "report", out, "--json"], stdout=subprocess.PIPE, timeout=300).stdout)
    finally:
        if os.path.exists(home):
            os.unlink(home)
        stonefold.close()
    moved = report["runs"][0]["charts"]["migration"]
    moved.pop("to")
    lab.raw("pgbench-migration", {"migration": moved, "verdict": report["runs"][0]["summary"].get("verdict")})
    shutil.rmtree(out)
    return row(warehouses, moved)


def row(warehouses, moved):
    if moved["failure"]:
        raise Failed(moved["failure"])
    share = lambda rate: [] if rate is None else [rate / moved["baseline"]]
    worst = judged(share(moved["least"]), None, False, "× the rate before, in its worst ten seconds")
    goals = [
        {**worst, "goal": "≥0.75, not judged without the pace of `stonefold migrate`"},
        judged(share(moved["during"]), None, False, "× the rate before, on average while it moved"),
        judged([moved["bytes_per_second"] / 2**20], None, False, "MiB/s, holes among them", digits=0),
    ]
    note = f"{warehouses} warehouses; {moved['bytes'] / GIB:.1f} GiB in {moved['seconds']:.1f} s; {moved['baseline']:,.0f} transactions a minute before"
    if moved["after"] is not None:
        note += f", {moved['after']:,.0f} after it"
    note += f"; under half of it for {moved['low_seconds']} s; the lab's database, not pgbench's, and it fits into memory; one move of QEMU's mirror at full speed"
    return {"title": "a database's disk moved home, 13 users at work", "arms": {}, "goals": goals, "note": note}
