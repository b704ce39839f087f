"""How soon a database on a recovered machine is as fast as on a local raw file: where nothing is known of what the machine reads, and where its
last boot was learnt from. The machine is one whose processors never run (idle.py), PostgreSQL on the host, on its virtio disk, in all arms."""

import os
import re
import subprocess
import time

from arms import Stonefold
from database import Cluster, Memory, Mounted, fill, programs
from figures import judged, median
from idle import Idle, command

ROWS = ("pgbench-recovery",)
MIB = 2**20
DISK = 4 << 30
CLIENTS = 8
# Seconds of which the rate is taken, the share of the raw file's that is waited for, and how long the server learns from a boot.
WINDOW, SHARE, LEARNT = 3, 0.9, 125
# What the database is larger than PostgreSQL's memory by.
TIMES = 4


def plan(options):
    """pgbench's scale, some 15 MiB each; seconds of each round."""
    return (30, 40) if options.quick else (60, 60)


def needs(options):
    return (12, 6 << 30) if options.quick else (22, 12 << 30)


def run(lab):
    programs()
    lab.row("pgbench-recovery", lambda: Speeds(lab).measured())


class Speeds:
    def __init__(self, lab):
        self.lab = lab
        self.scale, self.seconds = plan(lab.options)
        self.idle = Idle(lab, "speed")
        self.stonefold = Stonefold(lab, "speed", cache=self.scale * 15 * MIB, path=self.idle.path)
        lab.keep = [self.stonefold]
        at = lambda name: os.path.join(lab.scratch, name)
        self.raw, self.copy = at("speed.raw"), at("speed.copy")
        self.memory = Memory(self.scale * 15 * MIB // TIMES)
        self.sources = 0

    def call(self, *words):
        return command(self.lab, self.stonefold, *words)

    def build(self):
        self.stonefold.create("db", DISK)
        fill(self.lab, f"nbd+unix:///db?socket={self.stonefold.socket}", self.scale)
        self.call("disk", "export", "db", self.raw, "--format", "raw")
        self.call("machine", "add", "pg", "--disk", "db", "--qemu-args", self.idle.words)

    def point(self):
        """Of a source that nothing is known of."""
        self.sources += 1
        self.call("source", "add", f"pg{self.sources}", "--machine", "pg")
        return self.call("backup", "run", f"pg{self.sources}")

    def worked(self, begun, seconds):
        """Transactions of each second, and when that was over, from `begun` on."""
        with self.idle.bridged(DISK) as uri, Mounted(self.lab, uri) as folder, Cluster(self.lab, folder, self.memory) as cluster:
            said = cluster.own(
                [f"{cluster.bin}/pgbench", "-h", cluster.sockets, "-p", "54329", "-U", "postgres", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2"]
                + ["-P", "1", "--progress-timestamp", "-T", str(seconds), "postgres"],
                both=True,
            )
        found = re.findall(r"^progress: ([0-9.]+) s, ([0-9.]+) tps", said, re.MULTILINE)
        return [(float(when) - begun, float(rate)) for when, rate in found]

    def recovered(self, point, seconds):
        self.stonefold.make_cold()
        begun = time.time()
        self.call("recover", point, "--as", "again", "--to", "qemu")
        try:
            return self.worked(begun, seconds)
        finally:
            self.call("recover", "stop", "again", "--discard", "--power-off")
            self.idle.gone()

    def native(self):
        subprocess.run(["cp", "--sparse=always", self.raw, self.copy], check=True, timeout=300)
        subprocess.run(["sync", self.copy], check=True)
        begun = time.time()
        try:
            with self.idle.on_file(self.copy):
                return self.worked(begun, self.seconds)
        finally:
            os.unlink(self.copy)

    def measured(self):
        try:
            return self.told(*self.all_rounds())
        finally:
            self.memory.close()
            self.stonefold.close()
            os.unlink(self.raw)

    def all_rounds(self):
        self.build()
        learnt = self.point()
        self.lab.say(f"  learning from {LEARNT} s of it")
        self.recovered(learnt, LEARNT)
        arms = {"raw": self.native, "first": lambda: self.recovered(self.point(), self.seconds), "learnt": lambda: self.recovered(learnt, self.seconds)}
        kept = {arm: [] for arm in arms}
        for number in range(max(self.lab.rounds // 2, 3)):
            for arm in list(arms) if number % 2 == 0 else reversed(arms):
                rates = arms[arm]()
                kept[arm].append(rates)
                self.lab.say(f"  round {number + 1}, {arm}: {median([rate for _, rate in rates[-WINDOW * 2 :]]):,.0f} tps at its end")
        # In its second half a raw file is as fast as it will be.
        native = median([rate for rates in kept["raw"] for _, rate in rates[len(rates) // 2 :]])
        return kept, native

    def told(self, kept, native):
        soon = {arm: [reached(rates, native) for rates in rounds] for arm, rounds in kept.items()}
        self.lab.raw("pgbench-recovery", {"native": native, "seconds": soon, "rates": kept})
        late = [f"{arm}: {found.count(None)} of {len(found)} rounds not within {self.seconds} s" for arm, found in soon.items() if None in found]
        # Those that never came there count as the whole round.
        whole = {arm: [self.seconds if at is None else at for at in found] for arm, found in soon.items()}
        goals = [
            judged(whole["first"], None, True, "s from 'recover' to 90% of a raw file's rate, the first time", digits=1),
            judged(whole["learnt"], None, True, "s, with what was learnt of the boot before", digits=1),
            judged(whole["raw"], None, True, "s of the raw file itself, from QEMU's start", digits=1),
            judged([b / a for a, b in zip(whole["first"], whole["learnt"])], 1, True, "× the time of the first"),
        ]
        note = f"scale {self.scale}, {self.scale * 15} MiB; the server's cache as large; PostgreSQL and its page cache a {TIMES}th"
        note += "" if self.memory.folder else ": not bounded here"
        note += f"; raw file {native:,.0f} tps; rates of {WINDOW} s; {CLIENTS} clients"
        return {"title": "from 'recover' to full speed: pgbench", "arms": {}, "goals": goals, "note": "; ".join([note, *late])}


def reached(rates, native):
    """When the rate of a window first was that share; the window's end."""
    for last in range(WINDOW, len(rates) + 1):
        window = rates[last - WINDOW : last]
        if sum(rate for _, rate in window) / WINDOW >= SHARE * native:
            return window[-1][0]
    return None
