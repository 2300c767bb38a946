"""`demo`."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import click

from ledger.cli.options import Settings, common
from ledger.cli.output import note, print_json
from ledger.demo import play
from ledger.demo.scene import Scene


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Of the front door [a free one].")
@click.option("--keep", is_flag=True, help="Leave the stack running until Ctrl-C, and its files in place.")
@common
def demo(settings: Settings, port: int | None, keep: bool) -> int:
    """Play the whole story on an embedded store: approval, crash, unknown outcome, reconciliation, stream.

    Exits 0 only if every step was seen to hold.
    """
    directory = Path(tempfile.mkdtemp(prefix="mutation-ledger-demo-"))
    scene = Scene(directory, port)
    begun = time.monotonic()

    def say(step: str, seen: str) -> None:
        if settings.json:
            print_json({"step": step, "seen": seen})
        else:
            click.echo(f"  \u2713 {step:<16} {seen}")

    held = False
    try:
        note("starting a store, a front door and two workers on a scratch directory")
        scene.start()
        play(scene, say)
        held = True
        note(f"every step held ({time.monotonic() - begun:.0f} s)")
        if keep:
            _keep(scene, directory)
    finally:
        scene.stop()
        if held and not keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            note(f"files are in {directory}")
    return 0


def _keep(scene: Scene, directory: Path) -> None:
    note(f"still running: http://127.0.0.1:{scene.port}/ (Ctrl-C stops it)")
    for name, token in scene.tokens.items():
        note(f"  {name:<9} {token}")
    note(f"  try: mutation-ledger unknowns --config {scene.config_file} --data {directory / 'data'}")
    try:
        scene.wait()
    except KeyboardInterrupt:
        note("stopping")
