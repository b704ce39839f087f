"""The disk of a QEMU whose processors never run, as an NBD export on a Unix socket: what a client of that asks goes through the QEMU's virtio-blk
(driver.py), as if its guest had asked. A program of its own, that the processors' time is not the measuring one's.

    bridge.py TEST MEMORY BYTES SOCKET SIZE

Drawings: the NBD protocol's fixed newstyle negotiation and simple replies (NetworkBlockDevice/nbd, doc/proto.md)."""

import os
import select
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "store"))

from driver import FLUSH, GLANCE, READ, WRITE, Driver, Pci, Wire

MAGIC, OPTION, REPLY, REQUEST, ANSWER = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9, 0x25609513, 0x67446698
ABORT, GO, INFO = 2, 7, 6
ACK, REP_INFO, UNSUPPORTED = 1, 3, 2**31 + 1
# There are flags, and it can be flushed.
FLAGS = 1 | 4
CMD_READ, CMD_WRITE, CMD_DISCONNECT, CMD_FLUSH = 0, 1, 2, 3
EIO, EINVAL = 5, 22
LARGEST = 1 << 20
BLOCK_SIZE = 3


class Gone(Exception):
    """The client."""


def exactly(client, count):
    data = bytearray()
    while len(data) < count:
        part = client.recv(count - len(data))
        if not part:
            raise Gone
        data += part
    return bytes(data)


def negotiate(client, size):
    """Until the client has chosen the one export there is, by whatever name."""
    client.sendall(MAGIC + OPTION + struct.pack(">H", 3))
    exactly(client, 4)
    while True:
        _, option, length = struct.unpack(">8sII", exactly(client, 16))
        exactly(client, length)
        answer = lambda kind, data=b"": client.sendall(struct.pack(">QIII", REPLY, option, kind, len(data)) + data)
        if option == ABORT:
            answer(ACK)
            raise Gone
        if option not in (GO, INFO):
            answer(UNSUPPORTED)
            continue
        answer(REP_INFO, struct.pack(">HQH", 0, size, FLAGS))
        answer(REP_INFO, struct.pack(">HIII", BLOCK_SIZE, 512, 4096, LARGEST))
        answer(ACK)
        if option == GO:
            return


def take(client, driver):
    """One request, from the socket to the device."""
    magic, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", exactly(client, 28))
    if magic != REQUEST or kind == CMD_DISCONNECT:
        raise Gone
    data = exactly(client, length) if kind == CMD_WRITE else b""
    if kind == CMD_FLUSH:
        driver.submit(FLUSH, 0, b"", 0, cookie)
    elif kind in (CMD_READ, CMD_WRITE) and 0 < length <= LARGEST:
        driver.submit(READ if kind == CMD_READ else WRITE, offset, data, length, cookie)
    else:
        client.sendall(struct.pack(">IIQ", ANSWER, EINVAL, cookie))


def serve(client, driver):
    while True:
        for good, cookie, data in driver.finished():
            client.sendall(struct.pack(">IIQ", ANSWER, 0 if good else EIO, cookie) + (data if good else b""))
        patience = GLANCE if driver.asked else None
        if driver.free and select.select([client], [], [], patience)[0]:
            take(client, driver)
        elif not driver.free:
            driver.glance()


def main():
    test, memory, in_bytes, path, size = sys.argv[1:]
    driver = Driver(Wire(test), Pci(), memory, int(in_bytes), LARGEST)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    while True:
        client, _ = listener.accept()
        try:
            negotiate(client, int(size))
            serve(client, driver)
        except (Gone, ConnectionError):
            # What it had asked for ends by itself, and is nobody's.
            while driver.asked:
                driver.finished()
                driver.glance()
        finally:
            client.close()


if __name__ == "__main__":
    main()
