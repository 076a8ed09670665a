#!/bin/sh
# After a run of dbt, the partitions of the models that it built go to the lake: `dbt build && ./export_after_dbt.sh`.
# A model says so in its configuration, and where to:
#   {{ config(materialized='incremental', engine='MergeTree()', partition_by='toYYYYMM(at)', meta={'calve': 'lake.ns.events'}) }}
# It reads dbt's own manifest.json and run_results.json. Running it again exports only what is new.
set -eu
target=${1:-target}

python3 - "$target" <<'PYTHON' | while read -r table to; do
import json, sys
from pathlib import Path

target = Path(sys.argv[1])
nodes = json.loads((target / "manifest.json").read_text())["nodes"]
for result in json.loads((target / "run_results.json").read_text())["results"]:
    node = nodes.get(result["unique_id"])
    meta = {**node.get("meta", {}), **node["config"].get("meta", {})} if node else {}
    if result["status"] == "success" and "calve" in meta:
        print(f"{node['schema']}.{node['alias']}", meta["calve"])
PYTHON
    calve export "$table" --older-than 1d --to "$to" </dev/null
done
