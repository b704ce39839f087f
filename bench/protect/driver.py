"""A driver of virtio-blk without a system around it: the requests lie in memory that this program has with a QEMU, and are rung for through its test
protocol; QEMU's device, with every filter below it, does the rest.

*Promises*: a request goes the way that a guest's goes in QEMU, and no emulated processor is in its time. *Never*: says that it was faster than it
was seen to be; whoever waits looks every 0.1 ms. Drawings: virtio 1.2, 4.1.4.8 (legacy PCI), 4.2.4 (legacy MMIO) and 2.7 (split queues); QEMU's
docs/devel/qtest.rst."""

import mmap
import socket
import struct
import time

from processes import Failed

READ, WRITE, FLUSH = 0, 1, 4
# VIRTIO_BLK_F_FLUSH, bit 9: a driver that does not know how to flush is given each write through, flushed, and no guest of today is.
FLUSHES = 1 << 9
NEXT, FOR_DEVICE = 1, 2
# Where the queue lies in the guest's memory, and where each request's head, data and status.
RING, PAGES, PAGE = 0x100000, 0x200000, 4096
GLANCE = 0.00005
# Firmware of which the processor's first instructions are cli and hlt: it runs, and does nothing ever.
IDLE = bytes(0xFFF0) + b"\xfa\xf4" + bytes(14)


