"""A server of Stonefold, its disks, and file systems on them: made in order, taken down in order.

Promises: what was started here is stopped here, also on failure and Ctrl-C; a step that fails says what and why.
Never: touches a mount, a loop device or a process that is not its own. For root.
"""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

# A file's pages are given up once in so many seconds: what a machine with little memory has of a cache.
CACHE_SECONDS = 30
# How long anything may take to appear.
PATIENCE_SECONDS = 120


def run(*words, **options):
    """Runs a command to its end; what it printed. Fails with its own words."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def until(what, ready, seconds=PATIENCE_SECONDS):
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not there after {seconds} s")
        time.sleep(0.1)


class Place:
    """A folder with a pool and a server; everything else is entered into it and left with it."""

    def __init__(self, work: Path, binary: Path):
        self.work, self.binary = work, binary
        self.left = contextlib.ExitStack()
        self.stopping = threading.Event()
        self.failed, self.programs = [], {}

    def __enter__(self):
        self.work.mkdir(parents=True, mode=0o755)
        self.left.callback(shutil.rmtree, self.work, ignore_errors=True)
        self.left.callback(self.stopping.set)
        (self.work / "pool").mkdir()
        api = f"unix://{self.work}/api.sock"
        os.environ["STONEFOLD_API"] = api
        self.start("server", self.binary, "serve", "--pool", f"file://{self.work}/pool",
                   "--nbd", f"unix://{self.socket}", "--api", api, "--cache", "256M")
        until("the server", lambda: subprocess.run([self.binary, "disk", "ls"], capture_output=True).returncode == 0)
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.left.close()

    @property
    def socket(self):
        return self.work / "nbd.sock"

    def start(self, name, *words, **options):
        """Starts a program that is ended with this place; its words go to a log. One that ends by itself has failed."""
        log = open(self.work / f"{name}.log", "ab")
        program = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True, **options)
        log.close()
        self.left.callback(self.end, program)
        self.programs[name] = program
        return program

    @staticmethod
    def end(program):
        """Asks a program to end, and makes it when it does not."""
        if program.poll() is None:
            program.terminate()
            try:
                program.wait(60)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def disk(self, name, size):
        """A new disk of so many bytes."""
        run(self.binary, "disk", "create", name, "--size", size)

    def mounted(self, name):
        """An ext4 on a disk, by nbdfuse and a loop device."""
        fuse, mount = self.work / f"{name}.fuse", self.work / f"{name}.mount"
        fuse.mkdir()
        mount.mkdir()
        self.start(f"{name}.nbdfuse", "nbdfuse", fuse, f"nbd+unix:///{name}?socket={self.socket}")
        until(f"nbdfuse of '{name}'", (fuse / "nbd").exists)
        self.left.callback(self.again, "fusermount3", "-u", fuse)
        try:
            device = run("losetup", "--find", "--show", "--direct-io=on", fuse / "nbd").strip()
        except RuntimeError:
            device = run("losetup", "--find", "--show", fuse / "nbd").strip()
        self.left.callback(self.again, "losetup", "--detach", device)
        # Nothing is left to be written in the background: it would be in the trace, and of no application.
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1", device)
        run("mount", "-t", "ext4", "-o", "relatime,noinit_itable", device, mount)
        self.left.callback(self.again, "umount", mount)
        self.beside(f"cache of {name}", lambda: self.keep_cache_small(mount))
        return mount

    def again(self, *words):
        """Until it works: what is busy is let go a little later."""
        for _ in range(60):
            if subprocess.run([str(word) for word in words], capture_output=True).returncode == 0:
                return
            time.sleep(0.5)
        print(f"warning: {' '.join(map(str, words))} does not work", flush=True)

    def beside(self, name, work):
        """Runs something in a thread until this place is left; what it fails with is told at the end."""
        def go():
            try:
                work()
            except Exception as error:  # Whatever it is, the capture is void, and `check` says so.
                if not self.stopping.is_set():
                    self.failed.append(f"{name}: {error!r}")
        thread = threading.Thread(target=go, name=name, daemon=True)
        thread.start()
        return thread

    def check(self):
        """Fails when anything beside has failed, or a program has ended."""
        for name, program in self.programs.items():
            if program.poll() is not None:
                self.failed.append(f"{name} ended with {program.returncode}: {(self.work / f'{name}.log').read_text(errors='replace')[-1000:]}")
        if self.failed:
            raise RuntimeError("; ".join(self.failed))

    def keep_cache_small(self, mount):
        """Gives up cached pages of files, a part of the files each second. Pages that are not yet written stay."""
        while not self.stopping.wait(1):
            files = [Path(folder) / name for folder, _, names in os.walk(mount) for name in names]
            random.shuffle(files)
            every = max(1, len(files) // CACHE_SECONDS)
            for start in range(0, len(files), every):
                for file in files[start:start + every]:
                    with contextlib.suppress(OSError):
                        handle = os.open(file, os.O_RDONLY | os.O_NOATIME)
                        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                        os.close(handle)
                if self.stopping.wait(1):
                    return

    def pause(self, seconds):
        """Waits, on average so long, as strangers do; false when it is over."""
        return not self.stopping.wait(random.expovariate(1 / seconds))
