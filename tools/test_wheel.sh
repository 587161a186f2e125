#!/bin/sh
# test_wheel.sh PYTHON ARGUMENT...: test graphcore as its users have it: a wheel of the last commit, built from a clone without
# symbolic links and installed into a new venv. The tests run in the clone without the sources of the package. The ARGUMENTs are
# those of pytest.
set -e
root=$(cd "$(dirname "$0")/.." && pwd); found=$1; shift
place=$(mktemp -d); trap 'rm -rf "$place"' EXIT; trap 'exit 1' INT TERM
git -c core.symlinks=false clone --quiet "$root" "$place/clone"
cd "$place/clone"
"$found" -m venv "$place/venv"
python=$place/venv/bin/python
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$place" .
rm -rf build graphcore ops runtime models array_api setup.py
sh tools/install.sh "$python" -c requirements.lock "$(echo "$place"/*.whl)[dev,models,serve]"
unset PYTHONPATH
"$python" -c 'import sys, graphcore; print("testing", graphcore.__file__, "with Python", sys.version.split()[0])'
"$python" -m pytest "$@"
