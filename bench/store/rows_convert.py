"""Rows of images that come in and go out: a raw image of 4 GiB, all of it data of which half is random in each 4 KiB, beside qemu-img convert from raw
to raw past the page cache, in turn, on one directory. Both arms have made durable what they wrote when they end."""

import os
import shutil

from arms import Stonefold
from figures import judged, median
from processes import Failed
from rows_backup import call, fill, timed

ROWS = ("import", "export")
MIB = 2**20


def plan(options):
    """The image's size, in bytes."""
    return 512 * MIB if options.quick else 4 << 30


def needs(options):
    return (3, 2 << 30) if options.quick else (8, 16 << 30)


def run(lab):
    if not shutil.which("qemu-img"):
        raise Failed("qemu-img is missing; install qemu-utils")
    size = plan(lab.options)
    folder = os.path.join(lab.scratch, "convert")
    os.makedirs(folder)
    image, out = os.path.join(folder, "image.raw"), os.path.join(folder, "out.raw")
    fill(image, size, size, lab.first_seed)
    stonefold = Stonefold(lab, "convert-pool")
    lab.keep = [stonefold]

    def cli(*words):
        call([lab.binary, "--api", f"unix://{stonefold.api_socket}", *words])

    def convert():
        call(["qemu-img", "convert", "-f", "raw", "-O", "raw", "-t", "none", "-T", "none", image, out])
        call(["sync", out])

    def taken(turn):
        forget(image)
        return timed(turn)

    seconds = {"import": {"stonefold": [], "qemu-img": []}, "export": {"stonefold": [], "qemu-img": []}}
    for number in range(max(lab.rounds, 3)):
        turns = [
            ("import", "stonefold", lambda: cli("disk", "import", "d", image, "--format", "raw")),
            ("import", "qemu-img", convert),
            ("export", "stonefold", lambda: cli("disk", "export", "d", out, "--format", "raw")),
            ("export", "qemu-img", convert),
        ]
        # The disk is there before it goes out; the two of a pair change places.
        order = turns if number % 2 == 0 else [turns[1], turns[0], turns[3], turns[2]]
        for row, arm, turn in order:
            if row == "export" and arm == "stonefold":
                stonefold.settle("d")
                stonefold.make_cold()
            seconds[row][arm].append(taken(turn))
            if os.path.exists(out):
                os.remove(out)
        # With the snapshot by which it was folded.
        cli("disk", "rm", "d", "--snapshots")
        stonefold.marked.discard("d")
    condition = "" if size == 4 << 30 else lab.shown_size(size)
    for row, title in (("import", "a raw image comes in"), ("export", "a disk goes out as a raw image, cold")):
        lab.row(row, lambda: told(lab, row, title, seconds[row], size, condition))
    stonefold.close()
    shutil.rmtree(folder)


def told(lab, row, title, seconds, size, condition):
    lab.raw(row, {"seconds": seconds, "bytes": size})
    ratios = [theirs / ours for theirs, ours in zip(seconds["qemu-img"], seconds["stonefold"])]
    note = "; ".join(f"{name} {median(kept):.1f} s, {size / MIB / median(kept):,.0f} MiB/s" for name, kept in seconds.items())
    return {"title": title, "arms": {}, "goals": [judged(ratios, None, False, "× qemu-img convert to a raw file", condition)], "note": note}


def forget(path):
    """None of a file's pages are in memory when its turn comes."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
