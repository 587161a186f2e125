#!/bin/sh
# install.sh PYTHON ARGUMENT...: install what the arguments of `pip install` name into the environment of an interpreter.
# With uv, which takes a tenth of pip's time and is fetched first; with pip where uv cannot be had or fails: uv does not
# read pip's settings, such as another index.
python=$1; shift
uv=$(dirname "$python")/uv
if uv --version >/dev/null 2>&1; then uv=uv; fi
pip() { PIP_UPGRADE_STRATEGY=eager "$python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }
if [ "$uv" = uv ] || [ -x "$uv" ] || pip uv==0.13.9 2>/dev/null; then
  "$uv" pip install --quiet --python "$python" "$@" && exit
  "$python" -m pip --version >/dev/null 2>&1 || exit
fi
pip "$@"
