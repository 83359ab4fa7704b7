"""Runs a command on pipes and pseudo-terminals, types keys, sends signals, and keeps what was written, write by write."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path

FACTOR = float(os.environ.get("QGEN_TIME_FACTOR", "1"))  # sanitizers take their time
PATIENCE = 60 * min(FACTOR, 10)  # seconds for a case, or for a text to appear


class ScriptError(Exception):
    pass


@dataclass
class Result:
    code: int
    seconds: float
    writes: list  # on standard output
    err: bytes
    problems: list

    @property
    def out(self):
        return b"".join(self.writes)


def milliseconds(value):
    match = re.fullmatch(r"(\d+) (ms|s)", value)
    if not match:
        raise ScriptError(f"expected a time like `100 ms`: {value}")
    return int(match[1]) * (1000 if match[2] == "s" else 1)


def open_streams(words, piped):
    """For standard input, output and error: the command's end and ours. `words` says which are terminals."""
    size = next((w for w in words if re.fullmatch(r"\d+x\d+", w)), "80x24")
    columns, rows = map(int, size.split("x"))
    theirs, ours = [], []
    for name in ("in", "out", "err"):
        if name in words:
            master, slave = pty.openpty()
            mode = termios.tcgetattr(slave)
            mode[1] &= ~termios.OPOST  # the bytes as they are written
            termios.tcsetattr(slave, termios.TCSANOW, mode)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            theirs.append(slave)
            ours.append(master)
        elif name == "in":
            end, other = os.pipe() if piped else (os.open(os.devnull, os.O_RDONLY), None)
            theirs.append(end)
            ours.append(other)
        else:
            try:
                other, end = os.pipe2(os.O_DIRECT)  # keeps the borders between writes
            except OSError:  # some sandboxes have none
                other, end = os.pipe()
            theirs.append(end)
            ours.append(other)
    return theirs, ours


def child_setup():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for descriptor in (0, 1, 2):
        if os.isatty(descriptor):
            fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
            return


def keys(text):
    text = re.sub(r"\^([A-Z\[])", lambda m: chr(ord(m[1]) - 64), text)
    return text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t").replace("\\e", "\x1b").encode()


def queued(process):
    """Seconds that a process has waited for a processor, which on a busy machine says nothing about the program."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0


class Run:
    """One execution of a command, with its steps. `stdin`: what it reads; None for nothing, on /dev/null."""

    def __init__(self, command, stdin, terminals, steps, environment, folder):
        self.problems, self.steps = [], list(steps)
        self.chunks, self.seen = {1: [], 2: []}, {1: 0, 2: 0}
        theirs, self.ours = open_streams(terminals, stdin is not None or any(step == "send" for step, _ in steps))
        self.child = subprocess.Popen(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment,
                                      stdin=theirs[0], stdout=theirs[1], stderr=theirs[2], start_new_session=True,
                                      preexec_fn=child_setup)
        self.start, self.queued = time.monotonic(), queued("self")
        for end in theirs:
            os.close(end)
        self.typing = self.ours[0] is not None and os.isatty(self.ours[0])
        self.wake = self.start
        self.type(stdin or b"")

    def type(self, data):
        try:
            while data and self.ours[0] is not None:
                data = data[os.write(self.ours[0], data):]
        except BrokenPipeError:
            pass

    def text(self, stream):
        return b"".join(self.chunks[stream])

    def step(self):
        """Takes the next step if its time has come; True if it was taken."""
        if not self.steps or time.monotonic() < self.wake:
            return False
        action, value = self.steps[0]
        if action == "expect":
            for stream in (1, 2):
                at = self.text(stream).find(value.encode(), self.seen[stream])
                if at >= 0:
                    self.seen[stream] = at + len(value.encode())
                    break
            else:
                return False
        elif action == "send":
            self.type(keys(value))
        elif action == "signal":
            os.killpg(self.child.pid, getattr(signal, "SIG" + value))
        elif action == "wait":
            self.wake = time.monotonic() + milliseconds(value) / 1000
        self.steps.pop(0)
        return True

    def finish(self):
        open_ends = {1, 2} | ({0} if self.typing else set())
        while {1, 2} & open_ends:
            while self.step():
                pass
            if not self.steps and not self.typing and self.ours[0] is not None:
                os.close(self.ours[0])
                self.ours[0] = None
            if time.monotonic() > self.start + PATIENCE:
                self.problems.append(f"still running after {PATIENCE:.0f} s" +
                                     (f", waiting for `{self.steps[0][0]}: {self.steps[0][1]}`" if self.steps else ""))
                os.killpg(self.child.pid, signal.SIGKILL)
                break
            for end in select.select([self.ours[i] for i in open_ends], [], [], 0.02)[0]:
                stream = self.ours.index(end)
                try:
                    data = os.read(end, 1 << 16)
                except OSError:  # a terminal that nobody has open any more
                    data = b""
                if not data:
                    open_ends.discard(stream)
                elif stream > 0:  # the echo of what is typed is no output
                    self.chunks[stream].append(data)
        os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.monotonic() - self.start - queued(self.child.pid) - (queued("self") - self.queued)
        code = self.child.wait()
        for end in self.ours:
            if end is not None:
                os.close(end)
        if self.steps and not self.problems:
            self.problems.append(f"ended before `{self.steps[0][0]}: {self.steps[0][1]}`")
        return Result(code if code >= 0 else 128 - code, seconds, self.chunks[1], self.text(2), self.problems)
