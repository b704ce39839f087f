"""A database whose machine is moved home by `stonefold migrate` while pgbench works on it. The machine is a recovered one, in a QEMU that the server
has started; its processors never run, and PostgreSQL is on the host, on the QEMU's own virtio disk (bridge.py): so the mirror and its pace meet
what they meet in a guest, and no emulated processor is in the figures."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from arms import Stonefold
from database import Cluster, Memory, Mounted, programs
from driver import IDLE
from figures import judged, median
from processes import Failed, wait_for

ROWS = ("pgbench-migration",)
MIB, GIB = 2**20, 2**30
DISK, MEMORY = 8 * GIB, 128 * MIB
CLIENTS = 8
# Seconds: until the caches are filled; before and after the move; of a window; the longest move.
WARM_UP, BESIDE, WINDOW, MOVE_MAX = 40, 60, 10, 1500
# What the database is larger than its memory by.
TIMES = 4


def plan(options):
    """pgbench's scale, some 15 MiB each: the move is to last some windows."""
    return 60 if options.quick else 200


def needs(options):
    return (6, 6 * GIB) if options.quick else (10, 20 * GIB)


def run(lab):
    programs()
    lab.row("pgbench-migration", lambda: Home(lab).measured())


class Home:
    def __init__(self, lab):
        self.lab, self.scale = lab, plan(lab.options)
        self.stonefold = Stonefold(lab, "home", cache=self.scale * 15 // 8 * MIB)
        lab.keep = [self.stonefold]
        at = lambda end: os.path.join(lab.scratch, f"home.{end}")
        self.test, self.memory, self.bios, self.socket, self.image = at("qtest"), at("memory"), at("bios"), at("bridge"), at("img")

    def call(self, *words):
        argv = [self.lab.binary, "--api", f"unix://{self.stonefold.api_socket}", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def build(self):
        """A database on a disk of the server, and a point of the machine that has it."""
        self.stonefold.create("db", DISK)
        with Mounted(self.lab, f"nbd+unix:///db?socket={self.stonefold.socket}", make=True) as folder:
            cluster = Cluster(self.lab, folder)
            cluster.make()
            with cluster:
                cluster.pgbench("-i", "-q", "-s", str(self.scale))
        with open(self.bios, "wb") as file:
            file.write(IDLE)
        words = os.path.join(self.lab.scratch, "home.qemu")
        with open(words, "w") as file:
            file.write(f"-machine pc,memory-backend=ram -nodefaults -bios {self.bios} -qtest unix:{self.test},server=on,wait=off -qtest-log none ")
            file.write(f"-object memory-backend-file,id=ram,size={MEMORY},mem-path={self.memory},share=on -m {MEMORY // MIB}\n")
        self.call("machine", "add", "pg", "--disk", "db", "--qemu-args", words)
        self.call("source", "add", "pg", "--machine", "pg")
        return self.call("backup", "run", "pg")

    def measured(self):
        self.call("recover", self.build(), "--as", "home", "--to", "qemu")
        bridge = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bridge.py")]
        log = os.path.join(self.lab.scratch, "bridge.log")
        process = self.lab.processes.start([*bridge, self.test, self.memory, str(MEMORY), self.socket, str(DISK)], log)
        bound = self.scale * 15 * MIB // TIMES
        memory = Memory(bound)
        with contextlib.ExitStack() as left:
            left.callback(lambda: os.path.exists(self.image) and os.unlink(self.image))
            left.callback(self.stonefold.close)
            # Moved, it would go on by itself.
            left.callback(self.call, "recover", "stop", "home", "--discard", "--power-off")
            left.callback(self.lab.processes.stop, process)
            left.callback(memory.close)
            wait_for("the bridge", lambda: os.path.exists(self.socket), 30, process, log)
            with Mounted(self.lab, f"nbd+unix:///home?socket={self.socket}") as folder, Cluster(self.lab, folder, memory) as cluster:
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
        self.lab.raw("pgbench-migration", {"rates": seconds, "seconds": ended - begun, "migration": moved, "paces": self.paces})
        goals = [
            judged([min(shares(during))], 0.75, False, "× the rate before, in its worst ten seconds", condition),
            judged([median(shares(during))], None, False, "× the rate before, in the middle one"),
            judged([min(shares(before))], None, False, "× the rate before, in the worst ten seconds of those before"),
            judged([copied / (ended - begun) / MIB], None, False, "MiB/s moved", digits=0),
        ]
        note = f"scale {self.scale}; {copied / GIB:.1f} GiB in {ended - begun:.0f} s; {baseline:,.0f} transactions a second before, "
        note += f"{sum(after) / len(after):,.0f} after; memory a {TIMES}th of the database; {CLIENTS} clients"
        return {"title": "pgbench while its machine is moved home", "arms": {}, "goals": goals, "note": note}
