"""Rows about snapshots and clones. No peer: each is held against the same server without them, or a fixed bound."""

import time
from statistics import median

import load
from arms import Connection, Stonefold
from figures import goal, good, judged, per_second, quantile, row
from processes import Failed
from rows_reclaim import settled
from rows_traffic import prewrite

# How long they take is asked of many: twenty a second. What they cost the load, of one a second, which is still far more than
# anybody takes; beside twenty a second it is told, and not judged: each of them has a map of its own, so that the fold has several times
# the work.
OFTEN_SECONDS, SELDOM_SECONDS = 0.05, 1.0
SNAPSHOTS = 1000
CLONES = 1000
CLONES_DEEP = 100
# To each of the disks that are held against one another: 64 between a clone and the next.
WRITES_BEHIND = 64 * CLONES_DEEP
BLOCK_BYTES = 4096

ROWS = ("snapshots-under-load", "clones", "reads-behind-snapshots")


def needs(options):
    return 2 if options.quick else 15, 4 * options.size + 2 * options.rounds * 10 * options.journal


def run(lab):
    lab.say("a fresh pool for snapshots and clones")
    stonefold = Stonefold(lab, "stonefold-snapshots")
    lab.keep = [stonefold]
    stonefold.create("disk")
    prewrite(lab, stonefold)
    lab.row("snapshots-under-load", lambda: under_load(lab, stonefold))
    lab.row("clones", lambda: thousand_clones(lab, stonefold))
    lab.row("reads-behind-snapshots", lambda: reads_behind(lab, stonefold))
    stonefold.close()


def heavy(lab, arm, seconds):
    return load.Load(lab, arm, "randwrite", "4k", 32, seconds=seconds, fsync=256)


def under_load(lab, stonefold):
    created, removed, fresh = [], [], iter(range(10**9))
    often, seldom = [], []

    def measure(job):
        kept = job.result()
        kept["rate"] = kept["write"]["iops"]
        kept["p99_ms"] = load.p99_ms(kept, "write")
        stonefold.settle()
        return kept

    def creating(names, interval, times_ms):
        create = lambda api: create_one(api, names, fresh)
        return lambda: measure(beside(lab, stonefold, create, interval, times_ms))

    def removing(names, interval, times_ms):
        return lambda: measure(beside(lab, stonefold, lambda api: remove_one(api, names), interval, times_ms))

    measured = lab.alternate(
        {
            "stonefold": lambda: measure(heavy(lab, stonefold, lab.seconds * 2)),
            "creating one a second": creating(seldom, SELDOM_SECONDS, []),
            "removing one a second": removing(seldom, SELDOM_SECONDS, []),
            "creating twenty a second": creating(often, OFTEN_SECONDS, created),
            "removing twenty a second": removing(often, OFTEN_SECONDS, removed),
        }
    )
    lab.raw("snapshots-under-load", {"create_ms": created, "remove_ms": removed})
    goals = []
    for what, times in (("create", created), ("remove", removed)):
        if times:
            told = judged([quantile(times, 99)], 10.0, True, f"ms p99 to {what}")
            told["figure"] += f", {quantile(times, 50):.2f} p50, {max(times):.2f} at most, of {len(times)}"
            goals.append(told)
    beside_often = []
    for arm in [arm for arm in measured if arm != "stonefold"]:
        pairs = [pair for pair in zip(measured[arm], measured["stonefold"]) if good(pair) == list(pair)]
        rates = [with_it["rate"] / without["rate"] for with_it, without in pairs]
        tails = [with_it["p99_ms"] / without["p99_ms"] for with_it, without in pairs]
        if arm.endswith("one a second"):
            goals.append(judged(rates, 0.9, False, f"× throughput, {arm}"))
            goals.append(judged(tails, 1.5, True, f"× p99 of writes, {arm}"))
        elif pairs:
            told = f"{arm}: throughput {median(rates):.2f} ×, p99 of writes {median(tails):.2f} ×"
            beside_often.append(told)
    note = "; ".join(["over the API on a kept connection", "p99 is of twenty a second", *beside_often])
    return row("snapshots under 4K random writes, depth 32, fsync each 256", measured, per_second, goals, note)


def create_one(api, names, fresh):
    name = f"s{next(fresh)}"
    api.ask("POST", "/v1/snapshots", {"disks": ["disk"], "name": name})
    names.append(name)


def remove_one(api, names):
    if not names:
        return False
    api.ask("DELETE", f"/v1/disks/disk/snapshots/{names.pop()}")
    return True


