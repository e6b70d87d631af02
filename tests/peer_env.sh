#!/bin/sh
# Builds .venv-peer: the peer tool (mindstudio-probe 8.3.0), the oracle of tests marked "peer". Safe to run again.
# Exits 0 either way, with one line that says what stands: the peer is an aid of the tests, never a need.
set -u
cd "$(dirname "$0")/.." || exit 1

VENV=.venv-peer
STAMP=$VENV/.installed
WANTED="mindstudio-probe==8.3.0 numpy==1.26.4 pandas==2.0.3 einops pyyaml tqdm openpyxl python-dateutil
twisted==26.10.0 service_identity==24.2.0 pyOpenSSL==24.2.1 cryptography==43.0.3 pwinput==1.0.3 torch==2.13.0
safetensors"
PROBE="import torch; from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator"

if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$WANTED" ] && "$VENV/bin/python" -W ignore -c "$PROBE" 2>/dev/null; then
    echo "peer: ready in $VENV"
    exit 0
fi

rm -rf "$VENV"
log=$(mktemp)
if ${PYTHON:-python3} -m venv "$VENV" >"$log" 2>&1 &&
    # shellcheck disable=SC2086
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check $WANTED >"$log" 2>&1 &&
    "$VENV/bin/python" -W ignore -c "$PROBE" >"$log" 2>&1; then
    printf '%s' "$WANTED" >"$STAMP"
    echo "peer: installed in $VENV"
else
    rm -rf "$VENV"
    echo "peer: not installable here, tests marked \"peer\" will be skipped: $(grep -v '^$' "$log" | tail -n 1)"
fi
rm -f "$log"
exit 0
