"""The same traffic with real binaries as payload: what made-up payload may hide. fio cannot write such, so stonefold-load does, to
peers as well; reads are fio's. Shown beside, not judged."""

import json
import os

import load
from arms import PlainFile, QemuNbd, Stonefold
from figures import goal, mib_per_second, per_second, row
from processes import Failed
from rows_traffic import cold

ROWS = ("binaries-seqwrite", "binaries-randwrite", "binaries-mixed", "binaries-seqread", "binaries-cold-imported")
PAYLOAD_BYTES = 1 << 30
FOLDERS = ("/usr/bin", "/usr/lib", "/usr/libexec", "/usr/sbin")


def needs(options):
    return 3 if options.quick else 15, 6 * options.size + 3 * options.rounds * 10 * options.journal


def run(lab):
    payload = Payload(lab)
    lab.keep = [Stonefold(lab, "binaries"), QemuNbd(lab, "qcow2", "qcow2-binaries"), QemuNbd(lab, "raw", "raw-binaries")]
    stonefold, qcow2, raw = lab.keep
    # As in the other rows, so that one table's columns have one name.
    stonefold.name, qcow2.name, raw.name = "stonefold", "qcow2", "raw"
    stonefold.create("disk")
    for arm in lab.keep:
        payload.write(arm, "sequential", "1M", 8, lab.size)
    lab.row("binaries-seqwrite", lambda: written(lab, payload, (stonefold, raw), "sequential", "1M", 8, "1M sequential write, depth 8"))
    lab.row("binaries-randwrite", lambda: written(lab, payload, (stonefold, qcow2), "random", "4K", 32, "4K random write, depth 32"))
    lab.row("binaries-mixed", lambda: mixed(lab, payload, stonefold, qcow2))
    lab.row("binaries-seqread", lambda: imported(lab, payload, stonefold, "raw", "read", "1M", 8))
    lab.row("binaries-cold-imported", lambda: imported(lab, payload, stonefold, "qcow2", "randread", "4k", 32))
    for arm in lab.keep:
        arm.close()


class Payload:
    """Binaries of this machine, cut into blocks, each stamped so that none is written twice."""

    def __init__(self, lab):
        self.lab, self.program = lab, lab.tool("stonefold-load")
        self.file = os.path.join(lab.scratch, "payload")
        folders = [folder for folder in FOLDERS if os.path.isdir(folder)]
        self.cut = self.call("payload", self.file, "--bytes", str(PAYLOAD_BYTES), *folders)
        lab.check_payload(self.file, "binaries", 1.2, 4.0)
        lab.raw("binaries", {"payload": self.cut})

    def call(self, *argv, seconds_max=900):
        self.lab.jobs += 1
        output, log = os.path.join(self.lab.scratch, f"load-{self.lab.jobs}.json"), os.path.join(self.lab.scratch, "load.log")
        with open(output, "wb") as file:
            process = self.lab.processes.start([self.program, *argv], log, stdout=file)
        try:
            status = process.wait(seconds_max + 120)
        finally:
            self.lab.processes.stop(process, patience=5)
        if status != 0:
            with open(log) as file:
                raise Failed(f"stonefold-load: {file.read()[-300:]}")
        with open(output) as file:
            return json.load(file)

    def image(self, path, size):
        self.call("image", self.file, path, "--bytes", str(size), "--seed", str(self.lab.next_seed()))

    def write(self, arm, pattern, request, depth, amount, reads_percent=0, flush_each=0, seconds_max=900):
        """One job, told as load.run tells it. The drain counts."""
        before = arm.cpu_seconds()
        argv = ["run", self.file, "--socket", arm.socket, "--pattern", pattern, "--request", request, "--depth", str(depth)]
        argv += ["--bytes", str(int(amount)), "--reads-percent", str(reads_percent), "--flush-each", str(flush_each)]
        kept = self.call(*argv, "--seconds-max", str(int(seconds_max)), "--seed", str(self.lab.next_seed()), seconds_max=seconds_max)
        kept["settle_seconds"] = round(arm.settle(), 3)
        seconds = kept["seconds"] + kept["settle_seconds"]
        operations = kept["reads"] + kept["writes"]
        kept["rate"], kept["bytes_rate"] = operations / seconds, operations * kept["request_bytes"] / seconds
        kept["server_cpu_us_each"] = (arm.cpu_seconds() - before) * 1e6 / operations
        if kept["writes"] * kept["request_bytes"] < 0.99 * amount:
            kept["cut_short"] = True
        return kept


def written(lab, payload, arms, pattern, request, depth, title):
    def job(arm):
        how = {"flush_each": 256, "seconds_max": lab.seconds_max}
        return lambda: payload.write(arm, pattern, request, depth, lab.write_bytes, **how)

    measured = lab.alternate({arm.name: job(arm) for arm in arms})
    show = mib_per_second if pattern == "sequential" else per_second
    return row(f"binaries: {title}, flush each 256, with the drain", measured, show, goal(measured, arms[1].name, None), found(payload))


def mixed(lab, payload, stonefold, qcow2):
    def job(arm):
        how = {"reads_percent": 70, "seconds_max": lab.seconds_max}
        return lambda: payload.write(arm, "random", "8K", 32, lab.write_bytes, **how)

    measured = lab.alternate({arm.name: job(arm) for arm in (stonefold, qcow2)})
    return row("binaries: 8K random 70/30, depth 32, with the drain", measured, per_second, goal(measured, "qcow2", None), found(payload))


def imported(lab, payload, stonefold, form, rw, bs, depth):
    """A disk made by import, and the same image behind qemu-nbd and as it is."""
    plain = PlainFile(lab, f"plain-{rw}")
    payload.image(plain.file, lab.size)
    seconds = stonefold.import_disk(f"imported-{rw}", plain.file)
    stonefold.settle(f"imported-{rw}")
    peer = QemuNbd(lab, form, f"{form}-{rw}", plain.file)
    measured = lab.alternate(
        {
            "stonefold": cold(lab, stonefold, rw, bs, depth, f"imported-{rw}"),
            form: cold(lab, peer, rw, bs, depth),
            "plain": cold(lab, plain, rw, bs, depth),
        }
    )
    peer.close()
    plain.close()
    stonefold.ask("DELETE", f"/v1/disks/imported-{rw}?snapshots=true")
    show = mib_per_second if rw == "read" else per_second
    what = "1M sequential read" if rw == "read" else "4K random read"
    note = f"the import took {seconds:.1f} s; {found(payload)}"
    goals = goal(measured, form, None) + goal(measured, "plain", None)
    return row(f"binaries: {what}, depth {depth}, cold, disk made by import", measured, show, goals, note)


def found(payload):
    return f"payload of {payload.cut['files']:,} binaries, {payload.cut['blocks']:,} unique blocks"