def beside(lab, stonefold, act, interval, times_ms):
    """The load, at whose end it returns: it acts at fixed instants meanwhile. A late one is measured from when it was due."""
    job = heavy(lab, stonefold, lab.seconds * 2)
    api = Connection(stonefold.api_socket)
    time.sleep(0.5)
    due = time.monotonic()
    while job.running():
        time.sleep(max(0.0, due - time.monotonic()))
        if act(api) is False:
            break
        times_ms.append((time.monotonic() - due) * 1000)
        due += interval
    api.close()
    return job


def thousand_clones(lab, stonefold):
    # Thousands of removed snapshots are being given back: that would be measured with the clones, in time and in space.
    settled(stonefold)
    stonefold.snapshot("disk", "golden")
    before, _ = settled(stonefold)
    api, started = Connection(stonefold.api_socket), time.monotonic()
    for number in range(CLONES):
        api.ask("POST", "/v1/disks/disk/snapshots/golden/clone", {"name": f"clone-{number}"})
    seconds = time.monotonic() - started
    stonefold.settle()
    each = (stonefold.status()["used_bytes"] - before) / CLONES / 1024
    lab.raw("clones", {"seconds": seconds, "used_bytes_before": before, "kib_each": each})
    started = time.monotonic()
    for number in range(CLONES):
        api.ask("DELETE", f"/v1/disks/clone-{number}")
    removing = time.monotonic() - started
    api.close()
    if each < 0:
        raise Failed(f"the pool shrank by {-each:.0f} KiB for each clone: something else was being given back")
    goals = [judged([seconds], 5.0, True, "s in all"), judged([each], 64.0, True, "KiB of pool each")]
    note = f"over the API on a kept connection; removing them again took {removing:.1f} s"
    return {"title": f"{CLONES:,} clones of one snapshot", "arms": {}, "goals": goals, "note": note}


def reads_behind(lab, stonefold):
    """Three disks of the same content, with as many random writes since: as they were, with snapshots taken among them, and with a
    clone of a clone taken after every few."""
    region = min(lab.size, lab.cache // 4)
    # What was removed before is being given back.
    settled(stonefold)
    stonefold.snapshot("disk", "original")
    lab.say(f"{SNAPSHOTS:,} snapshots under writes, then a clone of a clone, {CLONES_DEEP} deep")
    api = Connection(stonefold.api_socket)
    base = "/v1/disks/disk/snapshots/original/clone"
    for disk in ("plain", "behind", "deep-0"):
        api.ask("POST", base, {"name": disk})
    written = dict(region=region, io_size=WRITES_BEHIND * BLOCK_BYTES)
    load.run(lab, stonefold, "randwrite", "4k", 1, disk="plain", **written)
    writes = load.Load(lab, stonefold, "randwrite", "4k", 1, disk="behind", rate_iops=1000, **written)
    for number in range(SNAPSHOTS):
        api.ask("POST", "/v1/snapshots", {"disks": ["behind"], "name": f"s{number}"})
        time.sleep(0.002)
    writes.result()
    few = dict(written, io_size=WRITES_BEHIND // CLONES_DEEP * BLOCK_BYTES)
    for depth in range(CLONES_DEEP):
        load.run(lab, stonefold, "randwrite", "4k", 1, disk=f"deep-{depth}", **few)
        api.ask("POST", "/v1/snapshots", {"disks": [f"deep-{depth}"], "name": "s"})
        api.ask("POST", f"/v1/disks/deep-{depth}/snapshots/s/clone", {"name": f"deep-{depth + 1}"})
    api.close()
    stonefold.settle("behind")

    def cached(disk):
        def measure():
            load.run(lab, stonefold, "read", "1M", 8, disk=disk, region=region)
            return load.run(lab, stonefold, "randread", "4k", 32, disk=disk, region=region, seconds=lab.seconds)

        return measure

    def cold(disk):
        def measure():
            stonefold.make_cold()
            return load.run(lab, stonefold, "randread", "4k", 32, disk=disk, region=region)

        return measure

    disks = {"without": "plain", "1,000 snapshots": "behind", f"clone ×{CLONES_DEEP}": f"deep-{CLONES_DEEP}"}
    arms = {arm: cached(disk) for arm, disk in disks.items()}
    measured = lab.alternate({**arms, **{f"cold, {arm}": cold(disk) for arm, disk in disks.items()}})
    goals = []
    for arm in measured:
        base = "cold, without" if arm.startswith("cold") else "without"
        if arm == base:
            continue
        pairs = [pair for pair in zip(measured[arm], measured[base]) if good(pair) == list(pair)]
        goals.append(judged([ours["rate"] / theirs["rate"] for ours, theirs in pairs], 0.95, False, f"× {base}, {arm}"))
    note = f"{lab.shown_size(region)} of each disk, {WRITES_BEHIND:,} blocks written at random; cold: each block once"
    return row("4K random read, depth 32, behind snapshots", measured, per_second, goals, note)
