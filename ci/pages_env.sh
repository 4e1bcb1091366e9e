#!/usr/bin/env bash
# Builds .pages, an environment that publishes and watches nights: no TensorFlow, no Horovod, no MPI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}
# The versions are those of the whole environment.
mapfile -t packages < <("$python" - <<'PYTHON'
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))
groups = project["dependency-groups"]
named = groups["suite"] + groups[groups["cpu"][0]["include-group"]]
wanted = ("jinja2", "msgspec", "numpy", "scipy")
print(*(each for each in named if each.split("==")[0] in wanted), sep="\n")
PYTHON
)
"$python" -m venv .pages
.pages/bin/python -m pip install -q --disable-pip-version-check "${packages[@]}"
