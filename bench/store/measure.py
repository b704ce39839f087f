"""The run: options, order, progress, and where the results go. Started by bench/run."""

import argparse
import datetime
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Rows of protection lie in a room of their own.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "protect"))

import rows_backup
import rows_binaries
import rows_boot
import rows_convert
import rows_database
import rows_guest
import rows_home
import rows_images
import rows_many
import rows_reclaim
import rows_recover
import rows_replay
import rows_scale
import rows_snapshots
import rows_space
import rows_speed
import rows_terabyte
import rows_traffic
import table
from processes import Failed, Processes

PARTS = {
    "traffic": rows_traffic,
    "snapshots": rows_snapshots,
    "space": rows_space,
    "reclaim": rows_reclaim,
    "many": rows_many,
    "binaries": rows_binaries,
    "images": rows_images,
    "scale": rows_scale,
    "terabyte": rows_terabyte,
    "recover": rows_recover,
    "backup": rows_backup,
    "convert": rows_convert,
    "guest": rows_guest,
    "database": rows_database,
    "home": rows_home,
    "speed": rows_speed,
    "replay": rows_replay,
    "boot": rows_boot,
}
# What bench/protect/run asks for: an hour and a half, as root, with QEMU and PostgreSQL.
ASKED_FOR = ("guest", "database", "home", "speed", "replay", "boot")
# What a quick run has unless it is told which parts or rows: what needs no image of a distribution and no large disk.
QUICK_PARTS = ("traffic", "snapshots", "space", "reclaim", "many")
ROWS = [row for part in PARTS.values() for row in part.ROWS]
SAMPLE_BYTES = 64 << 20


