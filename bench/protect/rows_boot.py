"""A Debian that boots from a recovered point, and from the same image as a raw file: shown and not judged, since its processor is emulated and
is nearly all of the time."""

import os
import shutil
import subprocess
import time

from arms import Stonefold
from figures import judged, median
from processes import Failed

ROWS = ("boot",)
BOOT_MAX = 300
READY = b"login:"


def needs(options):
    return 6, 6 << 30


def run(lab):
    lab.row("boot", lambda: measured(lab))


def measured(lab):
    guest = subprocess.run([os.path.join(lab.repository, "setup/guest-image")], capture_output=True, text=True, check=True, timeout=1800)
    image, local = os.path.join(guest.stdout.strip(), "disk.raw"), os.path.join(lab.scratch, "boot.raw")
    stonefold = Stonefold(lab, "boot")
    lab.keep = [stonefold]

    def call(*words):
        argv = [lab.binary, "--api", f"unix://{stonefold.api_socket}", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=600).stdout.strip()

    call("source", "add", "s", "--image", image)
    point, times = call("backup", "run", "s"), {"recovered": [], "raw": []}
    for number in range(2):
        for arm in times if number % 2 == 0 else reversed(times):
            if arm == "raw":
                subprocess.run(["cp", "--sparse=always", image, local], check=True, timeout=300)
                subprocess.run(["sync"], check=True)
                times[arm].append(boot(lab, {"driver": "file", "filename": local, "aio": lab.qemu_aio, "cache.direct": "on"}))
                os.unlink(local)
            else:
                stonefold.make_cold()
                call("recover", point, "--as", "again")
                where = {"driver": "nbd", "server.type": "unix", "server.path": stonefold.socket, "export": "again.vda"}
                times[arm].append(boot(lab, where))
                stonefold.ask("DELETE", "/v1/recoveries/again?discard=true")
    stonefold.close()
    lab.raw("boot", {"seconds": times})
    ratios = [ours / theirs for ours, theirs in zip(times["recovered"], times["raw"])]
    note = f"until it asks who logs in: recovered {median(times['recovered']):.1f} s, raw {median(times['raw']):.1f} s; processors emulated (TCG)"
    goals = [{**judged(ratios, None, True, "× raw"), "goal": "≤1.1 × raw, not judged without KVM"}]
    return {"title": "boot from the recovered point", "arms": {}, "goals": goals, "note": note}


def boot(lab, disk):
    """Seconds until the serial console asks for a name."""
    console = os.path.join(lab.scratch, "console")
    words = ",".join(f"{key}={value}" for key, value in {**disk, "node-name": "disk"}.items())
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-m", "1G", "-display", "none", "-serial", f"file:{console}", "-nic", "none"]
    argv += ["-blockdev", words, "-device", "virtio-blk-pci,drive=disk,bootindex=0"]
    started = time.monotonic()
    process = lab.processes.start(argv, os.path.join(lab.scratch, "boot.log"))
    try:
        while time.monotonic() - started < BOOT_MAX:
            time.sleep(0.1)
            if os.path.exists(console) and READY in open(console, "rb").read():
                return time.monotonic() - started
            if process.poll() is not None:
                break
        raise Failed("the guest did not come up")
    finally:
        lab.processes.stop(process, patience=5)
        if os.path.exists(console):
            shutil.move(console, f"{console}.last")
