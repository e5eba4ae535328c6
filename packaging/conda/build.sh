#!/bin/bash
set -euo pipefail
export CARGO_TARGET_DIR=$SRC_DIR/target
scripts/install "$PREFIX/lib/rucp"
mkdir -p "$PREFIX/bin"
for tool in "$PREFIX"/lib/rucp/bin/rucp_*; do
    ln -s "../lib/rucp/bin/${tool##*/}" "$PREFIX/bin/${tool##*/}"
done
