"""What a worker process holds, seen from outside and from inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Vitals:
    """`tasks` are asyncio tasks, `children` all processes under the worker, `rss_kib` its memory in RAM."""

    tasks: int
    fds: int
    threads: int
    children: int
    rss_kib: int
    by_name: dict[str, int]
    connections: dict[str, list[str]]

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.fds} descriptors, {self.threads} threads, {self.children} processes, "
            f"{self.rss_kib / 1024:.1f} MiB"
        )


def vitals(pid: int, inside: dict[str, Any]) -> Vitals:
    """`inside` is what the probe told."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return Vitals(
        tasks=inside["tasks"],
        fds=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        threads=int(fields["Threads"]),
        children=len(descendants(pid)),
        rss_kib=int(fields["VmRSS"].split()[0]),
        by_name=inside["by_name"],
        connections=inside["connections"],
    )


def descendants(pid: int) -> set[int]:
    """Every process under `pid`, in any generation."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(path.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.add(child)
            todo.append(child)
    return found
