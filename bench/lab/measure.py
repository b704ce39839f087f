"""The lab beside fio on one file, in turn, and against the target that answers at once. See run."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEPTH = 32
LABELS = {"reads": "4K random read", "writes": "4K random write"}


def lab(binary, target, quick, verify):
    """I/Os a second of each step, as the lab says."""
    command = [binary, "--json", "lab", "run", os.path.join(HERE, "closed.toml"), "--target", target, "--threads", "1", "--destroy-data"]
    command += ["--quick"] * quick + ["--no-verify"] * (not verify)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):  # 3: a step was not steady, which both are told of alike
        sys.exit(f"error: {' '.join(command)}: {done.stderr}")
    return {one["name"]: one["iops"] for one in json.loads(done.stdout)["summary"]["points"]}


# What fio is told beside the load. By itself it writes the bytes of its buffers again and again, with a few of them changed. Where its bytes are new each
# time it does what the lab does, and for reads the very same as without: how far these two differ is what a ratio can tell here. Where it verifies, each
# block has a sum that reads are held against, as the lab's have.
FIO = {
    "fio": [],
    "fio, new bytes": ["--refill_buffers"],
    "fio, verifying": ["--verify=crc32c", "--verify_fatal=1", "--do_verify=0"],
}


def fio(path, size, seconds, step, more):
    """The same load by fio's io_uring engine, with registered files and buffers as the lab has them."""
    command = ["fio", "--name=job", f"--filename={path}", f"--size={size}", "--direct=1", "--ioengine=io_uring"]
    command += ["--registerfiles", "--fixedbufs", f"--iodepth={DEPTH}", "--bs=4k", "--norandommap", "--randrepeat=0"]
    command += [f"--rw=rand{'read' if step == 'reads' else 'write'}", "--time_based", f"--runtime={seconds}", "--ramp_time=2"]
    done = subprocess.run(command + more + ["--output-format=json"], stdout=subprocess.PIPE, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return job["read" if step == "reads" else "write"]["iops"]


def prepare(path, size):
    """A file whose blocks have the sums that fio's verification looks for."""
    command = ["fio", "--name=fill", f"--filename={path}", f"--size={size}", "--direct=1", "--ioengine=io_uring", f"--iodepth={DEPTH}"]
    command += ["--bs=4k", "--rw=write", "--verify=crc32c", "--do_verify=0", "--randrepeat=0"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


@contextlib.contextmanager
def in_memory(folder, size):
    """Loop devices over two files in memory: there is no medium that is faster one second and slower the next."""
    devices = []
    try:
        for name in ("target", "sums"):
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, int(size[:-1]) << {"M": 20, "G": 30}[size[-1]])
            made = subprocess.run(["losetup", "--find", "--show", path], stdout=subprocess.PIPE, text=True, check=True)
            devices.append(made.stdout.strip())
        yield devices
    finally:
        for device in devices:
            subprocess.run(["losetup", "--detach", device], check=True)


def main():
    parser = argparse.ArgumentParser(prog="bench/lab/run", description=__doc__)
    parser.add_argument("--binary", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--directory", default=".", help="where the file lies that both load [default: here]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="loop devices over files in memory (/dev/shm) in place of a file; as root")
    parser.add_argument("--quick", action="store_true", help="a smaller file and shorter runs")
    given = parser.parse_args()
    seconds, size = (6, "512M") if given.quick else (10, "2G")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm" if given.memory else given.directory))
        path, kind = os.path.join(folder, "target"), "file"
        sums = f"{path}.sums"
        if given.memory:
            (path, sums), kind = stack.enter_context(in_memory(folder, size)), "dev"
        # Written whole before anybody is timed: the first write of a block of a file costs more.
        lab(given.binary, f"{kind}:{path}", given.quick, True)
        prepare(sums, size)
        rounds = []
        for number in range(given.rounds):
            arms = {
                "lab": lambda: lab(given.binary, f"{kind}:{path}", given.quick, True),
                "lab, reads not looked at": lambda: lab(given.binary, f"{kind}:{path}", given.quick, False),
            }
            for name, more in FIO.items():
                file = sums if name == "fio, verifying" else path
                arms[name] = lambda file=file, more=more: {step: fio(file, size, seconds, step, more) for step in LABELS}
            order = list(arms) if number % 2 == 0 else list(arms)[::-1]
            rounds.append({name: arms[name]() for name in order})
            print(f"round {number + 1}: {json.dumps(rounds[-1])}", file=sys.stderr)
    print("| load | arm | I/Os a second, median | against fio with new bytes, each round | median | against fio, median |\n|---|---|---|---|---|---|")
    for step, label in LABELS.items():
        for arm in rounds[0]:
            rates = [one[arm][step] for one in rounds]
            against = {peer: [one[arm][step] / one[peer][step] for one in rounds] for peer in FIO}
            told = ", ".join(f"{ratio:.2f}" for ratio in against["fio, new bytes"])
            medians = " | ".join(f"{statistics.median(against[peer]):.3f}" for peer in ("fio, new bytes", "fio"))
            print(f"| {label} | {arm} | {statistics.median(rates):,.0f} | {told} | {medians} |")
    for verify in (True, False):
        rates = lab(given.binary, "null:", True, verify)
        print(f"\nnull:, one thread, {'verified' if verify else 'not verified'}: " +
              ", ".join(f"{LABELS[step]} {rate:,.0f}" for step, rate in rates.items()))


main()
