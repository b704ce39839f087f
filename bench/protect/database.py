"""A PostgreSQL of the distribution's packages on an export: ext4 on a loop device over nbdfuse, whatever serves it. A guest would do without
the loop and nbdfuse, but where KVM does not work its processors would be what is measured.

*Promises*: what was put up is taken down, in its order, also when something fails. *Owns*: the mounts, the loop device, nbdfuse, a memory group."""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import time

from processes import Failed, wait_for

USER = "postgres"
SETTINGS = {
    "listen_addresses": "",
    # Else the kernel has all that was written since the last checkpoint to write when that ends, and the rate is a third for seconds.
    "backend_flush_after": "256kB",
    # It would come in some rounds and not in others.
    "autovacuum": "off",
}


def programs():
    """Where the newest PostgreSQL's programs are."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda at: int(at.split("/")[4]))
    if not found or not shutil.which("nbdfuse") or os.geteuid() != 0:
        raise Failed("needs root, PostgreSQL and nbdfuse (packages postgresql, libnbd-bin)")
    return found[-1]


def call(argv, both=False, **options):
    """What a program says; with `both`, also what it says beside."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, **options)
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(argv[0])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout + (done.stderr if both else "")


def again(argv):
    """What is busy for a moment after it was let go."""
    for _ in range(100):
        if subprocess.run(argv, capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    call(argv)


# Of what PostgreSQL has, as its documentation begins with; and where nothing bounds it.
SHARED, SHARED_UNBOUNDED = 4, 32 << 20


class Memory:
    """A group of the kernel's that bounds what PostgreSQL has, its pages in the page cache with it."""

    def __init__(self, limit):
        self.folder, self.limit = None, limit
        with open("/proc/self/cgroup") as file:
            mine = [line.strip().split(":", 2)[2] for line in file if ":memory:" in line]
        if mine and os.access("/sys/fs/cgroup/memory/memory.limit_in_bytes", os.F_OK):
            self.folder = f"/sys/fs/cgroup/memory{mine[0].rstrip('/')}/stonefold-bench-{os.getpid()}"
            os.makedirs(self.folder)
            with open(f"{self.folder}/memory.limit_in_bytes", "w") as file:
                file.write(str(limit))

    def entered(self, argv):
        if not self.folder:
            return argv
        return ["sh", "-c", f'echo $$ >"{self.folder}/cgroup.procs"; exec setpriv --reuid={USER} --regid={USER} --clear-groups "$@"', "sh", *argv]

    def left(self):
        if not self.folder:
            return []
        with open(f"{self.folder}/cgroup.procs") as file:
            return [int(line) for line in file]

    def close(self):
        if self.folder:
            again(["rmdir", self.folder])


class Mounted:
    """An export as a file system, for the time of a `with`."""

    def __init__(self, lab, uri, make=False):
        self.lab, self.uri, self.make = lab, uri, make
        self.fuse, self.folder = os.path.join(lab.scratch, "fuse"), os.path.join(lab.scratch, "mounted")

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for folder in (self.fuse, self.folder):
                os.makedirs(folder, exist_ok=True)
            log = os.path.join(self.lab.scratch, "nbdfuse.log")
            process = self.lab.processes.start(["nbdfuse", self.fuse, self.uri], log)
            stack.callback(self.lab.processes.stop, process)
            wait_for("nbdfuse", lambda: os.path.exists(f"{self.fuse}/nbd"), 30, process, log)
            stack.callback(again, ["fusermount3", "-u", self.fuse])
            device = call(["losetup", "--find", "--show", "--direct-io=on", f"{self.fuse}/nbd"]).strip()
            stack.callback(again, ["losetup", "--detach", device])
            if self.make:
                call(["mkfs.ext4", "-q", device])
            call(["mount", "-t", "ext4", "-o", "noatime", device, self.folder])
            stack.callback(again, ["umount", self.folder])
            self.stack = stack.pop_all()
        return self.folder

    def __exit__(self, *_):
        self.stack.close()


class Cluster:
    """A PostgreSQL that runs, for the time of a `with`; `memory`: what bounds it."""

    def __init__(self, lab, folder, memory=None):
        self.lab, self.bin, self.memory = lab, programs(), memory
        self.data, self.sockets = os.path.join(folder, "data"), "/tmp"
        self.log = os.path.join(lab.scratch, "postgres.log")

    def make(self):
        os.mkdir(self.data, 0o700)
        shutil.chown(self.data, USER, USER)
        if subprocess.run(["test", "-w", self.data], user=USER, group=USER, extra_groups=[], cwd="/").returncode != 0:
            raise Failed(f"{USER} may not go to {self.data}: give a --directory that it may go to")
        self.own([f"{self.bin}/initdb", "-D", self.data, "-A", "trust", "--locale=C", "-E", "UTF8"])

    def own(self, argv, both=False):
        return call(argv, both, user=USER, group=USER, extra_groups=[], cwd="/")

    def __enter__(self):
        argv = [f"{self.bin}/postgres", "-D", self.data, "-k", self.sockets, "-p", "54329"]
        shared = self.memory.limit // SHARED if self.memory else SHARED_UNBOUNDED
        settings = {**SETTINGS, "shared_buffers": f"{shared >> 10}kB"}
        argv += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        if self.memory and self.memory.folder:
            self.process = self.lab.processes.start(self.memory.entered(argv), self.log, cwd="/")
        else:
            self.process = self.lab.processes.start(argv, self.log, user=USER, group=USER, extra_groups=[], cwd="/")
        asked = [f"{self.bin}/pg_isready", "-q", "-h", self.sockets, "-p", "54329"]
        wait_for("PostgreSQL", lambda: subprocess.run(asked).returncode == 0, 120, self.process, self.log)
        return self

    def __exit__(self, *_):
        # SIGINT is its fast shutdown: a checkpoint, and no waiting for clients.
        self.lab.processes.stop(self.process, how=signal.SIGINT)
        # One that died, of too little memory say, leaves backends, which keep its file system from being unmounted.
        for process in self.memory.left() if self.memory else []:
            os.kill(process, signal.SIGKILL)

    def pgbench(self, *words):
        return self.own([f"{self.bin}/pgbench", "-h", self.sockets, "-p", "54329", "-U", USER, *words, USER])

    def ask(self, sql):
        return self.own([f"{self.bin}/psql", "-h", self.sockets, "-p", "54329", "-U", USER, "-Atc", sql, USER]).strip()

    def rate(self, clients, seconds):
        """Transactions a second."""
        said = self.pgbench("-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds))
        return float(re.search(r"^tps = ([0-9.]+)", said, re.MULTILINE).group(1))


def fill(lab, uri, scale):
    """Makes an export a file system with a database of pgbench's, of that scale."""
    with Mounted(lab, uri, make=True) as folder:
        cluster = Cluster(lab, folder)
        cluster.make()
        with cluster:
            cluster.pgbench("-i", "-q", "-s", str(scale))
