"""A guest that is nothing but a disk's driver: a QEMU whose processors never run, and its virtio-blk asked by this program (driver.py)."""

import json
import os
import time

from driver import FLUSH, IDLE, WRITE, Driver, Mmio, Wire
from processes import Failed, wait_for

MEMORY = 64 << 20
BLOCK = 4096


class Guest:
    def __init__(self, lab, name, image, form, aio):
        self.lab = lab
        at = os.path.join(lab.scratch, name)
        self.qmp, self.backup_qmp, self.test, self.memory_file = f"{at}.qmp", f"{at}.backup", f"{at}.qtest", os.path.join(lab.in_memory, name)
        drive = {"driver": form, "node-name": "disk", "cache": {"direct": True}, "discard": "unmap"}
        drive["file"] = {"driver": "file", "filename": image, "aio": aio, "cache": {"direct": True}}
        argv = ["qemu-system-x86_64", "-machine", "microvm,memory-backend=ram", "-accel", "tcg", "-display", "none", "-nodefaults"]
        argv += ["-object", f"memory-backend-file,id=ram,size={MEMORY},mem-path={self.memory_file},share=on", "-m", str(MEMORY >> 20)]
        with open(f"{at}.bios", "wb") as file:
            file.write(IDLE)
        argv += ["-bios", f"{at}.bios", "-qtest", f"unix:{self.test},server=on,wait=off", "-qtest-log", "none"]
        argv += ["-qmp", f"unix:{self.backup_qmp},server=on,wait=off", "-blockdev", json.dumps(drive)]
        argv += ["-device", "virtio-blk-device,id=vda,drive=disk"]
        self.process = lab.processes.start(argv, f"{at}.log")
        wait_for("QEMU", lambda: os.path.exists(self.test) and os.path.exists(self.backup_qmp), 30, self.process, f"{at}.log")
        # The file is there a moment before anybody listens.
        time.sleep(0.5)
        self.driver = Driver(Wire(self.test), Mmio(), self.memory_file, MEMORY, BLOCK)

    def submit(self, kind, offset, data, due):
        self.driver.submit(kind, offset, data, 0, due)

    def finished(self):
        """Seconds since each was due, of those that have ended since the last look."""
        ended = self.driver.finished()
        if not all(good for good, _, _ in ended):
            raise Failed("the guest's disk refused a request")
        now = time.monotonic()
        return [now - due for _, due, _ in ended]

    def write(self, places):
        """(offset, data) one after another, as many in flight as there are slots, and a flush."""
        for offset, data in places:
            while not self.driver.free:
                self.wait()
            self.submit(WRITE, offset, data, time.monotonic())
        while self.driver.asked:
            self.wait()
        self.submit(FLUSH, 0, b"", time.monotonic())
        while self.driver.asked:
            self.wait()

    def wait(self):
        """Until something may have ended."""
        if not self.finished():
            if self.process.poll() is not None:
                raise Failed("the QEMU has gone")
            self.driver.glance()

    def load(self, rate, places, until):
        """Writes at fixed instants, `rate` a second, until `until()`; seconds from when each was due."""
        times, number, begun = [], 0, time.monotonic()
        while not until():
            now, due = time.monotonic(), begun + number / rate
            if due <= now and self.driver.free:
                self.submit(WRITE, *next(places), due)
                number += 1
            times += self.finished()
            if self.driver.asked:
                self.driver.glance()
            else:
                time.sleep(max(0.0, min(due - time.monotonic(), 0.01)))
        while self.driver.asked:
            times += self.finished()
            self.driver.glance()
        return times

    def close(self):
        self.driver.close()
        self.lab.processes.stop(self.process)
        for path in (self.memory_file, self.test, self.backup_qmp):
            if os.path.exists(path):
                os.unlink(path)
