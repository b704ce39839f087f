#!/usr/bin/env python3
"""Captures the traces of the profile vm-tile from real software on disks of a `stonefold serve`. See README.md beside this.

For root, on Debian 12 or 13. Packages: postgresql, dovecot-imapd, dovecot-lmtpd, nginx-light, qemu-system-x86, qemu-utils, libnbd-bin, fuse3, e2fsprogs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import guest
import mail
import web_database
from place import Place, run, until
from web import Site

# As IOmark-VM publishes them, in bytes of 10^9, rounded down to whole blocks of 4 KiB.
SIZES = {name: gb * 10**9 // 4096 * 4096 for name, gb in
         {"mail": 80, "web-db": 14, "web": 80, "idle": 10, "store-db": 45, "store-web": 10}.items()}
# Between the beginning of the loads and that of the traces.
SETTLING_SECONDS = 60

SITES = {
    "web": Site("web", 10080, files=9000, mean_log=10.5, pages_per_second=8, uploads=0.06),
    "store-web": Site("store-web", 10081, files=2500, mean_log=9.3, pages_per_second=3, uploads=0.0),
}
MACHINES = {"mail": mail, "web-db": web_database, **SITES}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--binary", type=Path, required=True, help="the stonefold binary, of a release build")
    words.add_argument("--guest", type=Path, required=True, help="the folder that setup/guest-image printed")
    words.add_argument("--work", type=Path, default=Path("/var/tmp/stonefold-tiles"), help="a folder that is made, and removed at the end")
    words.add_argument("--out", type=Path, required=True, help="where the traces go")
    words.add_argument("--seconds", type=int, default=720, help="how long is recorded [default: 720]")
    words.add_argument("--only", choices=SIZES, action="append", help="a trace to capture, in place of all; may be repeated")
    said = words.parse_args()
    said.only = said.only or list(SIZES)
    if os.geteuid() != 0:
        sys.exit("error: file systems are made and mounted by root only; run this as root")
    if said.work.exists():
        sys.exit(f"error: '{said.work}' is there already; remove it, or name another folder with --work")
    said.out.mkdir(parents=True, exist_ok=True)
    with Place(said.work, said.binary.resolve()) as place:
        capture(place, said)


def say(what):
    print(time.strftime("%H:%M:%S"), what, flush=True)


def capture(place, said):
    mounts, preparing = {}, []
    for name in said.only:
        place.disk(name, SIZES[name])
    if "idle" in said.only:
        preparing.append(place.beside("idle", lambda: guest.start(place, said.guest / "disk.raw")))

    def prepare(name):
        mounts[name] = place.mounted(name)
        MACHINES[name].start(place, mounts[name])
        say(f"{name}: ready")
    machines = [name for name in MACHINES if name in said.only]
    preparing += [place.beside(name, lambda name=name: prepare(name)) for name in machines]
    say("making file systems, filling them, booting the guest")
    for thread in preparing:
        thread.join()
    place.check()
    if "store-db" in said.only:
        start_store_database(place)
    for name in machines:
        MACHINES[name].load(place, mounts[name])
    say(f"all loads run; {SETTLING_SECONDS} s until the traces begin")
    time.sleep(SETTLING_SECONDS)
    record(place, said)
    tell(place, said)


def start_store_database(place):
    """The lab's own order-entry load, on a disk; returns when its users have begun."""
    os.environ["TMPDIR"] = str(place.work)
    program = place.start("store-db", place.binary, "lab", "run", Path(__file__).parent / "store-db.toml", "--target", "stonefold:store-db", "--seed", "1")
    log = place.work / "store-db.log"

    def users_work():
        place.check()
        if program.poll() is not None:
            raise RuntimeError(f"the order-entry load ended: {log.read_text()[-2000:]}")
        # The lab tells each thing that it does in a line: this one comes when the users have begun.
        return any(line.startswith(b"4 users, ") for line in log.read_bytes().split(b"\n"))
    say("store-db: loading and restoring")
    until("the order-entry load", users_work, seconds=900)
    mount = next(place.work.glob("stonefold-oltp-*/mount"))
    place.beside("cache of store-db", lambda: place.keep_cache_small(mount))
    say("store-db: ready")


def record(place, said):
    """Records all disks at once; ends as soon as a load has failed."""
    recorders = [subprocess.Popen([place.binary, "lab", "trace", "start", name, "--out", said.out / f"{name}.sftrace", "--duration", f"{said.seconds}s"],
                                  stderr=subprocess.DEVNULL) for name in said.only]
    say(f"recording for {said.seconds} s")
    while any(recorder.poll() is None for recorder in recorders):
        place.check()
        time.sleep(1)
    place.check()
    if any(recorder.returncode != 0 for recorder in recorders):
        raise RuntimeError("a trace was not recorded: 'stonefold lab trace show' says what there is of it")


def tell(place, said):
    """What is in the traces, as rows of the table in README.md."""
    for name in said.only:
        shown = json.loads(run(place.binary, "lab", "trace", "show", said.out / f"{name}.sftrace", "--json"))
        of = shown["summary"]
        if shown["dropped"] or not shown["whole"]:
            raise RuntimeError(f"the trace '{name}' is not whole: {shown['dropped']} requests were dropped")
        counts = " | ".join(f"{of['count'][kind]:,}" for kind in ("read", "write", "flush", "trim", "zero"))
        ios = of["count"]["read"] + of["count"]["write"]
        mean = (of["bytes"]["read"] + of["bytes"]["write"]) / max(ios, 1) / 1024
        print(f"| `{name}` | {of['seconds']:.1f} | {counts} | {of['read_share'] * 100:.1f}% | {of['rate_mean']:.1f} | {of['rate_max']} "
              f"| {mean:.1f} | {of['footprint_bytes'] / 2**20:.1f} | {shown['bytes']:,} |", flush=True)


if __name__ == "__main__":
    main()
