"""fio, one job at a time: its arguments, and the part of its answer that is kept."""

import json
import os
import subprocess
import time

from processes import Failed, last_line

KEPT = ("io_bytes", "iops", "bw_bytes", "runtime", "total_ios")


class Load:
    """A running fio. `result()` waits for its end."""

    def __init__(self, lab, arm, rw, bs, depth, disk="disk", **how):
        lab.jobs += 1
        self.lab, self.arm, self.what = lab, arm, f"{rw} {bs} depth {depth}"
        self.output = os.path.join(lab.scratch, f"fio-{lab.jobs}.json")
        self.log = os.path.join(lab.scratch, "fio.log")
        # The seed makes each job's payload its own: with fio's default seed two jobs write the same bytes, and
        # the second would find them all in the pool.
        argv = ["fio", "--name=load", "--thread", "--output-format=json", f"--output={self.output}", "--eta=never"]
        argv += [*arm.target(disk), f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", f"--randseed={lab.next_seed()}"]
        argv += [f"--size={how.get('region') or lab.size}", "--refill_buffers"]
        compress = how.get("compress", 50)
        if compress:
            argv += [f"--buffer_compress_percentage={compress}", "--buffer_compress_chunk=4096"]
        seconds = how.get("seconds")
        limit = how.get("seconds_max") or lab.seconds_max
        if seconds:
            argv += ["--time_based", f"--runtime={seconds}"]
        else:
            argv += [f"--runtime={limit}"]
        for option in ("io_size", "fsync", "rwmixread", "rate_iops"):
            if how.get(option):
                argv += [f"--{option}={int(how[option])}"]
        argv += how.get("more", [])
        if how.get("norandommap", bool(seconds)):
            argv += ["--norandommap"]
        self.argv, self.patience = argv, (seconds or limit) + 120
        self.cpu_before = arm.cpu_seconds()
        self.started = time.monotonic()
        self.process = lab.processes.start(argv, self.log, stdout=subprocess.DEVNULL)

    def stop(self):
        self.lab.processes.stop(self.process, patience=20)

    def running(self):
        return self.process.poll() is None

    def result(self, accept_failure=False):
        try:
            status = self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            raise Failed(f"fio did not end within {self.patience:.0f} s ({self.what})") from None
        finally:
            self.stop()
        wall = time.monotonic() - self.started
        if status != 0 and not accept_failure:
            raise Failed(f"fio ended with status {status} ({self.what}): {last_line(self.log)}")
        with open(self.output) as file:
            text = file.read()
        os.unlink(self.output)
        job = json.loads(text[text.index("{") :])["jobs"][0]
        kept = {"argv": shown(self.argv, self.lab), "wall_seconds": round(wall, 3)}
        kept["server_cpu_seconds"] = round(self.arm.cpu_seconds() - self.cpu_before, 3)
        kept["fio_cpu_percent"] = round(job["usr_cpu"] + job["sys_cpu"], 1)
        for way in ("read", "write"):
            if job[way]["total_ios"]:
                kept[way] = {key: job[way][key] for key in KEPT}
                kept[way]["clat_ns"] = {key: value for key, value in job[way]["clat_ns"].items() if key != "N"}
        if job["sync"]["total_ios"]:
            kept["sync"] = {"total_ios": job["sync"]["total_ios"], "lat_ns": job["sync"]["lat_ns"]}
        return kept


def shown(argv, lab):
    return " ".join(argument.replace(lab.scratch, "SCRATCH") for argument in argv if not argument.startswith("--output"))


def run(lab, arm, *args, settle=False, disk="disk", **how):
    """One job. With `settle` the time until everything put off is done counts, as it must where a journal takes the
    writes and something else has the work."""
    kept = Load(lab, arm, *args, disk=disk, **how).result()
    operations = sum(kept[way]["total_ios"] for way in ("read", "write") if way in kept)
    if not operations:
        raise Failed("fio did nothing")
    # fio's runtime in ms, of the slower of the two ways; its own start and end are left out.
    seconds = max(kept[way]["runtime"] for way in ("read", "write") if way in kept) / 1000
    if settle:
        kept["settle_seconds"] = round(arm.settle(disk), 3)
        # The server's work for these operations includes what it put off.
        seconds += kept["settle_seconds"]
    kept["seconds"] = round(seconds, 3)
    kept["rate"] = operations / seconds
    kept["bytes_rate"] = sum(kept[way]["io_bytes"] for way in ("read", "write") if way in kept) / seconds
    kept["server_cpu_us_each"] = kept["server_cpu_seconds"] * 1e6 / operations
    wanted = how.get("io_size")
    if wanted and sum(kept[way]["io_bytes"] for way in ("read", "write") if way in kept) < 0.99 * wanted:
        kept["cut_short"] = True
    return kept


def p99_ms(kept, way):
    return kept[way]["clat_ns"]["percentile"]["99.000000"] / 1e6
