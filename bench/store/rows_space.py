"""Rows about room, memory and recovery, each on a fresh pool."""

import os
import random
import time

import load
from arms import PlainFile, Stonefold
from figures import judged, mib_per_second, row
from rows_traffic import cold, prewrite

PIECE_BYTES = 64 << 10


ROWS = ("deduplicated-read", "amplification", "kill", "memory")


def needs(options):
    return 1.5 if options.quick else 10, 6 * options.size


def run(lab):
    lab.row("deduplicated-read", lambda: deduplicated_read(lab))
    lab.say("a fresh pool for what is written and for kills")
    stonefold = Stonefold(lab, "stonefold-space")
    lab.keep = [stonefold]
    stonefold.create("disk")
    prewrite(lab, stonefold)
    lab.row("amplification", lambda: amplification(lab, stonefold))
    lab.row("kill", lambda: kill_under_load(lab, stonefold))
    stonefold.close()
    lab.row("memory", lambda: memory_at_most(lab))


def deduplicated_read(lab):
    """The same content twice: as written, and its pieces in another order, so that the second disk is wholly made of
    what the first one stored, but lies scattered."""
    source = PlainFile(lab, "plain-source")
    stonefold = Stonefold(lab, "stonefold-dedupe")
    lab.keep = [source, stonefold]
    load.run(lab, source, "write", "1M", 8, seconds_max=900)
    contents = {"unshared": source.file, "copy": source.file, "shuffled": shuffle(source.file, lab.first_seed)}
    found = {disk: import_and_count(lab, stonefold, disk, path) for disk, path in contents.items()}
    disks = tuple(contents)
    measured = lab.alternate({disk: cold(lab, stonefold, "read", "1M", 8, disk) for disk in disks})
    source.close()
    stonefold.close()
    goals = []
    for disk in disks[1:]:
        pairs = zip(measured[disk], measured["unshared"])
        values = [a["bytes_rate"] / b["bytes_rate"] for a, b in pairs if "failed" not in a and "failed" not in b]
        goals.append(judged(values, 0.7, False, f"× unshared, {disk}"))
        # What was stored again says nothing of reading what was not.
        goals.append(judged([found[disk]], 0.95 if disk == "copy" else 0.5, False, f"of its blocks found in the pool, {disk}"))
    shares = ", ".join(f"{disk} {share:.0%}" for disk, share in found.items())
    note = f"blocks that the pool had already when the disk was imported: {shares}"
    title = f"1M sequential read, depth 8, cold, of deduplicated disks (shuffled in pieces of {PIECE_BYTES >> 10} KiB)"
    return row(title, measured, mib_per_second, goals, note)


def import_and_count(lab, stonefold, disk, path):
    """The share of the disk's blocks that were stored already: without it nobody knows what the row shows."""
    before = stonefold.counters()
    stonefold.import_disk(disk, path)
    stonefold.settle(disk)
    after = stonefold.counters()
    sought, found = (after[key] - before[key] for key in ("dedupe_sought_blocks_total", "dedupe_found_blocks_total"))
    used = stonefold.status()["used_bytes"]
    lab.raw("deduplicated-read", {"disk": disk, "sought_blocks": sought, "found_blocks": found, "used_bytes": used})
    return found / sought if sought else 0.0


def shuffle(path, seed):
    order = list(range(os.path.getsize(path) // PIECE_BYTES))
    random.Random(seed).shuffle(order)
    with open(path, "rb") as source, open(f"{path}.shuffled", "wb") as target:
        for piece in order:
            target.write(os.pread(source.fileno(), PIECE_BYTES, piece * PIECE_BYTES))
    return f"{path}.shuffled"


def amplification(lab, stonefold):
    """By /proc/PID/io of the server: the medium's own counters would count the neighbours. Left out that way: what the
    file system writes for itself."""
    stonefold.settle()
    before, counted = stonefold.bytes_written(), stonefold.counters()
    how = {"io_size": lab.write_bytes, "norandommap": True, "compress": 0, "fsync": 256, "settle": True}
    kept = load.run(lab, stonefold, "randwrite", "4k", 32, **how)
    logical = kept["write"]["io_bytes"]
    physical = stonefold.bytes_written() - before
    after = stonefold.counters()
    parts = {key: after[key] - counted[key] for key in counted if key.endswith("_total") and key in after}
    lab.raw("amplification", {"physical_bytes": physical, "logical_bytes": logical, "counters": parts, "fio": kept})
    of = lambda key: parts.get(key, 0) / logical
    note = f"journal {of('journal_bytes_written_total'):.2f}, segments {of('segment_bytes_put_total'):.2f} of it"
    goals = [judged([physical / logical], 2.5, True, f"bytes for one, {lab.shown_size(lab.size)} disk")]
    title = "physical bytes written for a logical one, 4K random, incompressible"
    return {"title": title, "arms": {}, "goals": goals, "note": note}


def kill_under_load(lab, stonefold):
    seconds = []
    for number in range(lab.rounds):
        job = load.Load(lab, stonefold, "randwrite", "4k", 32, seconds=60, fsync=256)
        # Another instant each time, so that not every kill meets the fold in the same place.
        time.sleep(lab.seconds + 0.37 * number)
        unfolded = stonefold.status()["journal_bytes"]
        stonefold.kill()
        job.stop()
        stonefold.start()
        seconds.append(stonefold.ready_seconds)
        lab.say(f"  kill {number + 1} of {lab.rounds}: ready after {stonefold.ready_seconds:.2f} s, {unfolded >> 20} MiB to replay")
        lab.raw("kill", {"ready_seconds": stonefold.ready_seconds, "unfolded_bytes": unfolded})
        stonefold.settle()
    condition = f"{lab.shown_size(lab.size)} mapped, not 64 GiB"
    told = judged([max(seconds)], 2.0, True, "s, the slowest", condition)
    note = "each, in s: " + ", ".join(f"{one:.2f}" for one in seconds)
    return {"title": "kill -9 under load, to ready", "arms": {}, "goals": [told], "note": note}


def memory_at_most(lab):
    peak = lab.memory_max
    mib = 2**20
    budget = lab.cache / mib + 256
    condition = f"disks of {lab.shown_size(lab.size)}, payload unique; not 64 GiB of duplicates"
    told = judged([peak / mib] if peak else [], budget, True, "MiB", condition, digits=0)
    note = f"the largest VmHWM of any server of this run; cache {lab.cache / mib:.0f} MiB, journal {lab.journal / mib:.0f} MiB"
    return {"title": "memory, resident at most", "arms": {}, "goals": [told], "note": note}
