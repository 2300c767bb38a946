"""Installs peers into `.bench/`: `python -m tests.bench.install few|all`. What cannot be had is named and left out."""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.bench import contestants
from tests.bench.contestants import FEW, HOME, NODE, NODE_PACKAGES, OTHERS, RESTATE_PACKAGES
from tests.bench.measure import say


def main(which: str) -> int:
    """Installs; always answers 0, because a peer that is missing is only left out."""
    HOME.mkdir(exist_ok=True)
    wanted = contestants.environments(FEW if which == "few" else (*FEW, *OTHERS))
    if which == "all":
        wanted["restate"] = RESTATE_PACKAGES
    for name, packages in wanted.items():
        _environment(name, packages)
    _node(NODE_PACKAGES[which])
    return 0


def _environment(name: str, packages: tuple[str, ...]) -> None:
    home = HOME / name
    if (home / ".installed").exists():
        return
    say(f"installing {name} into {home.relative_to(HOME.parent)}")
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    if _ran([sys.executable, "-m", "venv", str(home)], name) and _ran(pip, name):
        (home / ".installed").touch()
    else:
        shutil.rmtree(home, ignore_errors=True)


def _node(packages: tuple[str, ...]) -> None:
    if shutil.which("npm") is None:
        say("left out: BullMQ and Restate need npm")
        return
    NODE.mkdir(exist_ok=True)
    (NODE / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    missing = [name for name in packages if not (NODE / "node_modules" / name).is_dir()]
    if missing:
        say(f"installing {', '.join(missing)} into .bench/node")
        _ran(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE), *packages], "npm packages"
        )


def _ran(command: list[str], what: str) -> bool:
    made = subprocess.run(command, check=False, capture_output=True)
    if made.returncode:
        last = made.stderr.decode(errors="replace").strip().splitlines()[-1:]
        say(f"left out: {what} cannot be installed ({last[0][:200] if last else made.returncode})")
    return made.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
