"""Rows of recovery: a point of a machine with a disk of 1 TiB, 64 GiB of it mapped by stonefold-synthetic, brought back by a server that was
just started and remembers nothing. The command line is what is timed, its own start with it."""

import json
import os
import socket
import struct
import subprocess
import time

from arms import Stonefold
from figures import judged
from processes import Failed

ROWS = ("recover-first-block", "recover-many")
POINTS = 25
MANY = 50
MIB = 2**20


def plan(options):
    """Mapped, stock, size then, blocks changed before each point."""
    return ("8G", "256M", 2**37, 256) if options.quick else ("64G", "1G", 2**40, 4096)


def needs(options):
    return (2, 4 << 30) if options.quick else (8, 12 << 30)


def run(lab):
    mapped, stock, size, changes = plan(lab.options)
    folder = os.path.join(lab.scratch, "recover")
    os.makedirs(folder)
    lab.say(f"mapping {mapped} of a disk of {lab.shown_size(size)}")
    argv = [lab.tool("stonefold-synthetic"), f"{folder}/pool", "--size", mapped, "--stock", stock, "--segment", "2M"]
    argv += ["--snapshots", "1", "--changes", str(changes), "--seed", str(lab.first_seed)]
    made = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=3000).stdout)
    stonefold = Stonefold(lab, "recover")
    lab.keep = [stonefold]
    machine = Machine(lab, stonefold, made, size, changes)
    lab.row("recover-first-block", machine.first_block)
    lab.row("recover-many", machine.many)
    stonefold.close()


class Machine:
    def __init__(self, lab, stonefold, made, size, changes):
        self.lab, self.stonefold = lab, stonefold
        self.mapped, self.seed = made["size_bytes"], 0
        self.title = f"{lab.shown_size(size)}, {lab.shown_size(self.mapped)} of it mapped"
        self.condition = "" if size == 2**40 else f"{lab.shown_size(size)}, not 1 TiB"
        stonefold.ask("POST", "/v1/disks/disk/resize", {"size_bytes": size})
        stonefold.ask("POST", "/v1/machines", {"name": "m", "disks": ["disk"]})
        stonefold.ask("POST", "/v1/sources", {"name": "s", "machine": "m"})
        self.points = []
        for _ in range(POINTS):
            self.change(changes)
            self.points.append(stonefold.ask("POST", "/v1/runs", {"source": "s"})["name"])
        stonefold.settle()

    def place(self):
        """Of a mapped block, by chance that is the same in every run."""
        self.seed = (self.seed * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.seed % (self.mapped // 4096) * 4096

    def change(self, blocks):
        with Client(self.stonefold.socket, "disk") as client:
            for _ in range(blocks):
                client.write(self.place(), os.urandom(4096))
            client.flush()

    def recover(self, point, name):
        argv = [self.lab.binary, "--api", f"unix://{self.stonefold.api_socket}", "recover", point, "--as", name, "--json"]
        return json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=300).stdout)

    def discard(self, name):
        self.stonefold.ask("DELETE", f"/v1/recoveries/{name}?discard=true")

    def first_block(self):
        """From the start of the command until a block that the point has, and no memory of ours or of the kernel's, is there."""
        times = {"1": [], str(POINTS): []}
        for round in range(max(self.lab.rounds, 3)):
            for number, kept in times.items():
                self.lab.processes.stop(self.stonefold.process)
                self.stonefold.start()
                # The files of a pool are read past the page cache; documents of the catalog are not.
                self.stonefold_files_cold()
                started = time.monotonic()
                self.recover(self.points[int(number) - 1], "again")
                with Client(self.stonefold.socket, "again.vda") as client:
                    client.read(self.place(), 4096)
                kept.append((time.monotonic() - started) * 1000)
                self.discard("again")
        self.lab.raw("recover-first-block", {"milliseconds": times})
        goals = []
        for number, kept in times.items():
            goal = judged(kept, 100, True, "ms", self.condition, digits=1)
            goal["goal"] = f"point {number} of {POINTS}: {goal['goal']}"
            goals.append(goal)
        note = "the command's own start, the clone, a connection and the read; the server was restarted before each"
        return {"title": f"{self.title}: recover to the first cold block", "arms": {}, "goals": goals, "note": note}

    def stonefold_files_cold(self):
        for folder, _, files in os.walk(self.stonefold.folder):
            for file in files:
                with open(os.path.join(folder, file), "rb") as handle:
                    os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def many(self):
        """All asked for at one time, as many commands as machines; until the last serves a block."""
        started = time.monotonic()
        api = f"unix://{self.stonefold.api_socket}"
        argv = lambda number: [self.lab.binary, "--api", api, "recover", self.points[0], "--as", f"m{number}", "--json"]
        running = [subprocess.Popen(argv(number), stdout=subprocess.DEVNULL) for number in range(MANY)]
        if any(one.wait(300) != 0 for one in running):
            raise Failed("a recovery failed")
        for number in range(MANY):
            with Client(self.stonefold.socket, f"m{number}.vda") as client:
                client.read(self.place(), 4096)
        seconds = time.monotonic() - started
        peak = self.stonefold.memory()["VmHWM"] / MIB
        for number in range(MANY):
            self.discard(f"m{number}")
        self.lab.raw("recover-many", {"seconds": seconds, "peak_mib": peak})
        goals = [
            judged([seconds], 5, True, "s until the last serves", self.condition),
            judged([peak], self.lab.cache / MIB + 256, True, "MiB, resident at most", self.condition, digits=0),
        ]
        note = f"{MANY} commands at one time, then a read of each"
        return {"title": f"{self.title}: {MANY} machines of one point at one time", "arms": {}, "goals": goals, "note": note}


class Client:
    """As much of NBD as a block needs: fixed newstyle, NBD_OPT_GO, simple replies, one request at a time."""

    def __init__(self, path, export):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.receive(18)
        self.socket.sendall(struct.pack(">I", 3))
        name = export.encode()
        self.socket.sendall(b"IHAVEOPT" + struct.pack(">III", 7, len(name) + 6, len(name)) + name + struct.pack(">H", 0))
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.receive(20))
            said = self.receive(length)
            if kind == 1:
                return
            if kind >= 2**31:
                raise Failed(f"'{export}' is refused: {said.decode(errors='replace')}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # NBD_CMD_DISC
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
        self.socket.close()

    def receive(self, length):
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise Failed("the server has gone")
            data += part
        return bytes(data)

    def ask(self, command, offset, length, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 1, offset, length) + data)
        _, error, _ = struct.unpack(">IIQ", self.receive(16))
        if error:
            raise Failed(f"request {command} at {offset} failed: {error}")

    def read(self, offset, length):
        self.ask(0, offset, length)
        return self.receive(length)

    def write(self, offset, data):
        self.ask(1, offset, len(data), data)

    def flush(self):
        self.ask(3, 0, 0)
