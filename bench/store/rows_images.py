"""Three Debian disks in one pool, against borg with the same three."""

import os
import shutil
import time

from arms import Stonefold
from figures import judged
from processes import Failed, last_line

ROWS = ("images",)
IMAGES = ("base", "sister", "clone")
MIB = 2**20


def needs(options):
    return 12, 16 << 30


def run(lab):
    lab.row("images", lambda: against_borg(lab))


def against_borg(lab):
    if not shutil.which("borg"):
        raise Failed("borg is missing; install borgbackup")
    folder = os.path.join(lab.options.directory, "debian-images")
    lab.say(f"three Debian disks in {folder}: made once, then kept there")
    log = os.path.join(lab.scratch, "images.log")
    lab.processes.call([os.path.join(lab.repository, "bench/store/debian-images"), folder], log, 3000)
    files = {name: os.path.join(folder, f"{name}.raw") for name in IMAGES}
    borg = [repository(lab, files, log)]
    for name in IMAGES:
        borg.append(create(lab, files[name], name, log))
    stonefold = Stonefold(lab, "images")
    lab.keep = [stonefold]
    seconds = []
    for name, file in files.items():
        seconds.append(stonefold.import_disk(name, file))
        stonefold.settle(name)
    stonefold.ask("POST", "/v1/pool/reclaim", {}, 900)
    counters = stonefold.counters()
    lab.processes.stop(stonefold.process)
    # Files of journals are kept to be used again while the server runs: as many, however much is stored.
    rest, spares = (tree_bytes(f"{stonefold.folder}/pool/{part}") for part in ("objects", "spares"))
    stored = {name: os.stat(file).st_blocks * 512 for name, file in files.items()}
    raw = {"borg_bytes": borg, "pool_object_bytes": rest, "pool_spare_bytes": spares, "files_bytes": stored, "import_seconds": seconds}
    lab.raw("images", {**raw, "counters": counters})
    shutil.rmtree(os.path.join(lab.scratch, "borg"))
    stonefold.close()
    goals = [judged([rest / borg[-1]], 1.15, True, "× borg create -C lz4")]
    goals.append(judged([(rest + spares) / borg[-1]], 1.15, True, "× with the journal's files, which are kept for reuse"))
    each = lambda sizes: ", ".join(f"{(after - before) / MIB:.0f}" for before, after in zip(sizes, sizes[1:]))
    note = f"in MiB, files {', '.join(f'{bytes / MIB:.0f}' for bytes in stored.values())}; borg {each(borg)}, {borg[-1] / MIB:.0f} in all; pool {rest / MIB:.0f} of objects"
    note += f" and {spares / MIB:.0f} of journal files kept for reuse, once the server has stopped; imports took {', '.join(f'{one:.1f}' for one in seconds)} s"
    return {"title": "import of a Debian disk, its upgraded sister and its clone: bytes in the pool", "arms": {}, "goals": goals, "note": note}


def environment(lab):
    """All that borg keeps beside a repository goes away with it."""
    home = os.path.join(lab.scratch, "borg-home")
    return {**os.environ, "BORG_BASE_DIR": home, "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}


def repository(lab, files, log):
    borg(lab, ["init", "--encryption=none", os.path.join(lab.scratch, "borg")], log)
    return tree_bytes(os.path.join(lab.scratch, "borg"))


def create(lab, file, name, log):
    path = os.path.join(lab.scratch, "borg")
    started = time.monotonic()
    borg(lab, ["create", "-C", "lz4", f"{path}::{name}", file], log)
    lab.say(f"  borg took {time.monotonic() - started:.1f} s for {name}")
    return tree_bytes(path)


def borg(lab, argv, log):
    process = lab.processes.start(["borg", *argv], log, env=environment(lab))
    try:
        status = process.wait(1800)
    finally:
        lab.processes.stop(process)
    if status != 0:
        raise Failed(f"borg ended with status {status}: {last_line(log)}")


def tree_bytes(folder):
    """Bytes that the files of a folder occupy."""
    walked = os.walk(folder)
    return sum(os.lstat(os.path.join(at, file)).st_blocks * 512 for at, _, files in walked for file in files)
