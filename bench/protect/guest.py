"""A guest that is nothing but a disk's driver: a QEMU whose processors never run, and virtio-blk asked by this program through QEMU's test
protocol. The requests lie in memory that both have; what a device of a guest reads and writes, with every filter below it, does the rest.

*Promises*: a write goes the way that a guest's goes in QEMU, and no emulated processor is in its time. *Never*: says that it was faster than it
was seen to be; it is looked for every 0.1 ms. Drawings: virtio 1.2, 4.2.4 (legacy MMIO) and 2.7 (split queues); QEMU's docs/devel/qtest.rst."""

import json
import mmap
import os
import socket
import struct
import time

from processes import Failed, wait_for

MEMORY = 64 << 20
QUEUE = 128
# Each request takes three descriptors: its head, its data, its status.
SLOTS = QUEUE // 3
RING, PAGES = 0x100000, 0x200000
# Where microvm has its transports, and how far they lie apart.
MMIO, STEP, TRANSPORTS = 0xFEB00000, 0x200, 24
DEVICE, FEATURES, FEATURES_SELECT, PAGE_SIZE, SELECT, NUMBER, ALIGN, PAGE, NOTIFY, STATUS = 0x08, 0x20, 0x24, 0x28, 0x30, 0x38, 0x3C, 0x40, 0x50, 0x70
# VIRTIO_BLK_F_FLUSH, bit 9: a driver that does not know how to flush is given each write through, flushed, and no guest of today is.
FLUSHES = 1 << 9
BLOCK_DEVICE = 2
READ, WRITE, FLUSH = 0, 1, 4
NEXT, FOR_DEVICE = 1, 2
GLANCE = 0.00005
# Firmware of which the processor's first instructions are cli and hlt: it runs, and does nothing ever.
IDLE = bytes(0xFFF0) + b"\xfa\xf4" + bytes(14)


class Guest:
    def __init__(self, lab, name, image, form, aio):
        self.lab = lab
        at = os.path.join(lab.scratch, name)
        self.qmp, self.backup_qmp, self.test, self.memory_file = f"{at}.qmp", f"{at}.backup", f"{at}.qtest", f"{at}.memory"
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
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.wire.settimeout(30)
        self.wire.connect(self.test)
        with open(self.memory_file, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), MEMORY)
        # Indices are written at once, in words: struct.pack_into has zeros there first, which the device would see.
        self.words = memoryview(self.memory).cast("H")
        self.issued = self.seen = self.unanswered = 0
        self.free, self.due = list(range(SLOTS)), {}
        self.begin()

    def begin(self):
        """The driver's side of a legacy device: one queue, and the one feature that every guest's driver has."""
        found = [MMIO + number * STEP for number in range(TRANSPORTS)]
        found = [at for at in found if int(self.say(f"readl {at + DEVICE:#x}").split()[1], 16) == BLOCK_DEVICE]
        if not found:
            raise Failed("the QEMU has no disk")
        self.base = found[0]
        self.used = RING + (16 * QUEUE + 6 + 2 * QUEUE + 4095) // 4096 * 4096
        for register, value in ((STATUS, 0), (STATUS, 1), (STATUS, 3), (FEATURES_SELECT, 0), (FEATURES, FLUSHES)):
            self.put(register, value)
        for register, value in ((PAGE_SIZE, 4096), (SELECT, 0), (NUMBER, QUEUE)):
            self.put(register, value)
        for register, value in ((ALIGN, 4096), (PAGE, RING // 4096), (STATUS, 7)):
            self.put(register, value)

    def say(self, line):
        self.wire.sendall(line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = self.wire.recv(4096)
            if not part:
                raise Failed("the QEMU has gone")
            answer += part
        if not answer.startswith(b"OK"):
            raise Failed(f"{line}: {answer.decode()}")
        return answer.decode()

    def put(self, register, value):
        self.say(f"writel {self.base + register:#x} {value:#x}")

    def submit(self, kind, offset, data, due):
        slot = self.free.pop()
        head, page = PAGES + slot * 0x2000, PAGES + slot * 0x2000 + 0x1000
        struct.pack_into("<IIQ", self.memory, head, kind, 0, offset // 512)
        self.memory[head + 16] = 0xFF
        parts = [(head, 16, 0)] + ([(page, len(data), 0)] if data else []) + [(head + 16, 1, FOR_DEVICE)]
        if data:
            self.memory[page : page + len(data)] = data
        for number, (at, length, flags) in enumerate(parts):
            last = number + 1 == len(parts)
            entry = slot * 3 + number
            struct.pack_into("<QIHH", self.memory, RING + entry * 16, at, length, flags | (0 if last else NEXT), 0 if last else entry + 1)
        ring = RING + 16 * QUEUE
        self.words[ring // 2 + 2 + self.issued % QUEUE] = slot * 3
        self.issued += 1
        self.words[ring // 2 + 1] = self.issued % 65536
        self.due[slot] = due
        self.wire.sendall(f"writel {self.base + NOTIFY:#x} 0x0\n".encode())
        self.unanswered += 1

    def finished(self):
        """Seconds since each was due, of those that have ended since the last look."""
        times = []
        while self.words[self.used // 2 + 1] != self.seen % 65536:
            slot = struct.unpack_from("<I", self.memory, self.used + 4 + self.seen % QUEUE * 8)[0] // 3
            self.seen += 1
            if self.memory[PAGES + slot * 0x2000 + 16] != 0:
                raise Failed("the guest's disk refused a request")
            times.append(time.monotonic() - self.due.pop(slot))
            self.free.append(slot)
        self.hear()
        return times

    def hear(self):
        """The answers to what was told meanwhile, a line each, of which nothing is wanted; unread, some hundreds of them stop QEMU."""
        try:
            while self.unanswered:
                part = self.wire.recv(4096, socket.MSG_DONTWAIT)
                if not part:
                    raise Failed("the QEMU has gone")
                self.unanswered -= part.count(b"\n")
        except BlockingIOError:
            pass

    def write(self, places):
        """(offset, data) one after another, as many in flight as there are slots, and a flush."""
        for offset, data in places:
            while not self.free:
                self.wait()
            self.submit(WRITE, offset, data, time.monotonic())
        while self.due:
            self.wait()
        self.submit(FLUSH, 0, b"", time.monotonic())
        while self.due:
            self.wait()

    def wait(self):
        """Until something may have ended."""
        if not self.finished():
            if self.process.poll() is not None:
                raise Failed("the QEMU has gone")
            time.sleep(GLANCE)

    def load(self, rate, places, until):
        """Writes at fixed instants, `rate` a second, until `until()`; seconds from when each was due."""
        times, number, begun = [], 0, time.monotonic()
        while not until():
            now, due = time.monotonic(), begun + number / rate
            if due <= now and self.free:
                self.submit(WRITE, *next(places), due)
                number += 1
            times += self.finished()
            time.sleep(GLANCE if self.due else max(0.0, min(due - time.monotonic(), 0.01)))
        while self.due:
            times += self.finished()
            time.sleep(GLANCE)
        return times

    def close(self):
        self.wire.close()
        self.lab.processes.stop(self.process)
        for path in (self.memory_file, self.test, self.backup_qmp):
            if os.path.exists(path):
                os.unlink(path)
