"""The columns of results: one row per run, the same wherever results are kept."""

import polars as pl

_COLUMNS: dict[str, type[pl.DataType] | pl.DataType] = {
    "run_id": pl.String,
    "setting_id": pl.String,
    "agent": pl.String,
    "env": pl.String,
    "seed": pl.Int64,
    "steps": pl.Int64,
    "hypers": pl.String,
    "status": pl.String,
    "error": pl.String,
    "diverged_at": pl.Int64,
    "average_return": pl.Float64,
    "final_return": pl.Float64,
    "best_return": pl.Float64,
    "episodes": pl.Int64,
    "curve": pl.List(pl.Float32),
    "curve_steps": pl.Float64,
    "eval_curve": pl.List(pl.Float32),
    "eval_steps": pl.Int64,
    "versions": pl.String,
    "cpu": pl.String,
    "seconds": pl.Float64,
}
SCHEMA = pl.Schema(_COLUMNS)
RESTARTED = "after an interruption its environment could not be brought back, and a new episode was begun"
"""What the column `error` says of a run that is done all the same."""
BINS = 100
"""Points of the column `curve`."""
FINAL_BINS = BINS // 10
"""The last of them: those of `final_return`."""
