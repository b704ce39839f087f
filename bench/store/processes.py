"""What the run starts, so that it can be stopped: each by its own id, whatever happens."""

import os
import signal
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """An arm could not be measured; the text says why and lands in the table."""


class Processes:
    def __init__(self):
        self.running = []

    def start(self, argv, log, **options):
        """In a session of its own, so that Ctrl-C at the terminal reaches this program alone, which then stops it."""
        output = open(log, "ab")
        options.setdefault("stdout", output)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=output, start_new_session=True, **options)
        output.close()
        self.running.append(process)
        return process

    def stop(self, process, how=signal.SIGTERM, patience=60):
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process in self.running:
            self.running.remove(process)

    def stop_all(self):
        for process in list(reversed(self.running)):
            self.stop(process, patience=10)

    def call(self, argv, log, seconds_max):
        """Runs a command to its end; fails with the last line of its log."""
        process = self.start(argv, log)
        try:
            status = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise Failed(f"{os.path.basename(argv[0])} was stopped after {seconds_max:.0f} s") from None
        finally:
            self.stop(process, patience=5)
        if status != 0:
            raise Failed(f"{os.path.basename(argv[0])} ended with status {status}: {last_line(log)}")


def last_line(log):
    with open(log, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else "it said nothing"


def cpu_seconds(pid):
    """User and system time of all threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def bytes_written(pid):
    """What the process had written to the medium: direct I/O as it is issued, the page cache as it is dirtied."""
    with open(f"/proc/{pid}/io") as file:
        return int(next(line for line in file if line.startswith("write_bytes:")).split()[1])


def memory(pid):
    """Resident bytes: now and at most."""
    with open(f"/proc/{pid}/status") as file:
        found = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
    return {key: int(value.split()[0]) * 1024 for key, value in found.items()}


def wait_for(what, condition, seconds_max, process=None, log=None):
    end = time.monotonic() + seconds_max
    while not condition():
        if process is not None and process.poll() is not None:
            raise Failed(f"{what}: it ended with status {process.returncode}: {last_line(log)}")
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds_max} s")
        time.sleep(0.02)
