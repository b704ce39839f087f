"""Rows of a disk of 1 TiB with 100 snapshots, mapped by stonefold-synthetic: what size alone costs. Counts, all but one: they are
true on a busy machine, too."""

import json
import os
import subprocess
import time

import load
from arms import Stonefold
from figures import judged

ROWS = ("terabyte-written", "terabyte-cold", "terabyte-reclaim", "terabyte-memory", "terabyte-exact", "terabyte-check")
MIB = 2**20


def plan(options):
    """Size, stock, bytes of it in a segment, snapshots, blocks changed before each."""
    return ("16G", "256M", "1M", 20, 1024) if options.quick else ("1T", "4G", "2M", 100, 4096)


def needs(options):
    return (2, 4 << 30) if options.quick else (25, 25 << 30)


def run(lab):
    size, stock, segment, snapshots, changes = plan(lab.options)
    folder = os.path.join(lab.scratch, "terabyte")
    os.makedirs(folder)
    lab.say(f"mapping a disk of {size}, with {snapshots} snapshots")
    argv = [lab.tool("stonefold-synthetic"), f"{folder}/pool", "--size", size, "--stock", stock, "--segment", segment]
    argv += ["--snapshots", str(snapshots), "--changes", str(changes), "--seed", str(lab.first_seed)]
    made = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=3000).stdout)
    lab.raw("terabyte", {"made": made})
    stonefold = Stonefold(lab, "terabyte")
    lab.keep = [stonefold]
    pool = Pool(lab, stonefold, made)
    lab.row("terabyte-written", pool.written)
    lab.row("terabyte-cold", pool.cold)
    lab.row("terabyte-reclaim", pool.reclaim)
    lab.row("terabyte-memory", pool.memory)
    lab.row("terabyte-exact", pool.exact)
    lab.row("terabyte-check", pool.check)
    stonefold.close()


