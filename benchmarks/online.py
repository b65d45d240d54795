"""Benchmark of sending calls while a training runs: ``python online.py [throughput|step|memory|judging …]``.

Both ends run on this machine. Unless calls are judged, the receiver is a process that checks each frame's
checksum, acknowledges the call and keeps nothing.

``throughput`` sends calls of four tensors of 1 MiB over loopback, in plain text and with TLS, and prints
megabytes of tensors a second, from the first call queued to the last one acknowledged.

``step`` trains a small transformer, steps without the recorder, with the packed store and with the sender in
turn, in one process, with a pause of ``PAUSE`` seconds after each recorded step. The results are the medians
of what both add to the step before, and their ratio. ``memory`` prints the largest memory of both ends after
``CALLS`` calls and after ten times as many.

``judging`` prints the largest memory of ``probe run-ut --listen`` with a window of ``WINDOW`` bytes, all of
its processes together, while it judges a training of ``STEPS`` steps, and one of ten times as many; and of
the training, which waits for it.

Environment variables:
    PAUSE: Seconds after each recorded step, in which the sender catches up (default 0.3); with 0 it may not.
    SECONDS: The least duration of each measurement of throughput (default 5).
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SECONDS = float(os.environ.get("SECONDS", "5"))
MIB = 1 << 20
CALLS = 256
STEPS, WINDOW = 6, 64 * MIB

ACKNOWLEDGE = """
import resource, socket, ssl, sys, threading
from pathlib import Path
from probe_recording.sending.message import PREFIX, FrameKind, encode_frame, parse_call, parse_frame, parse_prefix
from probe_recording.sending.tls import create_receiver_context
context = create_receiver_context(Path(sys.argv[1])) if len(sys.argv) > 1 else None
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
def exactly(connection, view):
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
def say(connection, kind, **head):
    connection.sendall(b"".join(encode_frame(kind, head)))
def serve(connection):
    if context:
        connection = context.wrap_socket(connection, server_side=True)
    space = bytearray(64 << 20)
    head = bytearray(PREFIX.size)
    while True:
        try:
            exactly(connection, memoryview(head))
        except (EOFError, OSError):
            return
        prefix = parse_prefix(head)
        content = memoryview(space)[: prefix.size]
        exactly(connection, content)
        frame = parse_frame(prefix, content)
        if frame.kind is FrameKind.HELLO:
            say(connection, FrameKind.WELCOME, version=1, most_body=1 << 30, window_bytes=1 << 28,
                window_calls=1000)
        elif frame.kind is FrameKind.CALL:
            say(connection, FrameKind.DONE, seqs=[parse_call(frame).seq])
        elif frame.kind is FrameKind.END:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            say(connection, FrameKind.ENDED, verdicts={"kilobytes": {"receiver": peak}})
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

STEPPER = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
steps = int(sys.argv[1])
import torch
from torch import nn
from probe_recording.settings.config import load_config
from probe_pytorch.recorder import TorchRecorder
torch.set_num_threads(1)
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 128)
        layer = lambda: nn.TransformerEncoderLayer(128, 4, 344, dropout=0.0, batch_first=True)
        self.layers = nn.ModuleList(layer() for _ in range(4))
        self.head = nn.Linear(128, 1000)
    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
words = torch.randint(0, 1000, (4, 64))
recorders = [TorchRecorder(load_config(path)) for path in sys.argv[2:]]
def step():
    nn.functional.cross_entropy(model(words).reshape(-1, 1000), words.reshape(-1)).backward()
    optimizer.step()
    optimizer.zero_grad()
def recorded(recorder):
    recorder.start(model, None)
    step()
    recorder.stop()
    recorder.step()
def cost(run, *arguments):
    wall, cpu = time.perf_counter(), time.thread_time()
    run(*arguments)
    return time.perf_counter() - wall, time.thread_time() - cpu
times = []
for _ in range(steps + 2):
    row = [cost(step)]
    for recorder in recorders:
        row.append(cost(recorded, recorder))
        time.sleep(PAUSE)
    times.append(row)
for recorder in recorders:
    recorder.finish()
