"""pgbench on a disk that was recovered from a point, beside the same on a local raw file and on 24 incrementals that are a chain of qcow2:
the same bytes in all three, since the chain is what was backed up. All go over nbdfuse and a loop device."""

import os
import subprocess

from arms import Arm, Stonefold
from database import Cluster, Memory, Mounted, programs
from figures import good, judged, row
from processes import Failed

ROWS = ("pgbench",)
INCREMENTALS = 24
MIB = 2**20
DISK = 4 << 30
CLIENTS = 8
# What the database is larger than its memory by, at least.
TIMES = 4


def plan(options):
    """pgbench's scale (some 15 MiB each), seconds of change before each incremental. With a quarter of a smaller scale PostgreSQL is killed."""
    return (40, 1) if options.quick else (50, 2)


def needs(options):
    return (4, 3 << 30) if options.quick else (13, 12 << 30)


def run(lab):
    programs()
    lab.row("pgbench", lambda: Databases(lab).measured())


class Chain(Arm):
    """qemu-nbd on an image of a folder of its own; `images`: the one that is written to is the last."""

    def __init__(self, lab, name, form):
        super().__init__(name, lab)
        self.form, self.images = form, []
        self.uri = f"nbd+unix:///disk?socket={self.socket}"

    def add(self):
        path = os.path.join(self.folder, f"{len(self.images):02}.{self.form}")
        below = ["-b", self.images[-1], "-F", "qcow2"] if self.images else []
        subprocess.run(["qemu-img", "create", "-q", "-f", self.form, *below, path, *([] if below else [str(DISK)])], check=True)
        self.images.append(path)

    def serve(self):
        argv = ["qemu-nbd", "-f", self.form, "--cache=none", f"--aio={self.lab.qemu_aio}", "-t", "-e", "8", "-k", self.socket, "-x", "disk"]
        self.spawn([*argv, self.images[-1]])

    def rest(self):
        self.lab.processes.stop(self.process)


class Recovered(Stonefold):
    """The point's disk, of a server whose caches are emptied before each round."""

    uri = None

    def serve(self):
        self.make_cold()

    def rest(self):
        pass


class Databases:
    def __init__(self, lab):
        self.lab = lab
        self.scale, self.change_seconds = plan(lab.options)
        self.chain, self.raw = Chain(lab, "qcow2-chain", "qcow2"), Chain(lab, "raw", "raw")
        # An eighth of the database, or so: what the server remembers is not to be the database.
        self.stonefold = Recovered(lab, "stonefold", cache=max(self.scale * 15 // 8, 32) * MIB)
        lab.keep = [self.stonefold]

    def call(self, *words):
        done = subprocess.run([self.lab.binary, "--api", f"unix://{self.stonefold.api_socket}", *words], capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def build(self):
        """The chain, a database's life in it, and of each of its images a point."""
        self.call("source", "add", "s", "--nbd", self.chain.uri)
        for number in range(INCREMENTALS + 1):
            self.chain.add()
            self.chain.serve()
            with Mounted(self.lab, self.chain.uri, make=number == 0) as folder:
                cluster = Cluster(self.lab, folder)
                if number == 0:
                    cluster.make()
                with cluster:
                    if number == 0:
                        cluster.pgbench("-i", "-q", "-s", str(self.scale))
                    else:
                        cluster.rate(CLIENTS, self.change_seconds)
            point = self.call("backup", "run", "s")
            self.chain.rest()
        sizes = [os.stat(image).st_blocks * 512 for image in self.chain.images]
        self.lab.say(f"  {INCREMENTALS + 1} images: {sizes[0] / MIB:.0f} MiB, then {min(sizes[1:]) / MIB:.0f} to {max(sizes[1:]) / MIB:.0f}")
        # Of the raw arm: the same bytes in one file.
        path = os.path.join(self.raw.folder, "disk.raw")
        subprocess.run(["qemu-img", "convert", "-O", "raw", "-T", "none", "-t", "none", self.chain.images[-1], path], check=True, timeout=600)
        self.raw.images.append(path)
        self.chain.add()
        self.call("recover", point, "--as", "db")
        self.stonefold.uri = f"nbd+unix:///db.vda?socket={self.stonefold.socket}"
        return sizes

    def one(self, arm, memory):
        arm.serve()
        try:
            with Mounted(self.lab, arm.uri) as folder, Cluster(self.lab, folder, memory) as cluster:
                if arm not in self.told:
                    self.told[arm] = cluster.ask("SELECT count(*), sum(delta) FROM pgbench_history")
                    self.bytes = int(cluster.ask("SELECT pg_database_size('postgres')"))
                return {"rate": cluster.rate(CLIENTS, max(self.lab.seconds, 10))}
        finally:
            arm.rest()

    def measured(self):
        sizes = self.build()
        memory, self.told = Memory(self.scale * 15 * MIB // TIMES), {}
        arms = {"stonefold": self.stonefold, "raw": self.raw, "qcow2-chain": self.chain}
        try:
            found = self.lab.alternate({name: lambda arm=arm: self.one(arm, memory) for name, arm in arms.items()})
        finally:
            memory.close()
        if len(set(self.told.values())) != 1:
            raise Failed(f"the arms began with different databases: {list(self.told.values())}")
        self.lab.raw("pgbench", {"images_bytes": sizes, "database_bytes": self.bytes, "history": list(self.told.values())[0]})
        bound = f"{self.scale * 15 // TIMES} MiB" if memory.folder else "not bounded: no memory group here"
        note = f"database {self.bytes / MIB:.0f} MiB; PostgreSQL and its page cache {bound}; the server's cache {self.stonefold.cache // MIB} MiB; "
        note += f"incrementals of {min(sizes[1:]) / MIB:.0f} to {max(sizes[1:]) / MIB:.0f} MiB; {CLIENTS} clients; over nbdfuse and a loop device in all arms"
        condition = "" if memory.folder else "memory not bounded"
        goals = [against(found, peer, bound, condition) for peer, bound in (("raw", 0.9), ("qcow2-chain", 2.0))]
        for arm in (self.chain, self.raw, self.stonefold):
            arm.close()
        shown = lambda kept: f"{kept['rate']:,.0f} tps"
        return row(f"pgbench on point {INCREMENTALS + 1} of {INCREMENTALS + 1}, recovered", found, shown, goals, note)


def against(found, peer, bound, condition):
    pairs = zip(found["stonefold"], found[peer])
    return judged([ours["rate"] / theirs["rate"] for ours, theirs in pairs if good([ours, theirs]) == [ours, theirs]], bound, False, f"× {peer}", condition)