class Wire:
    """QEMU's test protocol: a line, and a line in answer."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.unanswered = 0

    def say(self, line):
        self.socket.sendall(line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = self.socket.recv(4096)
            if not part:
                raise Failed("the QEMU has gone")
            answer += part
        if not answer.startswith(b"OK"):
            raise Failed(f"{line}: {answer.decode()}")
        return answer.decode()

    def read(self, register):
        return int(self.say(register).split()[1], 16)

    def ring(self, line):
        """Of its answer nothing is wanted."""
        self.socket.sendall(line)
        self.unanswered += 1

    def hear(self):
        """The answers to what was rung meanwhile, a line each; unread, some hundreds of them stop QEMU."""
        try:
            while self.unanswered:
                part = self.socket.recv(4096, socket.MSG_DONTWAIT)
                if not part:
                    raise Failed("the QEMU has gone")
                self.unanswered -= part.count(b"\n")
        except BlockingIOError:
            pass

    def close(self):
        self.socket.close()


class Mmio:
    """Of a microvm: transports one after another."""

    AT, STEP, COUNT, BLOCK_DEVICE = 0xFEB00000, 0x200, 24, 2
    DEVICE, FEATURES, FEATURES_SELECT, PAGE_SIZE, SELECT, NUMBER, ALIGN, QUEUE, NOTIFY, STATUS = 0x08, 0x20, 0x24, 0x28, 0x30, 0x38, 0x3C, 0x40, 0x50, 0x70
    ENTRIES = 128

    def begin(self, wire):
        found = [self.AT + number * self.STEP for number in range(self.COUNT)]
        found = [at for at in found if wire.read(f"readl {at + self.DEVICE:#x}") == self.BLOCK_DEVICE]
        if not found:
            raise Failed("the QEMU has no disk")
        put = lambda register, value: wire.say(f"writel {found[0] + register:#x} {value:#x}")
        for register, value in ((self.STATUS, 0), (self.STATUS, 1), (self.STATUS, 3), (self.FEATURES_SELECT, 0), (self.FEATURES, FLUSHES)):
            put(register, value)
        for register, value in ((self.PAGE_SIZE, PAGE), (self.SELECT, 0), (self.NUMBER, self.ENTRIES)):
            put(register, value)
        for register, value in ((self.ALIGN, PAGE), (self.QUEUE, RING // PAGE), (self.STATUS, 7)):
            put(register, value)
        self.bell = f"writel {found[0] + self.NOTIFY:#x} 0x0\n".encode()
        return self.ENTRIES


class Pci:
    """Of a pc: a transitional device on the first bus, which is given its ports as a firmware would."""

    ADDRESS, DATA, PORTS, BLOCK_DEVICE = 0xCF8, 0xCFC, 0xC000, 0x10011AF4
    FEATURES, QUEUE, NUMBER, SELECT, NOTIFY, STATUS = 0x04, 0x08, 0x0C, 0x0E, 0x10, 0x12
    COMMAND, BAR = 0x04, 0x10

    def begin(self, wire):
        def at(slot, register):
            wire.say(f"outl {self.ADDRESS:#x} {1 << 31 | slot << 11 | register:#x}")
            return self.DATA

        found = [slot for slot in range(32) if wire.read(f"inl {at(slot, 0):#x}") == self.BLOCK_DEVICE]
        if not found:
            raise Failed("the QEMU has no disk")
        wire.say(f"outl {at(found[0], self.BAR):#x} {self.PORTS:#x}")
        # Ports, memory, and the device's own reads and writes of it.
        wire.say(f"outl {at(found[0], self.COMMAND):#x} 0x7")
        put = lambda width, register, value: wire.say(f"out{width} {self.PORTS + register:#x} {value:#x}")
        for width, register, value in (("b", self.STATUS, 0), ("b", self.STATUS, 1), ("b", self.STATUS, 3), ("l", self.FEATURES, FLUSHES)):
            put(width, register, value)
        put("w", self.SELECT, 0)
        entries = wire.read(f"inw {self.PORTS + self.NUMBER:#x}")
        put("l", self.QUEUE, RING // PAGE)
        put("b", self.STATUS, 7)
        self.bell = f"outw {self.PORTS + self.NOTIFY:#x} 0x0\n".encode()
        return entries


class Driver:
    """`memory`: the guest's, a file that QEMU has shared; `largest`: what a request may carry, in bytes."""

    def __init__(self, wire, transport, memory, bytes_of_memory, largest):
        self.wire, self.largest = wire, largest
        with open(memory, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), bytes_of_memory)
        # Indices are written at once, in words: struct.pack_into has zeros there first, which the device would see.
        self.words = memoryview(self.memory).cast("H")
        self.issued = self.seen = 0
        # What a driver before has left there is nobody's.
        self.memory[RING:PAGES] = bytes(PAGES - RING)
        self.entries = transport.begin(wire)
        self.bell = transport.bell
        self.available = RING + 16 * self.entries
        self.used = RING + (16 * self.entries + 6 + 2 * self.entries + PAGE - 1) // PAGE * PAGE
        # Each request takes three descriptors: its head, its data, its status.
        slots = min(self.entries // 3, (bytes_of_memory - PAGES) // (PAGE + largest))
        self.free, self.asked = list(range(slots)), {}

    def submit(self, kind, offset, data, length, token):
        """`data`: of a write; `length`: of a read."""
        slot = self.free.pop()
        head = PAGES + slot * (PAGE + self.largest)
        page = head + PAGE
        struct.pack_into("<IIQ", self.memory, head, kind, 0, offset // 512)
        self.memory[head + 16] = 0xFF
        of_data = [(page, len(data) or length, 0 if data else FOR_DEVICE)] if data or length else []
        parts = [(head, 16, 0), *of_data, (head + 16, 1, FOR_DEVICE)]
        if data:
            self.memory[page : page + len(data)] = data
        for number, (at, size, flags) in enumerate(parts):
            last = number + 1 == len(parts)
            entry = slot * 3 + number
            struct.pack_into("<QIHH", self.memory, RING + entry * 16, at, size, flags | (0 if last else NEXT), 0 if last else entry + 1)
        self.words[self.available // 2 + 2 + self.issued % self.entries] = slot * 3
        self.issued += 1
        self.words[self.available // 2 + 1] = self.issued % 65536
        self.asked[slot] = (token, page, 0 if data else length)
        self.wire.ring(self.bell)

    def finished(self):
        """Of those that have ended since the last look: whether each succeeded, its token, what it has read."""
        ended = []
        while self.words[self.used // 2 + 1] != self.seen % 65536:
            slot = struct.unpack_from("<I", self.memory, self.used + 4 + self.seen % self.entries * 8)[0] // 3
            self.seen += 1
            token, page, length = self.asked.pop(slot)
            ended.append((self.memory[page - PAGE + 16] == 0, token, self.memory[page : page + length]))
            self.free.append(slot)
        self.wire.hear()
        return ended

    def glance(self):
        time.sleep(GLANCE)

    def close(self):
        self.wire.close()
