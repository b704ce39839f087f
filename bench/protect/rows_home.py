"""A database whose machine is moved home by `stonefold migrate` while pgbench works on it. The machine is a recovered one, in a QEMU that the server
has started; its processors never run, and PostgreSQL is on the host, on the QEMU's own virtio disk (stonefold-bridge): so the mirror and its pace meet
what they meet in a guest, and no emulated processor is in the figures."""

import contextlib
import json
import os
import re
import signal
import time

from arms import Stonefold
from database import Cluster, Memory, Mounted, fill, programs
from figures import judged, median
from idle import Idle, command
from processes import Failed

ROWS = ("pgbench-migration", "pgbench-migration-apart")
MIB, GIB = 2**20, 2**30
DISK = 8 * GIB
CLIENTS = 8
# Seconds: until the caches are filled; before and after the move; of a window; the longest move.
WARM_UP, BESIDE, WINDOW, MOVE_MAX = 40, 60, 10, 1500
# What the database is larger than its memory by.
TIMES = 4


def plan(options):
    """pgbench's scale, some 15 MiB each: the move is to last some windows."""
    return 60 if options.quick else 200


def needs(options):
    return (12, 6 * GIB) if options.quick else (20, 20 * GIB)


def run(lab):
    programs()
    lab.row("pgbench-migration", lambda: Home(lab).measured())
    lab.row("pgbench-migration-apart", lambda: Home(lab, apart=True).measured())


class Home:
    def __init__(self, lab, apart=False):
        """`apart`: the new home is on a medium of its own, which is memory here; without, on the pool's."""
        self.lab, self.scale, self.apart = lab, plan(lab.options), apart
        self.idle, self.image = Idle(lab, "home"), os.path.join(lab.in_memory if apart else lab.scratch, "home.img")
        self.stonefold = Stonefold(lab, "home", cache=self.scale * 15 // 8 * MIB, path=self.idle.path)
        lab.keep = [self.stonefold]

    def call(self, *words):
        return command(self.lab, self.stonefold, *words)

    def build(self):
        """A database on a disk of the server, and a point of the machine that has it."""
        self.stonefold.create("db", DISK)
        fill(self.lab, f"nbd+unix:///db?socket={self.stonefold.socket}", self.scale)
        self.call("machine", "add", "pg", "--disk", "db", "--qemu-args", self.idle.words)
        self.call("source", "add", "pg", "--machine", "pg")
        return self.call("backup", "run", "pg")

    def measured(self):
        self.call("recover", self.build(), "--as", "home", "--to", "qemu")
        bound = self.scale * 15 * MIB // TIMES
        memory = Memory(bound)
        with contextlib.ExitStack() as left:
            left.callback(lambda: os.path.exists(self.image) and os.unlink(self.image))
            left.callback(self.stonefold.close)
            # Moved, it would go on by itself.
            left.callback(self.call, "recover", "stop", "home", "--discard", "--power-off")
            left.callback(memory.close)
            uri = left.enter_context(self.idle.bridged(DISK))
            with Mounted(self.lab, uri) as folder, Cluster(self.lab, folder, memory) as cluster:
                rates, begun, ended, moved = self.worked(cluster)
                sums = cluster.ask("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)")
            if sums != "t":
                raise Failed("the database has lost transactions")
        condition = "" if memory.folder else "memory not bounded"
        return self.told(rates, begun, ended, moved, condition)

    def worked(self, cluster):
        """pgbench before, during and after the move: (when, transactions a second) of each second; when the move began and ended, and its document."""
        log = os.path.join(self.lab.scratch, "pgbench.log")
        argv = [f"{cluster.bin}/pgbench", "-h", cluster.sockets, "-p", "54329", "-U", "postgres", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2"]
        argv += ["-P", "1", "--progress-timestamp", "-T", str(MOVE_MAX + 600), "postgres"]
        bench = self.lab.processes.start(argv, log, user="postgres", group="postgres", extra_groups=[], cwd="/")
        try:
            time.sleep(WARM_UP + BESIDE)
            begun = time.time()
            self.call("migrate", "home", "--to", f"file:{self.image}", "--no-wait")
            self.paces = []
            while (moved := self.migration())["state"] == "copying":
                self.paces.append((time.time() - begun, moved["speed_bytes"], moved.get("guest_percent")))
                if bench.poll() is not None or time.time() > begun + MOVE_MAX:
                    raise Failed(f"not moved within {time.time() - begun:.0f} s: {moved}")
                time.sleep(0.5)
            ended = time.time()
            if moved["state"] != "done":
                raise Failed(f"the move: {moved}")
            time.sleep(BESIDE)
        finally:
            self.lab.processes.stop(bench, how=signal.SIGINT)
        with open(log) as file:
            lines = re.findall(r"^progress: ([0-9.]+) s, ([0-9.]+) tps", file.read(), re.MULTILINE)
        return [(float(when), float(rate)) for when, rate in lines], begun, ended, moved

    def migration(self):
        return next(one for one in json.loads(self.call("migrate", "ls", "--json")) if one["name"] == "home")

    def told(self, rates, begun, ended, moved, condition):
        """A second is told at its end. Windows begin with every second."""
        part = lambda first, last: [rate for when, rate in rates if first + 1 <= when <= last]
        before, during, after = part(begun - BESIDE, begun), part(begun, ended), part(ended, ended + BESIDE)
        baseline = sum(before) / len(before)
        shares = lambda seconds: [sum(seconds[at : at + WINDOW]) / WINDOW / baseline for at in range(len(seconds) - WINDOW + 1)]
        if not shares(during):
            raise Failed(f"moved within {ended - begun:.0f} s, shorter than a window")
        copied = sum(disk["done_bytes"] for disk in moved["disks"])
        seconds = {"before": before, "during": during, "after": after}
        self.lab.raw(self.lab.name, {"rates": seconds, "seconds": ended - begun, "migration": moved, "paces": self.paces})
        goals = [
            judged([min(shares(during))], 0.75, False, "× the rate before, in its worst ten seconds", condition),
            judged([median(shares(during))], None, False, "× the rate before, in the middle one"),
            judged([min(shares(before))], None, False, "× the rate before, in the worst ten seconds of those before"),
            judged([copied / (ended - begun) / MIB], None, False, "MiB/s moved", digits=0),
        ]
        note = f"scale {self.scale}; {copied / GIB:.1f} GiB in {ended - begun:.0f} s; {baseline:,.0f} transactions a second before, "
        note += f"{sum(after) / len(after):,.0f} after; memory a {TIMES}th of the database; {CLIENTS} clients"
        return {"title": "pgbench while its machine is moved home, " + ("to another medium, in memory" if self.apart else "to the pool's own medium"), "arms": {}, "goals": goals, "note": note}
