"""Studies on a Dask cluster: `connect` finds it, `engine` hands out chunks, `member` runs in each Dask worker."""
