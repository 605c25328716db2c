#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the local rows of the targets and prints them as a table; status 1 when one is missed.
#   sh tests/bench/run.sh [--quick] [ROW...]      rows: cycle shell workspace waiting boxes info (all)
# SBXFS: the binary (build/fs/sbxfs).  TMPDIR: a real disk with 2 GB of room (/var/tmp).
# Needs root (the same container is entered with runc exec), bwrap, runc, and libfuse's examples (Debian: libfuse3-dev, gcc).
set -eu
cd "$(dirname "$0")/../.."
SBXFS=$(realpath "${SBXFS:-build/fs/sbxfs}")
BENCH_DIR=${BENCH_DIR:-$(dirname "$SBXFS")/../tests/bench}
export SBXFS BENCH_DIR
if [ "$(id -u)" != 0 ]; then
	echo "run.sh: needs root: what sbxfs is compared with (runc exec, bwrap in the same container set-up) is made as root" >&2
	exit 2
fi
if [ ! -x "$SBXFS" ] || [ ! -x "$BENCH_DIR/bench-cycle" ]; then
	echo "run.sh: build first: meson setup build && ninja -C build" >&2
	exit 2
fi
exec python3 -B tests/bench/bench.py "$@"