class Lab:
    """What all rows share."""

    def __init__(self, options):
        self.options = options
        self.binary, self.repository = os.path.abspath(options.binary), options.repository
        self.size, self.journal, self.cache = options.size, options.journal, options.cache
        self.rounds, self.seconds = options.rounds, options.seconds
        # What a write job writes at least, and how long it may try.
        self.write_bytes, self.seconds_max = 10 * options.journal, options.seconds_max
        self.only = options.rows
        self.first_seed = self.seed = options.seed
        os.makedirs(options.directory, exist_ok=True)
        self.scratch = os.path.join(os.path.abspath(options.directory), f"run-{os.getpid()}")
        os.mkdir(self.scratch)
        # What is to be no load of the medium: a guest's memory, or what has a medium of its own elsewhere.
        self.in_memory = tempfile.mkdtemp(prefix="stonefold-bench-", dir="/dev/shm")
        self.processes = Processes()
        self.jobs, self.memory_max, self.keep = 0, 0, []
        self.rows, self.kept, self.payload = [], [], {}
        self.started = time.monotonic()
        self.qemu_aio = self.find_aio()

    def say(self, text):
        elapsed = time.monotonic() - self.started
        print(f"[{elapsed / 60:5.1f} min, load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)

    def next_seed(self):
        self.seed += 1
        return self.seed

    def shown_size(self, size):
        return f"{size / 2**30:g} GiB" if size >= 2**30 else f"{size / 2**20:g} MiB"

    def tool(self, name):
        """A program of the project's own, beside the server's."""
        found = os.path.join(os.path.abspath(self.options.tools), name)
        if not os.access(found, os.X_OK):
            raise Failed(f"{found} is not there; bench/run builds it")
        return found

    def raw(self, name, value):
        self.kept.append({"row": name, **value})

    def note_memory(self, found):
        self.memory_max = max(self.memory_max, found.get("VmHWM", 0))

    def row(self, name, measure):
        if self.only and name not in self.only:
            return
        self.name = name
        self.say(f"row {name}")
        try:
            told = measure()
        except (Failed, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            told = {"title": name, "failed": f"{type(error).__name__}: {error}"}
            self.say(f"  failed: {error}")
        self.rows.append({"name": name, **told})
        for goal in told.get("goals", []):
            self.say(f"  {goal['goal']}: {goal['figure']} {goal['verdict']}")

    def alternate(self, arms):
        """ABAB…, every other round backwards: what drifts meets all arms alike."""
        measured = {arm: [None] * self.rounds for arm in arms}
        for number in range(self.rounds):
            order = list(arms) if number % 2 == 0 or self.name == "snapshots-under-load" else list(reversed(arms))
            for arm in order:
                load_before = os.getloadavg()[0]
                try:
                    kept = arms[arm]()
                except (Failed, OSError, KeyError, ValueError) as error:
                    kept = {"failed": f"{type(error).__name__}: {error}"}
                told = f"{kept['rate']:,.0f}/s" if "rate" in kept else kept["failed"]
                self.say(f"  round {number + 1} of {self.rounds}, {arm}: {told}")
                measured[arm][number] = kept
                self.raw(self.name, {"arm": arm, "round": number + 1, "load": round(load_before, 2), **kept})
        return measured

    def find_aio(self):
        """This qemu and this kernel together; tried, because a build may know the word and the kernel refuse it."""
        image = os.path.join(self.scratch, "probe.raw")
        with open(image, "wb") as file:
            file.truncate(1 << 20)
        for aio in ("io_uring", "native"):
            argv = ["qemu-io", "-f", "raw", "-t", "none", "-i", aio, "-c", "read 0 4k", image]
            if subprocess.run(argv, capture_output=True, timeout=20).returncode == 0:
                return aio
        return "threads"

    def check_payload(self, path, what="made up", ratio_min=1.7, ratio_max=2.3):
        """On what was really written: 4 KiB blocks that repeat, and what lz4 makes of it."""
        with open(path, "rb") as file:
            sample = file.read(SAMPLE_BYTES)
        blocks = [hashlib.blake2b(sample[at : at + 4096], digest_size=16).digest() for at in range(0, len(sample), 4096)]
        unique = len(set(blocks)) / len(blocks)
        packed = subprocess.run(["lz4", "-1", "-B4", "-c"], input=sample, capture_output=True, timeout=60, check=True)
        ratio = len(sample) / len(packed.stdout)
        self.payload[what] = f"unique 4 KiB blocks {unique:.2%}, lz4 ratio {ratio:.2f}"
        self.say(f"payload {what}: {self.payload[what]}")
        if unique < 0.999 or not ratio_min <= ratio <= ratio_max:
            raise Failed(f"the payload is not what was meant: {self.payload[what]}")

    def close(self):
        for arm in self.keep:
            if arm.process and arm.process.poll() is None:
                self.note_memory(arm.memory())
        self.processes.stop_all()
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.rmtree(self.in_memory, ignore_errors=True)


def machine(lab):
    def said(*argv):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        return (done.stdout or done.stderr).strip().splitlines()[0] if done.returncode == 0 else "unknown"

    def git(*argv):
        return said("git", "-C", lab.repository, *argv)

    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) >> 20
    with open(lab.binary, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    place = said("findmnt", "-no", "FSTYPE,OPTIONS", "--target", lab.scratch)
    changed = subprocess.run(
        ["git", "-C", lab.repository, "status", "--porcelain", "--", "crates", "Cargo.lock"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": git("rev-parse", "--short", "HEAD") + (", with changes" if changed.stdout.strip() else ""),
        "binary": f"{said(lab.binary, '--version')}, sha256 {digest}…, built {stamp(lab.binary)}",
        "processor": f"{os.cpu_count()} × {model}",
        "memory": f"{memory} GiB",
        "kernel": os.uname().release,
        "place": place,
        "versions": f"{said('fio', '--version')}; {said('qemu-nbd', '--version')}; {said('nbdkit', '--version')}",
        "load before": f"{os.getloadavg()[0]:.2f} (this run not yet in it)",
    }


def stamp(path):
    return datetime.datetime.fromtimestamp(os.path.getmtime(path), datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def size(text):
    unit = "KMGT".find(text[-1].upper())
    return int(text) if unit < 0 else int(float(text[:-1]) * 1024 ** (unit + 1))


def parse():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parser = argparse.ArgumentParser(prog="bench/run", description="Stonefold beside named peers: one run, one directory.")
    add = parser.add_argument
    add("--repository", help=argparse.SUPPRESS, required=True)
    add("--tools", help=argparse.SUPPRESS, required=True)
    add("--binary", help="default: target/release/stonefold, built if it is not there", required=True)
    add("--directory", default=os.path.join(cache, "stonefold", "bench"), help="where disks and pools lie; default %(default)s")
    add("--quick", action="store_true", help="small and short, and labelled so: 1 GiB, 3 rounds of 3 s")
    add("--size", type=size, help="of each disk; default 4G, quick 1G")
    add("--cache", type=size, help="of Stonefold; default a quarter of the disk")
    add("--journal", type=size, help="of Stonefold; write jobs write ten times as much; default 192M, quick 64M")
    add("--rounds", type=int, help="default 5, quick 3")
    add("--seconds", type=int, help="of a timed job; default 20, quick 3")
    add("--seconds-max", type=int, help="of a job that has an amount to do; default 120, quick 10")
    add("--seed", type=int, default=1, help="of payload and places; default %(default)s")
    add("--parts", help=f"of {', '.join(PARTS)}; default all, quick {', '.join(QUICK_PARTS)}")
    add("--rows", help=f"only these rows, of {', '.join(ROWS)}")
    add("--out", help="default bench/store/DATE, or DATE-quick")
    add("--into", help="a folder of an earlier run: its other rows stay, with their date")
    options = parser.parse_args()
    quick = options.quick
    options.size = options.size or (1 << 30 if quick else 4 << 30)
    options.cache = options.cache or max(options.size // 4, 16 << 20)
    options.journal = options.journal or (64 << 20 if quick else 192 << 20)
    options.rounds = options.rounds or (3 if quick else 5)
    options.seconds = options.seconds or (3 if quick else 20)
    options.seconds_max = options.seconds_max or (10 if quick else 120)
    options.rows = chosen(parser, "row", options.rows, ROWS, None)
    usual = QUICK_PARTS if quick else tuple(part for part in PARTS if part not in ASKED_FOR)
    usual = tuple(PARTS) if options.rows else usual
    options.parts = chosen(parser, "part", options.parts, PARTS, usual)
    if options.rows:
        options.parts = [part for part in options.parts if set(PARTS[part].ROWS) & set(options.rows)]
    return options


def chosen(parser, what, text, known, usual):
    if not text:
        return usual
    names = text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"no {what} '{name}'; there are {', '.join(known)}")
    return names


def earlier(folder, rows):
    """Rows of a folder that were not measured now, and their raw figures."""
    with open(os.path.join(folder, "results.json")) as file:
        whole = json.load(file)
    stamp = f"{whole['machine']['date']}, commit {whole['machine']['commit']}"
    names = {row["name"] for row in rows}
    kept = [{"measured": stamp, **row} for row in whole["rows"] if row["name"] not in names]
    return kept, [one for one in whole["raw"] if one["row"] not in names]


def output_folder(options):
    if options.into:
        return options.into
    day = datetime.date.today().isoformat() + ("-quick" if options.quick else "")
    wanted = options.out or os.path.join(os.path.dirname(os.path.abspath(__file__)), day)
    folder, number = wanted, 1
    while os.path.exists(folder):
        number += 1
        folder = f"{wanted}-{number}"
    return folder


def check_room(options):
    """Minutes that it takes, and bytes needed at one time: parts run one after another, and each removes what it made."""
    needs = [PARTS[part].needs(options) for part in options.parts]
    minutes, needed = sum(minutes for minutes, _ in needs), max(needed for _, needed in needs)
    free = shutil.disk_usage(options.directory).free
    if free < needed:
        sys.exit(f"error: {options.directory} has {free >> 30} GiB free, and some {needed >> 30} are needed; take less --size, fewer --parts, or another --directory")
    return minutes, needed


def main():
    options = parse()
    os.makedirs(options.directory, exist_ok=True)
    minutes, needed = check_room(options)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    lab = Lab(options)
    status, known = 0, None
    try:
        known = machine(lab)
        lab.say(f"about {minutes:.0f} min and up to {needed >> 30} GiB in {lab.scratch}; qemu-nbd with cache=none, aio={lab.qemu_aio}")
        for part in options.parts:
            try:
                PARTS[part].run(lab)
            except (Failed, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
                lab.rows.append({"name": part, "title": f"the rest of {part}", "failed": f"{type(error).__name__}: {error}"})
                lab.say(f"{part} ended early: {error}")
                for arm in lab.keep:
                    arm.close()
        save(lab, options, known)
    except (SystemExit, KeyboardInterrupt) as stopped:
        # What was measured is kept, and says that the rest is missing.
        lab.rows.append({"name": "stopped", "title": "everything after this", "failed": "the run was stopped"})
        if known and lab.kept:
            save(lab, options, known)
        status = stopped.code if isinstance(stopped, SystemExit) else 130
    finally:
        lab.close()
    sys.exit(status)


def save(lab, options, known):
    known["load after"] = f"{os.getloadavg()[0]:.2f}"
    known["payload"] = lab.payload or "not checked"
    settings = {
        "quick": options.quick,
        "disk": lab.shown_size(lab.size),
        "cache": lab.shown_size(lab.cache),
        "journal": lab.shown_size(lab.journal),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "seconds at most for an amount": options.seconds_max,
        "seed": options.seed,
        "qemu-nbd": f"cache=none, aio={lab.qemu_aio}",
    }
    folder = output_folder(options)
    if options.into:
        rows, raw = earlier(folder, lab.rows)
        lab.rows, lab.kept = rows + lab.rows, raw + lab.kept
    else:
        os.makedirs(folder)
    with open(os.path.join(folder, "results.json"), "w") as file:
        whole = {"machine": known, "settings": settings, "rows": lab.rows, "raw": lab.kept}
        # A line for each measurement: small, and a difference between two runs can be read.
        head = {key: whole[key] for key in ("machine", "settings", "rows")}
        lines = ",\n".join(json.dumps(one) for one in lab.kept)
        file.write(json.dumps(head, indent=1)[:-2] + ',\n "raw": [\n' + lines + "\n]}\n")
    table.write(folder)
    with open(os.path.join(folder, "README.md")) as file:
        print(file.read())
    lab.say(f"written to {folder}")


if __name__ == "__main__":
    main()
