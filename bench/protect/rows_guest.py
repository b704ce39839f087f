"""Rows of backups of somebody else's QEMU: a guest whose qcow2 lies in a directory of ours, with bitmaps. What is read after a hundredth has
changed, and what the guest feels while it is backed up. The guest is a driver and nothing else (guest.py)."""

import json
import os
import random
import shutil
import subprocess
import time
from contextlib import closing

from arms import Stonefold
from figures import judged, median, quantile
from guest import Guest
from processes import Failed
from rows_backup import BLOCK, CHANGED, MIB, fill, places, plan, timed

ROWS = ("guest-incremental", "guest-writes", "guest-writes-apart")
# Writes a second: far below what the disk takes, so that it is the backup that is felt and not the load.
RATE = 200
# Runs after a change, for each full.
AGAIN = 3


def needs(options):
    return (5, 4 << 30) if options.quick else (14, 14 << 30)


def run(lab):
    size, held = plan(lab.options)
    folder = os.path.join(lab.scratch, "guest")
    os.makedirs(folder)
    raw, image = os.path.join(folder, "image.raw"), os.path.join(folder, "image.qcow2")
    lab.say(f"a guest's disk of {lab.shown_size(size)} that holds {lab.shown_size(held)}")
    fill(raw, size, held, lab.first_seed)
    convert = ["qemu-img", "convert", "-T", "none", "-t", "none", "-f", "raw", "-O", "qcow2", raw, image]
    subprocess.run(convert, check=True, timeout=900)
    os.unlink(raw)
    guest = Guest(lab, "guest", image, "qcow2", lab.qemu_aio)
    try:
        with closing(Backup(lab, guest, size, held)) as backup:
            lab.row("guest-incremental", backup.incremental)
            lab.row("guest-writes", backup.writes)
        with closing(Backup(lab, guest, size, held, apart=True)) as backup:
            lab.row("guest-writes-apart", backup.writes)
    finally:
        guest.close()
        shutil.rmtree(folder)


class Backup:
    def __init__(self, lab, guest, size, held, apart=False):
        """`apart`: the pool has a medium of its own, which is memory here; without, it has the guest's."""
        self.lab, self.guest, self.held, self.apart = lab, guest, held, apart
        self.at = places(size, held, lab.first_seed)
        self.chance = random.Random(lab.first_seed + 2000)
        self.stonefold = Stonefold(lab, "guest-pool", parent=lab.in_memory if apart else None)
        lab.keep = [self.stonefold]
        self.cli = [lab.binary, "--api", f"unix://{self.stonefold.api_socket}"]
        self.size = f"{lab.shown_size(size)} that hold {lab.shown_size(held)}"
        self.condition = "" if held == 4 << 30 else self.size
        self.has_source = False

    def call(self, *words):
        done = subprocess.run([*self.cli, *words], capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def renew(self):
        """A pool that knows nothing, and a guest without bitmaps of the last."""
        if self.has_source:
            self.call("source", "rm", "s")
        self.lab.processes.stop(self.stonefold.process)
        shutil.rmtree(os.path.join(self.stonefold.folder, "pool"))
        self.stonefold.start()
        self.call("source", "add", "s", "--qmp", self.guest.backup_qmp)
        self.has_source = True

    def changes(self, blocks):
        """Blocks of what the disk holds, each once."""
        for number in self.chance.sample(range(len(self.at) * MIB // BLOCK), blocks):
            at, block = divmod(number, MIB // BLOCK)
            yield self.at[at] * MIB + block * BLOCK, self.content()

    def content(self):
        return self.chance.randbytes(BLOCK // 2) + bytes(BLOCK // 2)

    def back_up(self):
        """How long the command took, and the run as it tells of itself."""
        said = []
        seconds = timed(lambda: said.append(self.call("backup", "run", "s").strip()))
        return seconds, json.loads(self.call("backup", "show", said[0], "--json"))["copied"]

    def incremental(self):
        fulls, agains, shares = [], [], []
        blocks = self.held // BLOCK // CHANGED
        for _ in range(max(self.lab.rounds, 3)):
            self.renew()
            full, _ = self.back_up()
            for _ in range(AGAIN):
                self.guest.write(self.changes(blocks))
                seconds, told = self.back_up()
                fulls.append(full)
                agains.append(seconds)
                shares.append(told["read_bytes"] / (blocks * BLOCK))
                self.lab.raw("guest-incremental", {"full_seconds": full, "seconds": seconds, "changed_bytes": blocks * BLOCK, "copied": told})
        goals = [
            judged(shares, 1.05, True, "× the changed bytes read", self.condition, digits=3),
            judged([full / again for full, again in zip(fulls, agains)], 20, False, "× faster than the full", self.condition, digits=1),
        ]
        note = f"full {median(fulls):.1f} s, again {median(agains):.2f} s, with the command's own start"
        return {"title": f"QEMU's disk of {self.size}: after 1% changed at random", "arms": {}, "goals": goals, "note": note}

    def loaded(self, until):
        def endless():
            while True:
                yield self.chance.choice(self.at) * MIB + self.chance.randrange(MIB // BLOCK) * BLOCK, self.content()

        return [seconds * 1000 for seconds in self.guest.load(RATE, endless(), until)]

    def alone(self):
        end = time.monotonic() + max(self.lab.seconds, 10)
        return self.loaded(lambda: time.monotonic() > end)

    def beside(self, *words):
        running = subprocess.Popen([*self.cli, "backup", "run", "s", *words], stdout=subprocess.DEVNULL)
        times = self.loaded(lambda: running.poll() is not None)
        if running.wait() != 0:
            raise Failed("the backup failed")
        return times

    def writes(self):
        """Without, during the first full, without, during a full that finds all alike, and so on: each against the one before it."""
        kinds = {"a first backup": ([], []), "one that compares (--full)": ([], [])}
        for _ in range(max(self.lab.rounds, 3)):
            self.renew()
            for (kind, (without, during)), words in zip(kinds.items(), ((), ("--full",))):
                subprocess.run(["sync"], check=True)
                for kept, measure in ((without, self.alone), (during, lambda: self.beside(*words))):
                    times = measure()
                    kept.append(quantile(times, 99))
                    told = {"count": len(times), **{f"p{share}_ms": quantile(times, share) for share in (50, 99)}, "max_ms": max(times)}
                    self.lab.raw(self.lab.name, {"kind": kind, "backup": kept is during, **told})
        goals, notes = [], []
        for kind, (without, during) in kinds.items():
            goal = judged([b / a for a, b in zip(without, during)], 1.25, True, "× without, p99", self.condition)
            goals.append({**goal, "goal": f"{kind}: {goal['goal']}"})
            notes.append(f"{kind}: p99 {median(without):.2f} ms without, {median(during):.2f} ms during")
        title = f"QEMU's disk of {self.size}: 4K random writes of its guest, {RATE} a second"
        title += "; the pool on another medium, in memory" if self.apart else "; the pool on the same medium"
        return {"title": title, "arms": {}, "goals": goals, "note": "; ".join(notes)}

    def close(self):
        try:
            if self.has_source:
                self.call("source", "rm", "s")
        finally:
            self.stonefold.close()
