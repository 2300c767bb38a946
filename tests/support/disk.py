"""A disk that tests misuse: a C shim preloaded into a server that records what an fsync made durable."""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("disk_shim.c")
_CONTROL = struct.Struct("<qqq")
UNBOUNDED = -1


class Disk:
    """The disk of every process started with `env`; whole and fast until a test says otherwise."""

    def __init__(self, directory: Path) -> None:
        """Compiles the shim into `directory`; needs a C compiler."""
        directory.mkdir(parents=True, exist_ok=True)
        library = directory / "disk_shim.so"
        self.log = directory / "disk.log"
        self._control = directory / "disk-control"
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wno-format-truncation", "-Werror"]
        subprocess.run([*command, "-o", str(library), str(SOURCE), "-ldl"], check=True)
        self.log.touch()
        self._control.write_bytes(_CONTROL.pack(0, 0, UNBOUNDED))
        self.env = {"LD_PRELOAD": str(library), "DISK_LOG": str(self.log), "DISK_CONTROL": str(self._control)}

    def slow(self, milliseconds: float) -> None:
        """Every fsync takes so much longer; 0 is as before."""
        self._set(0, round(milliseconds * 1000))

    def failing(self, *, fails: bool) -> None:
        """Whether every fsync fails with EIO."""
        self._set(1, errno.EIO if fails else 0)

    def room(self, size: int) -> None:
        """Append-only files take so many more bytes, then the disk is full; UNBOUNDED is as before."""
        self._set(2, size)

    def cut(self, folder: Path, target: Path) -> Survived:
        """Copies `folder` to `target` as a power loss now would leave it. The server must be dead."""
        survived = surviving(self.log.read_text().splitlines())
        shutil.copytree(folder, target)
        for path in sorted(target.rglob("*")):
            if path.is_file():
                _restore(path, folder / path.relative_to(target), survived)
        _undo_renames(folder, target, survived)
        return survived

    def keep(self, folder: Path) -> None:
        """What is in `folder` now is on disk: the next power loss counts from here, as after a start from a copy."""
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self.log.write_text("".join(f"F {path.stat().st_size} {path}\n" for path in files))

    def _set(self, index: int, value: int) -> None:
        with self._control.open("r+b") as file, mmap.mmap(file.fileno(), _CONTROL.size) as shared:
            shared[index * 8 : index * 8 + 8] = struct.pack("<q", value)


@dataclass
class Survived:
    """What a power loss leaves: bytes of each file, by the path that the server knew; renames that it undoes."""

    sizes: dict[str, int] = field(default_factory=dict)
    undone: list[tuple[str, str, str]] = field(default_factory=list)


def surviving(lines: list[str]) -> Survived:
    """Reads the shim's log. Strict: a rename counts only once its directory was synced."""
    found = Survived()
    for line in lines:
        kind, rest = line.split(" ", 1)
        if kind == "F":
            size, path = rest.split(" ", 1)
            found.sizes[path] = int(size)
        elif kind == "R":
            old, new, kept = rest.split(" ")
            found.undone.append((old, new, kept))
            found.sizes[kept], found.sizes[new] = found.sizes.get(new, 0), found.sizes.pop(old, 0)
        else:
            found.undone = [rename for rename in found.undone if str(Path(rename[1]).parent) != rest]
    return found


def _restore(path: Path, original: Path, survived: Survived) -> None:
    size = survived.sizes.get(str(original), 0)
    with path.open("r+b") as file:
        file.truncate(min(size, path.stat().st_size))


def _undo_renames(folder: Path, target: Path, survived: Survived) -> None:
    """Puts back, in the copy, what renames replaced that were not durable; the latest first."""
    for old, new, kept in reversed(survived.undone):
        if Path(new).is_relative_to(folder):
            copy = {name: target / Path(name).relative_to(folder) for name in (old, new)}
            if copy[new].exists():
                copy[new].replace(copy[old])
            if kept != "-":
                (target / Path(kept).relative_to(folder)).replace(copy[new])
