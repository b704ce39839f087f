"""A machine whose processors never run: its virtio disk is asked from outside, by a program that is its driver (driver.py). The way in is no part of
the machine's description, since a recovered machine has nothing of its original's host: a program in QEMU's place (`path`) has it open."""

import contextlib
import os
import shlex
import shutil
import subprocess

from driver import IDLE
from processes import Failed, wait_for

MIB = 2**20
MEMORY = 128 * MIB


class Idle:
    """Where the program and the QEMU meet, whoever starts that."""

    def __init__(self, lab, name):
        self.lab = lab
        at = lambda end: os.path.join(lab.scratch, f"{name}.{end}")
        self.test, self.memory, self.bios, self.socket, self.words = at("qtest"), os.path.join(lab.in_memory, name), at("bios"), at("bridge"), at("qemu")
        self.log = at("idle.log")
        with open(self.bios, "wb") as file:
            file.write(IDLE)
        with open(self.words, "w") as file:
            file.write(" ".join(self.described()) + "\n")
        self.path = os.path.join(lab.scratch, f"{name}-bin")
        os.makedirs(self.path, exist_ok=True)
        program = os.path.join(self.path, "qemu-system-x86_64")
        with open(program, "w") as file:
            real, opened = shlex.quote(shutil.which("qemu-system-x86_64")), shlex.join(self.opened())
            # The server tries the accelerator with one, too, which has no disk.
            file.write(f'#!/bin/sh\ncase "$*" in\n*stonefold-disk0*) exec {real} "$@" {opened} ;;\n*) exec {real} "$@" ;;\nesac\n')
        os.chmod(program, 0o755)

    def described(self):
        """QEMU's arguments, but for the disk and the way in."""
        return ["-nodefaults", "-bios", self.bios, "-m", str(MEMORY // MIB)]

    def opened(self):
        """The way in."""
        memory = f"memory-backend-file,id=ram,size={MEMORY},mem-path={self.memory},share=on"
        return ["-qtest", f"unix:{self.test},server=on,wait=off", "-qtest-log", "none", "-object", memory, "-machine", "memory-backend=ram"]

    @contextlib.contextmanager
    def on_file(self, image):
        """The machine with a raw file for its disk, as a QEMU of nobody's has it."""
        disk = f"driver=raw,node-name=disk,file.driver=file,file.filename={image},cache.direct=on,file.cache.direct=on,file.aio={self.lab.qemu_aio}"
        argv = ["qemu-system-x86_64", "-accel", "tcg", "-display", "none", *self.described(), *self.opened(), "-blockdev", disk]
        process = self.lab.processes.start([*argv, "-device", "virtio-blk-pci,drive=disk"], self.log)
        try:
            wait_for("QEMU", lambda: os.path.exists(self.test), 30, process, self.log)
            yield
        finally:
            self.lab.processes.stop(process)
            self.gone()

    def gone(self):
        """What a QEMU that has ended leaves."""
        for path in (self.test, self.memory):
            if os.path.exists(path):
                os.unlink(path)

    @contextlib.contextmanager
    def bridged(self, size):
        """The disk as an NBD export; gives its URI."""
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        bridge = [self.lab.tool("stonefold-bridge"), "--test", self.test, "--memory", self.memory, "--memory-bytes", str(MEMORY)]
        process = self.lab.processes.start([*bridge, "--socket", self.socket, "--size", str(size)], self.log)
        try:
            wait_for("the bridge", lambda: os.path.exists(self.socket), 30, process, self.log)
            yield f"nbd+unix:///disk?socket={self.socket}"
        finally:
            self.lab.processes.stop(process)


def command(lab, stonefold, *words):
    """What the command line says of this server."""
    argv = [lab.binary, "--api", f"unix://{stonefold.api_socket}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()
