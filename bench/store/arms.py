"""The arms: Stonefold and its peers, each with a disk that fio can reach. An arm knows how to be started, how to be made
cold, and how to wait until everything that it put off is done."""

import http.client
import json
import os
import shutil
import signal
import socket
import time

from processes import Failed, bytes_written, cpu_seconds, memory, wait_for


class Arm:
    """A server over a Unix socket, or none: then fio works on the file itself."""

    process = None

    def __init__(self, name, lab, parent=None):
        self.name, self.lab = name, lab
        self.folder = os.path.join(parent or lab.scratch, name)
        self.log = os.path.join(lab.scratch, f"{name}.log")
        self.socket = os.path.join(lab.scratch, f"{name}.nbd")
        os.makedirs(self.folder, exist_ok=True)

    def target(self, disk="disk"):
        return ["--ioengine=nbd", f"--uri=nbd+unix:///{disk}?socket={self.socket}"]

    def spawn(self, argv):
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.process = self.lab.processes.start(argv, self.log)
        wait_for(f"{self.name} to listen", lambda: os.path.exists(self.socket), 30, self.process, self.log)

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid) if self.process else 0.0

    def memory(self):
        return memory(self.process.pid) if self.process and self.process.poll() is None else {}

    def settle(self, disk="disk"):
        """Until what was acknowledged lies where it stays. Nothing to wait for without a journal."""
        return 0.0

    def make_cold(self):
        """Every arm here reads with direct I/O; asked all the same, because a fill may have gone another way."""
        for folder, _, files in os.walk(self.folder):
            for file in files:
                with open(os.path.join(folder, file), "rb") as handle:
                    os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self):
        if self.process:
            self.lab.processes.stop(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


class PlainFile(Arm):
    """A file of the same directory, by io_uring and direct I/O: what the medium gives without a server."""

    def __init__(self, lab, name="plain"):
        super().__init__(name, lab)
        self.file = os.path.join(self.folder, "disk.raw")
        with open(self.file, "wb") as handle:
            os.posix_fallocate(handle.fileno(), 0, lab.size)

    def target(self, disk="disk"):
        return ["--ioengine=io_uring", "--direct=1", f"--filename={self.file}"]


class QemuNbd(Arm):
    def __init__(self, lab, form, name=None, source=None):
        super().__init__(name or form, lab)
        self.form, self.file = form, os.path.join(self.folder, f"disk.{form}")
        if source:
            convert = ["qemu-img", "convert", "-T", "none", "-t", "none", "-f", "raw", "-O", form, source, self.file]
            self.lab.processes.call(convert, self.log, 900)
        else:
            create = ["qemu-img", "create", "-q", "-f", form, self.file, str(lab.size)]
            self.lab.processes.call(create, self.log, 60)
        self.start()

    def start(self):
        aio = self.lab.qemu_aio
        argv = ["qemu-nbd", "-f", self.form, "--cache=none", f"--aio={aio}", "--discard=unmap", "-t", "-e", "4"]
        self.spawn([*argv, "-k", self.socket, "-x", "disk", self.file])


class Nbdkit(Arm):
    def __init__(self, lab, size):
        super().__init__("nbdkit", lab)
        self.spawn(["nbdkit", "-f", "-U", self.socket, "memory", str(size)])


class Stonefold(Arm):
    def __init__(self, lab, name="stonefold", cache=None, path=None, parent=None):
        """`path`: where programs are looked for first. `parent`: where its pool's folder lies, if not with all others."""
        super().__init__(name, lab, parent)
        self.cache, self.path = cache or lab.cache, path
        self.api_socket = os.path.join(lab.scratch, f"{name}.api")
        self.ready_seconds = None
        self.marked = set()
        self.start()

    def start(self):
        argv = [self.lab.binary, "serve", "--pool", f"file://{self.folder}/pool", "--nbd", f"unix://{self.socket}"]
        argv += ["--api", f"unix://{self.api_socket}", "--cache", str(self.cache), "--log", "warn"]
        argv += ["--journal", str(self.lab.journal)]
        for path in (self.socket, self.api_socket):
            if os.path.exists(path):
                os.unlink(path)
        environment = {**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}"} if self.path else None
        started = time.monotonic()
        with open(f"{self.log}.ready", "wb") as ready:
            self.process = self.lab.processes.start(argv, self.log, stdout=ready, env=environment)
        said = lambda: os.path.getsize(f"{self.log}.ready") > 0
        wait_for(f"{self.name} to be ready", said, 120, self.process, self.log)
        self.ready_seconds = time.monotonic() - started

    def kill(self):
        self.lab.processes.stop(self.process, how=signal.SIGKILL)

    def ask(self, method, path, body=None, seconds_max=300):
        """One call of the API, on a connection of its own."""
        connection = Connection(self.api_socket, seconds_max)
        try:
            return connection.ask(method, path, body)
        finally:
            connection.close()

    def create(self, disk, size=None):
        self.ask("POST", "/v1/disks", {"name": disk, "size_bytes": size or self.lab.size})

    def import_disk(self, disk, source):
        argv = [self.lab.binary, "disk", "import", disk, source, "--format", "raw", "--api", f"unix://{self.api_socket}"]
        started = time.monotonic()
        self.lab.processes.call(argv, self.log, 900)
        return time.monotonic() - started

    def snapshot(self, disk, name):
        self.ask("POST", "/v1/snapshots", {"disks": [disk], "name": name})

    def status(self):
        return self.ask("GET", "/v1/pool")

    def counters(self):
        text = self.ask("GET", "/metrics")
        lines = (line.split() for line in text.splitlines() if line.startswith("stonefold_") and "{" not in line)
        return {name.removeprefix("stonefold_"): float(value) for name, value in lines}

    def settle(self, disk="disk"):
        """Seconds until nothing of the disk is unfolded. The fold would begin by itself within its interval; to
        count work and not waiting, it is asked for: a snapshot compared with itself folds first, and then has
        nothing to compare."""
        started = time.monotonic()
        if disk not in self.marked:
            self.snapshot(disk, "bench-mark")
            self.marked.add(disk)
        self.ask("GET", f"/v1/disks/{disk}/snapshots/bench-mark/diff?to={disk}@bench-mark")
        wait_for("the journal to be folded", lambda: self.status()["journal_bytes"] == 0, 120)
        return time.monotonic() - started

    def make_cold(self):
        self.ask("POST", "/v1/cache/drop")
        super().make_cold()

    def bytes_written(self):
        return bytes_written(self.process.pid)

    def close(self):
        self.lab.note_memory(self.memory())
        super().close()


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket, kept open: a new one for each call would be measured too."""

    def __init__(self, path, seconds_max=300):
        super().__init__("localhost", timeout=seconds_max)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        headers = {"content-type": "application/json"} if body is not None else {}
        self.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = self.getresponse()
        text = response.read().decode()
        if response.status >= 400:
            raise Failed(f"{method} {path}: {response.status} {text[:300]}")
        return json.loads(text) if "json" in response.headers.get("content-type", "") and text else text
