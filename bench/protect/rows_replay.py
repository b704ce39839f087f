"""What a Debian asks of its disk while it boots, asked again of a recovered machine's disk and of a raw file's, each request once those are answered
that it came after: at once, and after a part of the time that the emulated processor took from the last of these answers on."""

import os
import re
import shutil
import subprocess
import time
from datetime import datetime

from arms import Stonefold
from driver import FLUSH, READ, WRITE, Driver, Pci, Wire
from figures import judged, median
from idle import MEMORY, Idle, command
from processes import Failed, wait_for
from rows_boot import boot

ROWS = ("boot-replayed",)
MIB = 2**20
KINDS = {"Read": READ, "Write": WRITE, "Flush": FLUSH}
# Seconds for which the server learns from a boot.
LEARNT = 125
# What of the emulated processor's time a real one takes: none, for the bare answers; and a tenth, for the boot.
SHARES = {"at once": 0.0, "a tenth": 0.1}


def needs(options):
    return 8, 8 << 30


def run(lab):
    lab.row("boot-replayed", lambda: Replay(lab).measured())


class Replay:
    def __init__(self, lab):
        self.lab = lab
        guest = subprocess.run([os.path.join(lab.repository, "setup/guest-image")], capture_output=True, text=True, check=True, timeout=1800)
        self.image, self.copy = os.path.join(guest.stdout.strip(), "disk.raw"), os.path.join(lab.scratch, "replay.raw")
        self.idle = Idle(lab, "replay")
        self.stonefold = Stonefold(lab, "replay", path=self.idle.path)
        lab.keep = [self.stonefold]
        self.sources = 0

    def call(self, *words):
        return command(self.lab, self.stonefold, *words)

    def copied(self):
        subprocess.run(["cp", "--sparse=always", self.image, self.copy], check=True, timeout=300)
        subprocess.run(["sync", self.copy], check=True)

    def recorded(self):
        """The boot's requests, in their order."""
        self.copied()
        socket, log = os.path.join(self.lab.scratch, "recorded.nbd"), os.path.join(self.lab.scratch, "recorded.log")
        argv = ["nbdkit", "-f", "-U", socket, "--filter=log", "file", self.copy, f"logfile={log}"]
        process = self.lab.processes.start(argv, f"{log}.err")
        try:
            wait_for("nbdkit", lambda: os.path.exists(socket), 30, process, f"{log}.err")
            self.seconds = boot(self.lab, {"driver": "nbd", "server.type": "unix", "server.path": socket})
        finally:
            self.lab.processes.stop(process)
            os.unlink(self.copy)
        return requests(log)

    def asked(self, trace):
        """Seconds until all of it was answered, at once or not."""
        requests, share = trace
        largest = max(length for _, _, length, _, _ in requests)
        driver = Driver(Wire(self.idle.test), Pci(), self.idle.memory, MEMORY, max(largest, 4096))
        # Each write has bytes of its own: a store that keeps alike blocks once would have little to write.
        data = os.urandom(64 * MIB)
        try:
            return replayed(driver, requests, data, share)
        finally:
            driver.close()

    def recovered(self, trace, point, stays=0):
        self.stonefold.make_cold()
        begun = time.monotonic()
        self.call("recover", point, "--as", "again", "--to", "qemu")
        try:
            found = self.asked(trace)
            time.sleep(max(0, begun + stays - time.monotonic()))
            return found
        finally:
            self.call("recover", "stop", "again", "--discard", "--power-off")
            self.idle.gone()

    def raw(self, trace):
        self.copied()
        try:
            with self.idle.on_file(self.copy):
                time.sleep(0.5)
                return self.asked(trace)
        finally:
            os.unlink(self.copy)

    def point(self):
        """Of a source that nothing is known of."""
        self.sources += 1
        self.call("source", "add", f"deb{self.sources}", "--machine", "deb")
        return self.call("backup", "run", f"deb{self.sources}")

    def measured(self):
        if not shutil.which("nbdkit"):
            raise Failed("needs nbdkit")
        trace = self.recorded()
        self.call("disk", "import", "deb", self.image)
        self.call("machine", "add", "deb", "--disk", "deb", "--qemu-args", self.idle.words)
        learnt = self.point()
        self.recovered((trace, 0.0), learnt, stays=LEARNT)
        arms = {"raw": self.raw, "first": lambda asked: self.recovered(asked, self.point()), "learnt": lambda asked: self.recovered(asked, learnt)}
        found = {how: {arm: [] for arm in arms} for how in SHARES}
        for number in range(max(self.lab.rounds, 5)):
            for how, share in SHARES.items():
                for arm in list(arms) if number % 2 == 0 else reversed(arms):
                    found[how][arm].append(arms[arm]((trace, share)))
                self.lab.say(f"  {how}: " + ", ".join(f"{arm} {seconds[-1]:.2f} s" for arm, seconds in found[how].items()))
        self.stonefold.close()
        return self.told(trace, found)

    def told(self, trace, found):
        of = lambda kind: [length for of_it, _, length, _, _ in trace if of_it == kind]
        reads, writes, flushes = of(READ), of(WRITE), of(FLUSH)
        self.lab.raw("boot-replayed", {"seconds": found, "reads": len(reads), "writes": len(writes), "flushes": len(flushes), "boot_seconds": self.seconds})
        against = lambda how, arm: [ours / theirs for ours, theirs in zip(found[how][arm], found[how]["raw"])]
        goals = [
            judged(against("a tenth", "first"), 1.1, True, "× raw, the first time"),
            judged(against("a tenth", "learnt"), 1.1, True, "× raw, with what was learnt of the boot before"),
            judged(against("at once", "first"), None, True, "× raw, its answers alone, the first time"),
            judged(against("at once", "learnt"), None, True, "× raw, its answers alone, with what was learnt"),
        ]
        note = f"{len(reads):,} reads of {sum(reads) / MIB:.0f} MiB, {len(writes):,} writes of {sum(writes) / MIB:.0f}, {len(flushes)} flushes, in a boot of "
        note += f"{self.seconds:.0f} s by an emulated processor; asked again with a tenth of its computing, and with none: "
        shown = lambda how: ", ".join(f"{arm} {median(seconds):.2f} s" for arm, seconds in found[how].items())
        note += f"{shown('a tenth')}; {shown('at once')}"
        return {"title": "what a boot asks of its disk, from the recovered point", "arms": {}, "goals": goals, "note": note}