counts = recorders[-1].sender.outbox.counts
numbers = {"dropped": counts.dropped_by_api.total(), "calls": counts.queued.total()}
print(json.dumps({"times": times[2:], **numbers}))
"""


TRAINING = """
import resource, sys
import torch
from torch import nn
from probe_pytorch import PrecisionDebugger
torch.set_num_threads(1)
debugger = PrecisionDebugger(sys.argv[1])
model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(512, 512), nn.ReLU())])
for _ in range(int(sys.argv[2])):
    debugger.start(model)
    model(torch.randn(1024, 512)).sum().backward()
    debugger.stop()
    debugger.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def receiver(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start the acknowledging receiver and return its process and port."""
    process = subprocess.Popen([sys.executable, "-c", ACKNOWLEDGE, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def certificate(directory: Path) -> Path:
    """Make a self-signed certificate."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=probe", "-days", "2",
               "-keyout", str(directory / "server.key"), "-out", str(directory / "server.crt")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (directory / "server.key").chmod(0o600)
    return directory


def send(port: int, tls: Path | None, calls: int) -> tuple[float, dict[str, object]]:
    """Send calls of 4 MiB and return the seconds until all are acknowledged, and the receiver's totals."""
    from probe_recording.sending.body import SentTensor
    from probe_recording.sending.sender import Sender
    from probe_recording.settings.destination import Destination

    destination = Destination("127.0.0.1", port, tls, memory=256 * MIB, policy="wait", wait=1e6)
    sender = Sender(destination, 0, "pytorch", {})
    outbox = sender.outbox
    source = os.urandom(MIB)
    begin = time.perf_counter()
    for number in range(calls):
        outbox.begin_step()
        outbox.reserve(4 * MIB)
        tensors = [SentTensor(f"x.{i}", "uint8", (MIB,), bytearray(source)) for i in range(4)]
        outbox.put(0, f"Functional.linear.{number}.forward", {}, tensors, 4 * MIB)
    outbox.wait_until_empty(600)
    duration = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as directory:
        sender.finish(Path(directory))
    return duration, dict(sender._transport.verdicts)


def throughput() -> None:
    """Print megabytes a second in plain text and with TLS."""
    with tempfile.TemporaryDirectory() as directory:
        tls = certificate(Path(directory))
        for name, place in (("plain text", None), ("TLS", tls)):
            process, port = receiver(*([str(place)] if place else []))
            try:
                rates = []
                while sum(calls * 4.2 / rate for calls, rate in rates) < SECONDS:
                    seconds, _ = send(port, place, CALLS)
                    rates.append((CALLS, CALLS * 4 * MIB / 1e6 / seconds))
            finally:
                process.kill()
            print(f"{name}: {statistics.median(rate for _, rate in rates):,.0f} MB/s", flush=True)


def memory() -> None:
    """Print the largest memory of both ends after CALLS calls, and after ten times as many."""
    process, port = receiver()
    try:
        for calls in (CALLS, 10 * CALLS):
            _, totals = send(port, None, calls)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(f"{calls:,} calls of 4 MiB: sender at most {peak >> 10:,} MiB, receiver {totals}", flush=True)
    finally:
        process.kill()


def step() -> None:
    """Print what the packed store and the sender add to a training step."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        process, port = receiver()
        sections = {
            "packed": {"data_mode": ["forward"]},
            "sender": {"online_run_ut": True, "host": "127.0.0.1", "port": port},
        }
        paths = []
        for name, section in sections.items():
            paths.append(f"{directory}/{name}.json")
            fields = {"task": "tensor", "level": "L1", "dump_path": f"{directory}/{name}", "tensor": section}
            Path(paths[-1]).write_text(json.dumps({**fields, "extra_info": False, "step_phases": False}))
        program = STEPPER.replace("PAUSE", os.environ.get("PAUSE", "0.3"))
        try:
            command = [sys.executable, "-c", program, "20", *paths]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            process.kill()
    numbers = json.loads(result.stdout.splitlines()[-1])
    print(f"{numbers['calls']:,} calls sent, {numbers['dropped']:,} dropped")
    for kind, which in (("wall time", 0), ("CPU time of the training's thread", 1)):
        rows = [[pair[which] * 1e3 for pair in row] for row in numbers["times"]]
        bare = statistics.median(row[0] for row in rows)
        packed, sent = (statistics.median(row[i] - row[0] for row in rows) for i in (1, 2))
        print(
            f"{kind}: a step takes {bare:.1f} ms; the packed store adds {packed:.1f} ms, the sender "
            f"{sent:.1f} ms, {sent / packed:.2f} times as much",
            flush=True,
        )


def resident(root: int) -> int:
    """Return the kilobytes of memory that a process and those below it hold now."""
    below: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        sizes[int(path.parent.name)] = int(fields.get("VmRSS", "0 kB").split()[0])
        below.setdefault(int(fields["PPid"]), []).append(int(path.parent.name))
    found = [root]
    for process in found:
        found += below.get(process, [])
    return sum(sizes.get(process, 0) for process in found)


def judging() -> None:
    """Print the largest memory of both ends where calls are judged."""
    for steps in (STEPS, 10 * STEPS):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
            command = [sys.executable, "-m", "probe_core.cli", "run-ut", "--listen", "127.0.0.1:0"]
            command += ["-d", "cpu", "-o", f"{directory}/out"]
            command += ["--window", str(WINDOW), "--most-body", str(WINDOW)]
            checking = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=directory
            )
            assert checking.stderr is not None
            line = next(line for line in checking.stderr if "waits for calls at" in line)
            threading.Thread(target=checking.stderr.read, daemon=True).start()
            port = int(line.split("waits for calls at ")[1].split(",")[0].rpartition(":")[2])
            section = {"online_run_ut": True, "host": "127.0.0.1", "port": port, "online_policy": "wait",
                       "online_wait": 600, "online_memory": WINDOW}  # fmt: skip
            fields = {"task": "tensor", "level": "L1", "dump_path": f"{directory}/dump", "tensor": section}
            Path(f"{directory}/config.json").write_text(json.dumps(fields))
            training = subprocess.Popen(
                [sys.executable, "-c", TRAINING, f"{directory}/config.json", str(steps)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            largest = 0
            while checking.poll() is None:
                largest = max(largest, resident(checking.pid))
                time.sleep(0.05)
            assert training.stdout is not None
            own = int(training.stdout.read().split()[-1])
            (state,) = Path(f"{directory}/out").glob("online_*.json")
            calls = sum(rank["judged"] for rank in json.loads(state.read_text())["ranks"])
            both = f"receiver at most {largest >> 10:,} MiB, training {own >> 10:,} MiB"
            print(f"{calls:,} calls judged: {both}", flush=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ("throughput", "step", "memory", "judging"):
        {"throughput": throughput, "step": step, "memory": memory, "judging": judging}[wanted]()
