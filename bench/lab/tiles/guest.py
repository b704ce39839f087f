"""An idle machine: a whole Debian under QEMU that has booted and that nobody uses. The image is that of setup/guest-image."""

from pathlib import Path

from place import run, until


def start(place, image: Path):
    """Copies the image onto the disk and boots from it; the console is kept as a log."""
    uri = f"nbd+unix:///idle?socket={place.socket}"
    run("nbdcopy", "--destination-is-zero", image, uri)
    console = place.work / "idle.console"
    place.start("idle.qemu", "qemu-system-x86_64", "-name", "idle", "-M", "q35", "-m", "512", "-smp", "1", "-accel", "tcg", "-cpu", "max",
                "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none", "-serial", f"file:{console}",
                "-device", "virtio-rng-pci", "-vga", "std",
                "-blockdev", f"driver=nbd,node-name=disk0,server.type=unix,server.path={place.socket},export=idle,discard=unmap",
                "-device", "virtio-blk-pci,drive=disk0,bootindex=1")
    until("the guest's prompt", lambda: console.exists() and b"root@" in console.read_bytes(), seconds=600)
