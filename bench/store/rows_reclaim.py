"""Rows about space that comes back, on a fresh pool."""

import os

import load
from arms import PlainFile, Stonefold
from figures import judged

BLOCK_BYTES = 4096


ROWS = ("overwritten-space", "deleted-disk", "reclaim-reads")


def needs(options):
    return 1.5 if options.quick else 12, 7 * options.size


def run(lab):
    lab.row("overwritten-space", lambda: overwritten(lab))
    lab.row("deleted-disk", lambda: deleted(lab))
    lab.row("reclaim-reads", lambda: reads_after_a_change(lab))


def settled(stonefold):
    """Bytes of the pool once everything is folded and given back. The journal's files are counted: they are the pool's."""
    stonefold.settle()
    done = stonefold.ask("POST", "/v1/pool/reclaim", {}, 900)
    return stonefold.status()["used_bytes"], done


def overwritten(lab):
    """Import, then three times its size in random 4 KiB overwrites, then reclaim. Live bytes are what a copy of the same
    contents takes in a pool of its own, which has only ever been imported."""
    source, stonefold, beside = PlainFile(lab, "plain-source"), Stonefold(lab, "reclaim"), Stonefold(lab, "reclaim-beside")
    lab.keep = [source, stonefold, beside]
    load.run(lab, source, "write", "1M", 8, seconds_max=900)
    stonefold.import_disk("disk", source.file)
    load.run(lab, stonefold, "randwrite", "4k", 32, io_size=3 * lab.size, norandommap=True, seconds_max=3600)
    used, done = settled(stonefold)
    # Read back through the door, so that it is the same contents to the byte.
    copy = os.path.join(lab.scratch, "reclaim-copy.raw")
    argv = [lab.binary, "disk", "export", "disk", copy, "--format", "raw", "--api", f"unix://{stonefold.api_socket}"]
    lab.processes.call(argv, stonefold.log, 1800)
    beside.import_disk("disk", copy)
    live, _ = settled(beside)
    os.unlink(copy)
    lab.raw("overwritten-space", {"used_bytes": used, "live_bytes": live, "reclaimed": done})
    for arm in (source, stonefold, beside):
        arm.close()
    goals = [judged([used / live], 1.25, True, "× live bytes", f"{lab.shown_size(lab.size)} disk")]
    title = "import, 3 × its size in random 4K overwrites, reclaim: pool against live bytes"
    return {"title": title, "arms": {}, "goals": goals, "note": f"{used >> 20} MiB for {live >> 20} MiB, journal files in both"}


def deleted(lab):
    """A second disk comes and goes beside a first."""
    stonefold = Stonefold(lab, "reclaim-deleted")
    lab.keep = [stonefold]
    for disk in ("disk", "second"):
        stonefold.create(disk)
    load.run(lab, stonefold, "write", "1M", 8, seconds_max=900)
    before, _ = settled(stonefold)
    load.run(lab, stonefold, "write", "1M", 8, disk="second", seconds_max=900)
    load.run(lab, stonefold, "randwrite", "4k", 32, disk="second", io_size=lab.size // 8, norandommap=True)
    stonefold.settle("second")
    between = stonefold.status()["used_bytes"]
    stonefold.ask("DELETE", "/v1/disks/second?snapshots=true")
    after, done = settled(stonefold)
    lab.raw("deleted-disk", {"before": before, "between": between, "after": after, "reclaimed": done})
    stonefold.close()
    goals = [judged([after / before], 1.05, True, "× its size before")]
    note = f"{before >> 20} MiB, with the second disk {between >> 20} MiB, afterwards {after >> 20} MiB"
    return {"title": "delete a disk, reclaim: pool against its size before", "arms": {}, "goals": goals, "note": note}


def reads_after_a_change(lab):
    """Engine reads of a reclaim after one block in a hundred changed at random behind a snapshot that is then removed, against
    those of a walk over all maps, which is what reclaim would be without its ledger: one read for each map node."""
    stonefold = Stonefold(lab, "reclaim-reads")
    lab.keep = [stonefold]
    stonefold.create("disk")
    load.run(lab, stonefold, "write", "1M", 8, seconds_max=900)
    stonefold.snapshot("disk", "before")
    settled(stonefold)
    nodes = stonefold.ask("POST", "/v1/pool/check", {}, 900)["nodes"]
    load.run(lab, stonefold, "randwrite", "4k", 32, io_size=lab.size // 100, norandommap=True)
    stonefold.settle()
    stonefold.ask("DELETE", "/v1/disks/disk/snapshots/before")
    stonefold.make_cold()
    read = lambda: stonefold.counters()["reclaim_reads_total"]
    counted = read()
    done = stonefold.ask("POST", "/v1/pool/reclaim", {}, 900)
    reads = read() - counted
    lab.raw("reclaim-reads", {"reads": reads, "nodes": nodes, "reclaimed": done})
    stonefold.close()
    condition = f"{lab.shown_size(lab.size)} disk, not 1 TiB"
    goals = [judged([reads / nodes], 0.05, True, "of a full walk's reads", condition, digits=3)]
    note = f"{reads:.0f} reads of ledgers and accounts; {nodes} map nodes; reads of segments written anew are not in it"
    return {"title": "reclaim after 1% changed at random: engine reads", "arms": {}, "goals": goals, "note": note}
