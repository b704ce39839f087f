"""Rows of backups of an image on foreign storage: 20 GiB that hold 4 GiB, beside borg and restic, each into a new place of the same
directory. Half of each 4 KiB is random, so that all arms compress it by the same."""

import os
import random
import shutil
import subprocess
import time

from arms import Stonefold
from figures import judged, median
from processes import Failed

ROWS = ("backup-full", "backup-again")
MIB = 2**20
BLOCK = 4096
CHANGED = 100


def plan(options):
    """The image's size and what it holds, in bytes."""
    return (2 << 30, 512 * MIB) if options.quick else (20 << 30, 4 << 30)


def needs(options):
    return (2, 4 << 30) if options.quick else (10, 24 << 30)


def run(lab):
    size, held = plan(lab.options)
    folder = os.path.join(lab.scratch, "backup")
    os.makedirs(folder)
    image = os.path.join(folder, "image.raw")
    lab.say(f"an image of {lab.shown_size(size)} that holds {lab.shown_size(held)}")
    fill(image, size, held, lab.first_seed)
    arms = [Ours(lab, image), *(arm(lab, image, folder) for arm in (Borg, Restic) if shutil.which(arm.program))]
    lab.keep = [arms[0].stonefold]
    condition = "" if size == 20 << 30 else f"{lab.shown_size(size)} that hold {lab.shown_size(held)}"
    full, again = {arm.name: [] for arm in arms}, {arm.name: [] for arm in arms}
    for number in range(max(lab.rounds, 3)):
        for arm in arms if number % 2 == 0 else reversed(arms):
            arm.begin(number)
            full[arm.name].append(timed(arm.backup))
        change(image, size, held, lab.first_seed + number)
        for arm in arms if number % 2 == 0 else reversed(arms):
            again[arm.name].append(timed(arm.backup))
            arm.end()
    for row, times, what in (("backup-full", full, "the first"), ("backup-again", again, "after 1% changed")):
        lab.row(row, lambda: table_row(lab, row, times, f"{lab.shown_size(size)} image: {what}", condition))
    arms[0].stonefold.close()
    shutil.rmtree(folder)


def table_row(lab, row, times, title, condition):
    lab.raw(row, {"seconds": times})
    goals = []
    for peer, bound in (("borg", 2.0), ("restic", 1.5)):
        if peer in times:
            ratios = [theirs / ours for theirs, ours in zip(times[peer], times["stonefold"])]
            goals.append(judged(ratios, bound if row == "backup-full" else None, False, f"× {peer}", condition))
    note = "; ".join(f"{name} {median(kept):.1f} s" for name, kept in times.items())
    return {"title": title, "arms": {}, "goals": goals, "note": note}


def timed(job):
    subprocess.run(["sync"], check=True)
    started = time.monotonic()
    job()
    return time.monotonic() - started


def places(size, held, seed):
    """Where the image holds something: pieces of 1 MiB."""
    return random.Random(seed).sample(range(size // MIB), held // MIB)


def piece(chance):
    return b"".join(chance.randbytes(BLOCK // 2) + bytes(BLOCK // 2) for _ in range(MIB // BLOCK))


def fill(image, size, held, seed):
    chance = random.Random(seed)
    with open(image, "wb") as file:
        file.truncate(size)
        for at in places(size, held, seed):
            file.seek(at * MIB)
            file.write(piece(chance))


def change(image, size, held, seed):
    """One block in a hundred of what it holds, at random."""
    chance = random.Random(seed + 1000)
    held_at = places(size, held, seed)
    with open(image, "r+b") as file:
        for _ in range(held // BLOCK // CHANGED):
            file.seek(chance.choice(held_at) * MIB + chance.randrange(MIB // BLOCK) * BLOCK)
            file.write(chance.randbytes(BLOCK // 2) + bytes(BLOCK // 2))


def call(argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3600, **options)
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(argv[0])}: {done.stderr.strip()[-300:]}")


class Ours:
    name = "stonefold"

    def __init__(self, lab, image):
        self.lab, self.image = lab, image
        self.stonefold = Stonefold(lab, "backup-pool")

    def cli(self, *words):
        call([self.lab.binary, "--api", f"unix://{self.stonefold.api_socket}", *words])

    def begin(self, number):
        """A pool of its own for each round, so that nothing is known of the image."""
        self.lab.processes.stop(self.stonefold.process)
        shutil.rmtree(os.path.join(self.stonefold.folder, "pool"))
        self.stonefold.start()
        self.cli("source", "add", "s", "--image", self.image)

    def backup(self):
        self.cli("backup", "run", "s")

    def end(self):
        pass


class Borg:
    name = program = "borg"

    def __init__(self, lab, image, folder):
        self.image, self.place, self.count = image, os.path.join(folder, "borg"), 0
        self.environment = {**os.environ, "BORG_BASE_DIR": os.path.join(folder, "borg-own"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}

    def begin(self, number):
        call(["borg", "init", "-e", "none", self.place], env=self.environment)

    def backup(self):
        self.count += 1
        call(["borg", "create", "-C", "lz4", "--files-cache", "disabled", f"{self.place}::{self.count}", self.image], env=self.environment)

    def end(self):
        shutil.rmtree(self.place)
        shutil.rmtree(self.environment["BORG_BASE_DIR"], ignore_errors=True)


class Restic:
    name = program = "restic"

    def __init__(self, lab, image, folder):
        self.image, self.place = image, os.path.join(folder, "restic")
        self.environment = {**os.environ, "RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": os.path.join(folder, "restic-own")}

    def begin(self, number):
        call(["restic", "init", "-r", self.place], env=self.environment)

    def backup(self):
        call(["restic", "-r", self.place, "backup", "--force", self.image], env=self.environment)

    def end(self):
        shutil.rmtree(self.place)
        shutil.rmtree(self.environment["RESTIC_CACHE_DIR"], ignore_errors=True)