class Pool:
    def __init__(self, lab, stonefold, made):
        self.lab, self.stonefold, self.made = lab, stonefold, made
        self.size = made["size_bytes"]
        self.title = f"{lab.shown_size(self.size)} mapped, {made['snapshots']} snapshots"
        self.condition = "" if self.size >= 2**40 else f"{lab.shown_size(self.size)}, not 1 TiB"

    def counted(self, job):
        """What the counters rose by while a job ran, and what it told."""
        before = self.stonefold.counters()
        told = job()
        after = self.stonefold.counters()
        rose = {key: after[key] - before[key] for key in after if key.endswith("_total") and key in before}
        return told, {key.removesuffix("_total"): value for key, value in rose.items()}

    def told(self, what, goals, note, **raw):
        self.lab.raw(self.lab.name, raw)
        return {"title": f"{self.title}: {what}", "arms": {}, "goals": goals, "note": note}

    def written(self):
        """By /proc/PID/io of the server, as in the row of the small disk. What reclaim writes meanwhile is in it."""
        self.stonefold.settle()
        before = self.stonefold.bytes_written()
        how = {"io_size": self.lab.write_bytes, "norandommap": True, "compress": 0, "fsync": 256, "settle": True}
        how |= {"region": self.size, "seconds_max": 1200}
        kept, rose = self.counted(lambda: load.run(self.lab, self.stonefold, "randwrite", "4k", 32, **how))
        logical, physical = kept["write"]["io_bytes"], self.stonefold.bytes_written() - before
        of = lambda key: rose[key] / logical
        data = of("segment_bytes_put") - of("map_bytes_put")
        told = of("journal_bytes_written") + of("segment_bytes_put") + of("ledger_bytes_put")
        told += of("account_bytes_put") + of("rewritten_bytes_put")
        note = f"journal {of('journal_bytes_written'):.2f}, data {data:.2f}, map {of('map_bytes_put'):.2f}"
        note += f" ({rose['map_leaves_put']:,.0f} leaves, {rose['map_inner_nodes_put']:,.0f} nodes above them, in {rose['fold_rounds']:.0f} rounds)"
        note += f", ledger {of('ledger_bytes_put'):.2f}, accounts {of('account_bytes_put'):.2f}, written anew {of('rewritten_bytes_put'):.2f}"
        note += f", heads and the rest {physical / logical - told:.2f}; {kept['rate']:,.0f} writes/s"
        made = self.made
        note += f"; a leaf takes {made['leaf_bytes']:,.0f} bytes here, {made['real_leaf_bytes']:,.0f} where nothing is a duplicate"
        goals = [judged([physical / logical], 3.5, True, "bytes for one", self.condition)]
        what = "physical bytes written for a logical one, 4K random, incompressible"
        return self.told(what, goals, note, physical_bytes=physical, logical_bytes=logical, counters=rose, fio=kept)

    def cold(self):
        """What the block cache answers counts as a read: so many blocks share so few places here, that it hits where it would not."""
        self.stonefold.make_cold()
        how = {"region": self.size, "seconds": self.lab.seconds}
        kept, rose = self.counted(lambda: load.run(self.lab, self.stonefold, "randread", "4k", 32, **how))
        operations = kept["read"]["total_ios"]
        reads = (rose["segment_reads"] + rose["cache_hits"]) / operations
        note = f"map nodes {rose['map_node_reads'] / operations:.2f}, cache hits {rose['cache_hits'] / operations:.2f} of it"
        note += f"; {operations:,} reads, {kept['rate']:,.0f}/s, cache {self.lab.cache / MIB:.0f} MiB"
        goals = [judged([reads], 2.0, True, "engine reads each", self.condition)]
        return self.told("a cold 4K read", goals, note, counters=rose, fio=kept)

    def reclaim(self):
        """All that reclaim reads, in the background and when asked, from the change to the end. A walk over the map, which is
        what it would be without its ledger, reads each node once."""
        self.stonefold.snapshot("disk", "before")
        self.stonefold.settle()
        self.stonefold.ask("POST", "/v1/pool/reclaim", {}, 3000)
        amount = {"io_size": self.size // 100, "norandommap": True, "compress": 90}
        how = {**amount, "region": self.size, "seconds_max": 3000, "settle": True}

        def job():
            kept = load.run(self.lab, self.stonefold, "randwrite", "4k", 32, **how)
            self.stonefold.ask("DELETE", "/v1/disks/disk/snapshots/before")
            started = time.monotonic()
            done = self.stonefold.ask("POST", "/v1/pool/reclaim", {}, 3000)
            return kept, done, time.monotonic() - started

        (kept, done, seconds), rose = self.counted(job)
        nodes = self.made["map_nodes"]
        share = rose["reclaim_reads"] / nodes
        note = f"{rose['reclaim_reads']:.0f} reads in {rose['reclaim_passes']:.0f} passes, {nodes:,} map nodes; the last, asked for, took"
        note += f" {seconds:.1f} s; {rose['segments_rewritten']:.0f} segments written anew, whose reads are not in it"
        if kept.get("cut_short"):
            note += f"; only {kept['write']['io_bytes'] / self.size:.2%} were changed: time ran out"
        goals = [judged([share], 0.05, True, "of a full walk's reads", self.condition, digits=5)]
        what = "reads of a reclaim after 1% changed at random"
        return self.told(what, goals, note, counters=rose, fio=kept, reclaimed=done, seconds=seconds)

    def memory(self):
        peak = self.stonefold.memory()["VmHWM"] / MIB
        samples = self.stonefold.counters()["dedupe_samples_total"]
        budget = self.lab.cache / MIB + 256
        missing = max(0, self.size / 4096 / 64 - samples)
        note = f"cache {self.lab.cache / MIB:.0f} MiB, journal {self.lab.journal / MIB:.0f} MiB; deduplication holds {samples:,.0f} samples, {missing:,.0f} fewer"
        note += " than of a disk of which nothing is a duplicate"
        goals = [judged([peak], budget, True, "MiB, resident at most", self.condition, digits=0)]
        return self.told("memory", goals, note, peak_mib=peak, samples=samples)

    def exact(self):
        started = time.monotonic()
        told, rose = self.counted(lambda: self.stonefold.ask("POST", "/v1/disks/disk/usage", {}, 3000))
        seconds = time.monotonic() - started
        goals = [judged([seconds], None, True, "s")]
        note = f"{rose['segment_reads']:,.0f} engine reads"
        return self.told("disk show --exact", goals, note, seconds=seconds, usage=told, counters=rose)

    def check(self):
        """That the pool is a true one: every reference and every checksum, of all snapshots."""
        started = time.monotonic()
        checked = self.stonefold.ask("POST", "/v1/pool/check", {}, 3000)
        seconds = time.monotonic() - started
        wrong = len(checked["problems"]) + checked["lost_bytes"]
        goals = [judged([wrong], 0, True, "things wrong", digits=0)]
        note = f"{checked['nodes']:,} nodes, {checked['blocks']:,} blocks, {checked['bytes'] >> 20:,} MiB in {seconds:.0f} s"
        return self.told("pool check", goals, note, seconds=seconds, checked=checked)
