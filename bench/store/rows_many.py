"""100,000 snapshots in a pool, all of one disk, which is the hardest place for them."""

import time

import load
from arms import Connection, Stonefold
from figures import judged, quantile

ROWS = ("many-snapshots",)
# Told of together, so that the last can be held against the first.
LAP_PART = 10
REMOVED = 1000
# Some writes lie between most snapshots, and few enough that they are no load.
WRITES_PER_SECOND = 200


def count(options):
    return 10_000 if options.quick else 100_000


def needs(options):
    return 0.7 if options.quick else 6, 4 << 30


def run(lab):
    lab.row("many-snapshots", lambda: many(lab))


def many(lab):
    stonefold = Stonefold(lab, "many")
    lab.keep = [stonefold]
    stonefold.create("disk", 1 << 30)
    writes = load.Load(lab, stonefold, "randwrite", "4k", 1, seconds=3600, rate_iops=WRITES_PER_SECOND, region=1 << 30)
    api, wanted, laps, took = Connection(stonefold.api_socket), count(lab.options), [], []
    for number in range(wanted):
        started = time.monotonic()
        api.ask("POST", "/v1/snapshots", {"disks": ["disk"], "name": f"s{number}"})
        took.append((time.monotonic() - started) * 1000)
        if (number + 1) % (wanted // LAP_PART) == 0:
            lap = took[-(wanted // LAP_PART) :]
            laps.append({"after": number + 1, "p50_ms": quantile(lap, 50), "p99_ms": quantile(lap, 99), "max_ms": max(lap), **stonefold.memory()})
            lab.say(f"  {laps[-1]}")
    writes.stop()
    peak = stonefold.memory()["VmHWM"]
    started = time.monotonic()
    lab.processes.stop(stonefold.process)
    stopped = time.monotonic() - started
    stonefold.start()
    removed = remove(api, stonefold, wanted)
    started = time.monotonic()
    stonefold.ask("POST", "/v1/pool/reclaim", {}, 900)
    reclaimed = time.monotonic() - started
    peak = max(peak, stonefold.memory()["VmHWM"])
    lab.raw("many-snapshots", {"laps": laps, "stop_seconds": stopped, "ready_seconds": stonefold.ready_seconds, "remove_ms": removed, "reclaim_seconds": reclaimed, "peak_bytes": peak})
    stonefold.close()
    return told(lab, wanted, took, laps, removed, peak, (stopped, stonefold.ready_seconds, reclaimed))


def remove(api, stonefold, wanted):
    """One by one, evenly over all. The connection was the stopped server's."""
    api.close()
    api, took = Connection(stonefold.api_socket), []
    for number in range(0, wanted, max(1, wanted // REMOVED)):
        started = time.monotonic()
        api.ask("DELETE", f"/v1/disks/disk/snapshots/s{number}")
        took.append((time.monotonic() - started) * 1000)
    api.close()
    return took


def told(lab, wanted, took, laps, removed, peak, seconds):
    condition = "" if wanted >= 100_000 else f"{wanted:,}, not 100,000"
    created = judged([quantile(took, 99)], 10.0, True, "ms p99 to create", condition)
    created["figure"] += f", {quantile(took, 50):.2f} p50, {max(took):.2f} at most"
    gone = judged([quantile(removed, 99)], None, True, "ms p99 to remove")
    budget = lab.cache / 2**20 + 256
    goals = [created, gone, judged([peak / 2**20], budget, True, "MiB, resident at most", condition, digits=0)]
    first, last = laps[0], laps[-1]
    note = f"over the API on a kept connection, one after another, beside {WRITES_PER_SECOND} writes a second; the first tenth: p50 {first['p50_ms']:.2f},"
    note += f" p99 {first['p99_ms']:.2f} ms, the last: {last['p50_ms']:.2f}, {last['p99_ms']:.2f}; stopped in {seconds[0]:.1f} s, ready"
    note += f" again after {seconds[1]:.2f} s; {len(removed):,} removed ones given back in {seconds[2]:.1f} s"
    return {"title": f"{wanted:,} snapshots of one disk", "arms": {}, "goals": goals, "note": note}
