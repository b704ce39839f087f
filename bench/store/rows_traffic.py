"""Rows of reads and writes: Stonefold and its peers, one job each, taking turns."""

import os

import load
from arms import Nbdkit, PlainFile, QemuNbd, Stonefold
from figures import goal, per_second, mib_per_second, row


ROWS = ("seqread", "seqwrite", "randwrite", "mixed", "flushed", "cached", "cold-filled", "cold-imported")


def needs(options):
    """Each write job's amount may stay until its pool goes; four disks, then four more, filled and imported."""
    return 4.5 if options.quick else 45, 8 * options.size + 4 * options.rounds * 10 * options.journal


def run(lab):
    """The order matters: sequential reads come before anything has scattered the disks."""
    lab.say("starting the arms and writing each disk full")
    lab.keep = [Stonefold(lab), QemuNbd(lab, "qcow2"), QemuNbd(lab, "raw"), PlainFile(lab)]
    stonefold, qcow2, raw, plain = lab.keep
    stonefold.create("disk")
    for arm in lab.keep:
        prewrite(lab, arm)
    lab.check_payload(plain.file)
    lab.row("seqread", lambda: sequential_read(lab, stonefold, raw))
    lab.row("seqwrite", lambda: sequential_write(lab, stonefold, raw))
    lab.row("randwrite", lambda: random_write(lab, stonefold, qcow2, plain))
    lab.row("mixed", lambda: mixed(lab, stonefold, qcow2))
    lab.row("flushed", lambda: flushed_write(lab, stonefold, raw))
    lab.row("cached", lambda: cached_read(lab, stonefold))
    lab.row("cold-filled", lambda: cold_after_random_fill(lab, stonefold, plain))
    lab.row("cold-imported", lambda: cold_after_import(lab, stonefold, plain))
    for arm in lab.keep:
        arm.close()


def prewrite(lab, arm, rw="write", bs="1M", disk="disk"):
    load.run(lab, arm, rw, bs, 32 if rw == "randwrite" else 8, disk=disk, settle=True, seconds_max=900)


def sequential_read(lab, stonefold, raw):
    measured = lab.alternate({arm.name: cold(lab, arm, "read", "1M", 8) for arm in (stonefold, raw)})
    return row("1M sequential read, depth 8, cold", measured, mib_per_second, goal(measured, "raw", 1.0))


def sequential_write(lab, stonefold, raw):
    def job(arm):
        return lambda: load.run(lab, arm, "write", "1M", 8, io_size=lab.write_bytes, fsync=256, settle=True)

    measured = lab.alternate({arm.name: job(arm) for arm in (stonefold, raw)})
    title = "1M sequential write, depth 8, fsync each 256, with the drain"
    return row(title, measured, mib_per_second, goal(measured, "raw", 1.0))


def random_write(lab, stonefold, qcow2, plain):
    def job(arm):
        how = {"io_size": lab.write_bytes, "fsync": 256, "norandommap": True, "settle": True}
        return lambda: load.run(lab, arm, "randwrite", "4k", 32, **how)

    measured = lab.alternate({arm.name: job(arm) for arm in (stonefold, qcow2, plain)})
    goals = goal(measured, "qcow2", 3.0) + goal(measured, "plain", 1.0)
    return row("4K random write, depth 32, fsync each 256, with the drain", measured, per_second, goals)


def flushed_write(lab, stonefold, raw):
    def job(arm):
        return lambda: load.run(lab, arm, "randwrite", "4k", 1, seconds=lab.seconds, fsync=1, settle=True)

    measured = lab.alternate({arm.name: job(arm) for arm in (stonefold, raw)})
    title = "4K random write and flush, depth 1, with the drain"
    note = "timed; ten journals would take too long at this rate"
    return row(title, measured, per_second, goal(measured, "raw", 1.0), note)


def mixed(lab, stonefold, qcow2):
    def job(arm):
        how = {"rwmixread": 70, "io_size": lab.write_bytes / 0.3, "norandommap": True, "settle": True}
        return lambda: load.run(lab, arm, "randrw", "8k", 32, **how)

    measured = lab.alternate({arm.name: job(arm) for arm in (stonefold, qcow2)})
    return row("8K random 70/30, depth 32, with the drain", measured, per_second, goal(measured, "qcow2", 3.0))


def cached_read(lab, stonefold):
    region = min(lab.size, lab.cache // 2)
    nbdkit = Nbdkit(lab, region)

    def job(arm):
        def measure():
            load.run(lab, arm, "read", "1M", 8, region=region)
            return load.run(lab, arm, "randread", "4k", 32, region=region, seconds=lab.seconds)

        return measure

    load.run(lab, nbdkit, "write", "1M", 8, region=region)
    measured = lab.alternate({arm.name: job(arm) for arm in (stonefold, nbdkit)})
    nbdkit.close()
    goals = goal(measured, "nbdkit", 1.4)
    goals += goal(measured, None, 10.0, key="server_cpu_us_each", at_most=True, unit="µs of server CPU each")
    return row(f"4K random read, depth 32, in cache ({lab.shown_size(region)})", measured, per_second, goals)


def cold(lab, arm, rw, bs, depth, disk="disk"):
    """No block twice, so that what one request brought in serves a later one only as a neighbour."""

    def measure():
        arm.make_cold()
        return load.run(lab, arm, rw, bs, depth, disk=disk, seconds_max=lab.seconds)

    return measure


def cold_after_random_fill(lab, stonefold, plain):
    stonefold.create("filled")
    qcow2 = QemuNbd(lab, "qcow2", "qcow2-filled")
    lab.say("filling two disks in random order")
    prewrite(lab, stonefold, "randwrite", "4k", "filled")
    prewrite(lab, qcow2, "randwrite", "4k")
    measured = lab.alternate(
        {
            "stonefold": cold(lab, stonefold, "randread", "4k", 32, "filled"),
            "qcow2": cold(lab, qcow2, "randread", "4k", 32),
            "plain": cold(lab, plain, "randread", "4k", 32),
        }
    )
    qcow2.close()
    title = "4K random read, depth 32, cold, disk filled in random order"
    return row(title, measured, per_second, goal(measured, "qcow2", 1.0) + goal(measured, "plain", None))


def cold_after_import(lab, stonefold, plain):
    lab.say("importing a disk, and converting it to qcow2")
    seconds = stonefold.import_disk("imported", plain.file)
    stonefold.settle("imported")
    qcow2 = QemuNbd(lab, "qcow2", "qcow2-imported", plain.file)
    measured = lab.alternate(
        {
            "stonefold": cold(lab, stonefold, "randread", "4k", 32, "imported"),
            "qcow2": cold(lab, qcow2, "randread", "4k", 32),
            "plain": cold(lab, plain, "randread", "4k", 32),
        }
    )
    qcow2.close()
    note = f"the import took {seconds:.1f} s, {os.path.getsize(plain.file) / seconds / 2**20:.0f} MiB/s"
    goals = goal(measured, "qcow2", 2.0) + goal(measured, "plain", None)
    return row("4K random read, depth 32, cold, disk made by import", measured, per_second, goals, note)
