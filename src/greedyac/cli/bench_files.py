"""What `greedyac bench` tells: one report as JSON, and its rows for tables in the terminal and in Markdown."""

import json
import platform
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greedyac.bench.peers import factor, per_core
from greedyac.bench.ratios import Found, ratios_of, to_json
from greedyac.core.counting import counted
from greedyac.core.machine import cores
from greedyac.core.processor import processor
from greedyac.core.version import __version__

FILES = ("bench.json", "bench.md", "ratios.json", "peers.png", "peers.svg")
OUR_HEADINGS = ("agent", "environment", "lanes", "run-steps/s", "GFLOP/s", "of matmul")
PEER_HEADINGS = ("peer", "versions", "steps/s per core", "ours is × faster")
Row = Sequence[str]


def machine() -> dict[str, Any]:
    """What the numbers depend on, besides other processes."""
    versions = {"python": platform.python_version(), "jax": version("jax"), "greedyac": __version__}
    return {"cpu": processor(), "cores": len(cores()), **versions}


def as_json(found: Found) -> dict[str, Any]:
    """The report."""
    results = [result._asdict() for result in found.ours.results]
    about = {"date": datetime.now().astimezone().isoformat(timespec="seconds"), "machine": machine()}
    told = found.ours._asdict() | {"results": results} | about
    if found.peers is None:
        return told
    peers = [result._asdict() for result in found.peers.results]
    return told | {"peers": peers, "peers_matmul_gflops": found.peers.matmul_gflops}


def our_rows(found: Found) -> list[Row]:
    """A row per agent and environment."""
    return [
        (
            one.agent,
            one.env,
            str(one.lanes),
            f"{one.run_steps_per_second:,.0f}",
            f"{one.gflops:.1f}",
            f"{one.fraction_of_matmul:.2f}",
        )
        for one in found.ours.results
    ]


def peer_rows(found: Found) -> list[Row]:
    """A row per peer, after one of the agent that it is compared with."""
    rows, here = list[Row](), f"greedyac {__version__}, jax {version('jax')}"
    for agent, ours in per_core(found.ours).items():
        group = [one for one in found.peer_results if one.agent == agent]
        if group:
            rows.append((f"greedyac {agent}", here, f"{ours:,.0f}", ""))
        for one in group:
            if one.steps_per_second is None or one.times_faster is None:
                rows.append((one.peer, f"did not run: {one.error}", "–", "–"))
            else:
                versions = ", ".join(f"{name} {number}" for name, number in one.versions.items())
                rows.append((one.peer, versions, f"{one.steps_per_second:,.0f}", factor(one.times_faster)))
    return rows


def footnotes(found: Found) -> list[str]:
    """How it was measured: of ours and, if there are peers, of those."""
    ours = found.ours
    notes = [
        f"{counted(ours.cores, 'worker')}, one per core, each with as many lanes as the table says; "
        f"2048×2048 float32 matrix product on {counted(ours.cores, 'thread')}: {ours.matmul_gflops:.0f} GFLOP/s"
    ]
    if found.peers:
        notes.append(
            f"peers: {counted(ours.cores, 'process')}, one per core, all at once; "
            f"matrix product between them: {found.peers.matmul_gflops:.0f} GFLOP/s"
        )
    return notes


def markdown(found: Found, told: dict[str, Any]) -> str:
    """The report as a page."""
    on = told["machine"]
    parts = [
        "# Speed",
        f"{told['date']}, {on['cpu']}, cores used: {on['cores']}, Python {on['python']}, jax {on['jax']}, "
        f"greedyac {on['greedyac']}.",
        _table(OUR_HEADINGS, our_rows(found)),
    ]
    parts += [_table(PEER_HEADINGS, peer_rows(found))] if found.peers else []
    return "\n\n".join([*parts, *(f"{note[0].upper()}{note[1:]}." for note in footnotes(found))]) + "\n"


def _table(headings: Row, rows: Sequence[Row]) -> str:
    """A table in Markdown; the columns after the second hold numbers."""
    rule = ["---"] * 2 + ["---:"] * (len(headings) - 2)
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (headings, rule, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_files(found: Found, folder: Path) -> None:
    """The report as JSON and as a page, the ratios and, with peers, the picture."""
    from greedyac.bench.figures import peer_bars  # imports Matplotlib

    told = as_json(found)
    (folder / "bench.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    (folder / "bench.md").write_text(markdown(found, told), encoding="utf-8")
    (folder / "ratios.json").write_text(to_json(ratios_of(found.ours)), encoding="utf-8")
    if found.peers:
        figure = peer_bars(found.ours, found.peers.results)
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"peers.{suffix}", dpi=200)
