#!/usr/bin/env python3
"""A disk whose points are a chain of qcow2 files, by QEMU alone, as the other arm of the study of recovery: `bench/lab/chain.py WORD FOLDER …`.

    serve FOLDER SIZE       a new disk, until a signal: FOLDER/disk.sock serves it as the export 'disk'
    keep FOLDER             what was written until now stays in its file; a new one above it takes what comes. Prints nothing
    recover FOLDER POINT    a new file above what the keep of that number (from 0 on) has left, served by a qemu-nbd; prints the URI
    discard FOLDER          what 'recover' has made

A read goes down from the newest file to the first that has the block, as with every backup that keeps what has changed since the one before.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE = 30.0


def image(folder, number):
    """The file that takes what is written after so many points."""
    return os.path.join(folder, f"{number}.qcow2")


def above(folder, number, path):
    """A new file above the one of that number."""
    words = ["-b", image(folder, number), "-F", "qcow2"]
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *words, path], check=True)


def described(path, number):
    """A qcow2 file as a node, past the page cache, and without opening what is below it."""
    file = {"driver": "file", "filename": path, "aio": "native", "cache": {"direct": True}}
    return {"driver": "qcow2", "node-name": f"disk{number}", "file": file, "cache": {"direct": True}, "backing": None}


def points(folder):
    return sum(name.endswith(".qcow2") and name != "recovered.qcow2" for name in os.listdir(folder)) - 1


def ask(folder, command, arguments):
    """One command to the storage daemon of the folder, by QMP."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(os.path.join(folder, "qmp.sock"))
        lines = stream.makefile("r")
        lines.readline()
        for execute, words in (("qmp_capabilities", {}), (command, arguments)):
            stream.sendall(json.dumps({"execute": execute, "arguments": words}).encode() + b"\n")
            answer = {}
            while "return" not in answer:
                answer = json.loads(lines.readline())
                if "error" in answer:
                    sys.exit(f"error: {execute}: {answer['error']['desc']}")


def serve(folder, size):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image(folder, 0), size], check=True)
    at = lambda name: os.path.join(folder, name)
    os.execvp("qemu-storage-daemon", [
        "qemu-storage-daemon",
        "--blockdev", json.dumps(described(image(folder, 0), 0)),
        "--nbd-server", f"addr.type=unix,addr.path={at('disk.sock')},max-connections=0",
        "--export", "type=nbd,id=disk,node-name=disk0,name=disk,writable=on",
        "--chardev", f"socket,id=qmp,path={at('qmp.sock')},server=on,wait=off",
        "--monitor", "chardev=qmp",
    ])


def keep(folder):
    number = points(folder)
    new = image(folder, number + 1)
    above(folder, number, new)
    ask(folder, "blockdev-add", described(new, number + 1))
    ask(folder, "blockdev-snapshot", {"node": f"disk{number}", "overlay": f"disk{number + 1}"})


def recover(folder, point):
    path, door, pid = (os.path.join(folder, name) for name in ("recovered.qcow2", "recovered.sock", "recovered.pid"))
    above(folder, int(point), path)
    # Of what is below the daemon has the newest files open, to read.
    options = f"driver=qcow2,cache.direct=on,file.driver=file,file.filename={path},file.aio=native,file.cache.direct=on"
    words = ["--persistent", "--shared=16", f"--socket={door}", f"--pid-file={pid}", "--export-name=disk", "--fork", "--image-opts", options]
    subprocess.run(["qemu-nbd", *words], check=True, stdout=subprocess.DEVNULL)
    print(f"nbd+unix:///disk?socket={door}")


def discard(folder):
    with open(os.path.join(folder, "recovered.pid")) as file:
        pid = int(file.read())
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.02)
    os.unlink(os.path.join(folder, "recovered.qcow2"))


WORDS = {"serve": serve, "keep": keep, "recover": recover, "discard": discard}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in WORDS:
        sys.exit(__doc__)
    WORDS[sys.argv[1]](*sys.argv[2:])