def requests(log):
    """(kind, offset, length, those that were under way when it came, seconds since the last answer before it), of nbdkit's log."""
    begun, ended = {}, {}
    line = re.compile(r"^(\S+ \S+) connection=(\d+) (\.\.\.)?(Read|Write|Flush) id=(\d+)(?: offset=0x([0-9a-f]+) count=0x([0-9a-f]+))?")
    with open(log) as file:
        for found in filter(None, map(line.match, file)):
            when, connection, is_end, kind, number, offset, count = found.groups()
            when, key = datetime.fromisoformat(when).timestamp(), (connection, kind, number)
            if is_end:
                ended[key] = when
            else:
                begun[key] = (when, KINDS[kind], int(offset or "0", 16), int(count or "0", 16))
    order = sorted(begun, key=lambda key: begun[key][0])
    if not order:
        raise Failed("nbdkit has recorded nothing")
    trace, under_way, last = [], {}, None
    for number, key in enumerate(order):
        when, kind, offset, length = begun[key]
        last = max([end for end in under_way.values() if end < when], default=last)
        under_way = {other: end for other, end in under_way.items() if end >= when}
        # What the firmware did before its first request is no part of it.
        trace.append((kind, offset, length, frozenset(under_way), when - last if last else 0.0))
        # Of the last ones the machine's end came before their answer.
        under_way[number] = ended.get(key, float("inf"))
    return trace


def replayed(driver, trace, data, share):
    """Seconds. The time before a request is `share` of the recorded one, from the answer on that it waited for."""
    asked, begun = set(), time.monotonic()
    answer = begun

    def answered():
        nonlocal answer
        for good, number, _ in driver.finished():
            if not good:
                raise Failed(f"request {number} of the boot was refused")
            asked.discard(number)
            answer = time.monotonic()

    for number, (kind, offset, length, beside, computing) in enumerate(trace):
        while not driver.free or not asked <= beside:
            answered()
        due = answer + share * computing
        while time.monotonic() < due:
            answered()
        at = number * 65521 % (len(data) - length)
        driver.submit(kind, offset, data[at : at + length] if kind == WRITE else b"", length if kind == READ else 0, number)
        asked.add(number)
    while asked:
        answered()
    return time.monotonic() - begun
