"""Proof that a process on this host is gone, from what the kernel says of it."""

import hmac
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from tenuto.codec import encode
from tenuto.model.lane import HostProof


@cache
def _place() -> tuple[str | None, str | None, str | None]:
    machine, boot = _text("/etc/machine-id"), _text("/proc/sys/kernel/random/boot_id")
    return sealed(machine), sealed(boot), _link("/proc/self/ns/pid")


def this_process() -> HostProof:
    """Describe the running process, for others on this host to check."""
    return _proof_of(os.getpid())


def is_dead(holder: HostProof | None) -> bool:
    """Return whether a holder is proven gone: a missing value proves nothing.

    Same machine, boot and pid namespace, and no process with its pid and start time.
    """
    if holder is None or holder.pid is None or holder.started is None:
        return False
    place = (holder.machine_id, holder.boot_id, holder.pid_namespace)
    return None not in place and place == _place() and _started(holder.pid) != holder.started


def sealed(host_id: str | None) -> str | None:
    """Return what represents an id of this host in rows and errors: it can be compared, and does not reveal the id.

    Others identify the machine by it too, so it is made as systemd asks: a keyed digest of our name.
    """
    return None if host_id is None else hmac.digest(host_id.encode(), b"tenuto", "sha256").hex()[:32]


def worker_name() -> str:
    """Return a short name for this process by which others on this host can check whether it is still alive."""
    return _name_of(os.getpid())


def worker_is_dead(worker: str | None) -> bool:
    """Return whether the worker of that name is proven gone; one of another host, or of another kind, never is."""
    place, _, process = (worker or "").partition(":")
    pid, _, started = process.partition(":")
    if not (pid.isdecimal() and started.isdecimal()) or place != _name_of(os.getpid()).partition(":")[0]:
        return False
    return _started(int(pid)) != int(started)


@cache
def _proof_of(pid: int) -> HostProof:
    machine, boot, namespace = _place()
    return HostProof(machine_id=machine, boot_id=boot, pid_namespace=namespace, pid=pid, started=_started(pid))


@cache
def _name_of(pid: int) -> str:
    """Return a digest of machine, boot and pid namespace, the pid, and its start time; without any of them, the pid."""
    place, started = _place(), _started(pid)
    if None in place or started is None:
        return f"pid {pid}"
    return f"{sha256(encode(place).encode()).hexdigest()[:12]}:{pid}:{started}"


def _started(pid: int) -> int | None:
    stat = _text(f"/proc/{pid}/stat")
    if stat is None:
        return None
    # The command may hold spaces and parentheses; the fields after its last ")" do not. A zombie has ended.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(rest[18])


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - not a path but a name of a namespace
    except OSError:
        return None
