"""Rows of a disk of 64 GiB, mapped: memory, and starting again after a kill."""

import time

import load
from arms import Stonefold
from figures import judged

ROWS = ("duplicates-memory", "kill-mapped")
MIB = 2**20
# Of a hundred blocks so many repeat one of a small set, itself one in a hundred of the disk. More of them new, and most
# requests would hold a new one: then the duplicates around it are stored again, so that the request stays together.
DUPLICATES_PERCENT = 99
SET_PERCENT = 1


def size(options):
    return (2 if options.quick else 64) << 30


def needs(options):
    return (2, 6 << 30) if options.quick else (25, 24 << 30)


def run(lab):
    disk = Mapped(lab)
    lab.keep = [disk.stonefold]
    disk.fill()
    lab.row("duplicates-memory", disk.memory)
    lab.row("kill-mapped", disk.kill)
    disk.stonefold.close()


class Mapped:
    def __init__(self, lab):
        self.lab, self.size = lab, size(lab.options)
        self.stonefold = Stonefold(lab, "mapped")
        self.shown = lab.shown_size(self.size)
        self.condition = "" if self.size >= 64 << 30 else f"{self.shown}, not 64 GiB"

    def fill(self):
        """Every block once, in random order, in requests of 64 KiB; then ten journals in requests of 4 KiB, which cost the most
        memory for what they bring."""
        self.lab.say(f"writing {self.shown} at random, mostly duplicates")
        self.stonefold.create("disk", self.size)
        more = [f"--dedupe_percentage={DUPLICATES_PERCENT}", "--dedupe_mode=working_set"]
        more += [f"--dedupe_working_set_percentage={SET_PERCENT}"]
        how = {"region": self.size, "seconds_max": 3000, "settle": True, "more": more}
        self.kept = load.run(self.lab, self.stonefold, "randwrite", "64k", 16, io_size=self.size, **how)
        self.filled = self.stonefold.memory()
        # With the cache full, or its memory would go uncounted.
        load.run(self.lab, self.stonefold, "read", "1M", 8, region=min(self.size, 4 * self.lab.cache), seconds_max=600)
        how |= {"io_size": self.lab.write_bytes, "norandommap": True, "fsync": 256}
        load.run(self.lab, self.stonefold, "randwrite", "4k", 32, **how)
        self.peak, self.counters = self.stonefold.memory(), self.stonefold.counters()
        self.mapped = self.stonefold.ask("GET", "/v1/disks/disk")["mapped_bytes"]
        self.used = self.stonefold.status()["used_bytes"]

    def memory(self):
        peak, budget = self.peak["VmHWM"] / MIB, self.lab.cache / MIB + 256
        found = self.counters["dedupe_found_blocks_total"] / self.counters["dedupe_sought_blocks_total"]
        note = f"cache {self.lab.cache / MIB:.0f} MiB, journal {self.lab.journal / MIB:.0f} MiB; {self.mapped / 2**30:.1f} GiB mapped,"
        note += f" {found:.0%} of the blocks were found to be stored already (fio repeats {DUPLICATES_PERCENT}%), {self.used >> 20:,} MiB in the pool;"
        note += f" at most {self.filled['VmHWM'] / MIB:.0f} MiB when it was filled, {self.peak['VmRSS'] / MIB:.0f} MiB at the end;"
        note += f" {self.kept['bytes_rate'] / MIB:,.0f} MiB/s with the drain"
        self.lab.raw("duplicates-memory", {"memory_filled": self.filled, "memory": self.peak, "counters": self.counters, "used_bytes": self.used, "fio": self.kept})
        goals = [judged([peak], budget, True, "MiB, resident at most", self.condition, digits=0)]
        return {"title": f"memory with {self.shown} written at random, mostly duplicates", "arms": {}, "goals": goals, "note": note}

    def kill(self):
        """Under writes that nobody has: the fold has work, and the journal is as full as it gets."""
        seconds, replayed, memory = [], [], []
        for number in range(self.lab.rounds):
            how = {"seconds": 120, "fsync": 256, "region": self.size}
            job = load.Load(self.lab, self.stonefold, "randwrite", "4k", 32, **how)
            # Another instant each time, so that not every kill meets the fold in the same place.
            time.sleep(self.lab.seconds + 0.37 * number)
            unfolded = self.stonefold.status()["journal_bytes"]
            self.stonefold.kill()
            job.stop()
            self.stonefold.start()
            seconds.append(self.stonefold.ready_seconds)
            replayed.append(unfolded >> 20)
            self.stonefold.settle()
            memory.append(self.stonefold.memory()["VmHWM"] / MIB)
            kept = {"ready_seconds": seconds[-1], "unfolded_bytes": unfolded, "resident_mib": memory[-1]}
            self.lab.say(f"  kill {number + 1} of {self.lab.rounds}: {kept}")
            self.lab.raw("kill-mapped", kept)
        goals = [judged([max(seconds)], 2.0, True, "s, the slowest", self.condition)]
        goals.append(judged([max(memory)], self.lab.cache / MIB + 256, True, "MiB, resident at most", self.condition, digits=0))
        note = "each: " + ", ".join(f"{one:.2f} s with {mib} MiB to replay" for one, mib in zip(seconds, replayed))
        return {"title": f"kill -9 under load with {self.shown} mapped, to ready", "arms": {}, "goals": goals, "note": note}
