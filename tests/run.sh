#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and runs all tests: sh tests/run.sh [ARGUMENTS OF PYTEST]
#
#   BUILD=DIR     build directory (default: build)
#   PASSES=...    of the mount suite: "root user" (default for root), "user" (default for others)
#   UNIT=0        leaves the unit tests out
#   SERVICE=0     leaves the tests of the devbox test service out (default: as UNIT); they take no arguments
#   SBX_SDK=DIR   where the devbox SDK is installed or is to be (default: installed by npm for the run)
#   RETRY=1       runs what failed once more
#   SBX_STRICT=1, SBX_SCALE, SBX_SLOW, SBX_KEEP, TMPDIR: see tests/mount/helpers.py
#
# The mount suite runs twice: as root, and as an ordinary user (nobody, with a home of its own for the time).
# (there the long tests are shorter: SBX_SCALE=0.2 unless told).  /dev/fuse, where it is closed to users, is opened for that pass and closed again.
# test_network.py needs root's pass: it makes network namespaces, and runs itself as an ordinary user in them.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
if [ "$(id -u)" = 0 ]; then
	passes=${PASSES:-root user}
else
	passes=${PASSES:-user}
fi

say() {
	printf '\n== %s\n' "$*"
}

die() {
	echo "tests/run.sh: $*" >&2
	exit 1
}

for tool in meson ninja pkg-config fusermount3; do
	command -v $tool >/dev/null || die "$tool is missing; .ci/run lists the packages"
done
python=python3
for p in /usr/bin/python3 python3; do
	if $p -c 'import pytest' 2>/dev/null; then
		python=$p
		break
	fi
done
$python -c 'import pytest' 2>/dev/null || die "pytest is missing: apt-get install python3-pytest"

say "build in $build"
[ -f "$build/build.ninja" ] || meson setup "$build"
ninja -C "$build"
sbxfs=$(cd "$build" && pwd)/fs/sbxfs

if [ "${UNIT:-1}" = 1 ]; then
	say "unit tests"
	if [ "$(meson introspect --tests "$build" | grep -o '"name": "[a-z]*"' | wc -l)" -lt 8 ]; then
		die "unit tests were not built: apt-get install libcmocka-dev, then meson setup --reconfigure $build"
	fi
	if ! meson test -C "$build" --print-errorlogs; then
		[ "${RETRY:-0}" = 1 ] || exit 1
		say "once more the unit tests"
		meson test -C "$build" --print-errorlogs
	fi
fi

scratch=
fuse_mode=
cache=$(mktemp -d)
finish() {
	rm -rf "$cache"
	[ -z "$fuse_mode" ] || chmod "$fuse_mode" /dev/fuse
	[ -z "$scratch" ] || rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# COMMAND ... of pytest; with RETRY=1 what failed is run once more, and must pass then: a machine that is under load is not
# a fault of the program, one that fails twice is
suite() {
	rm -rf "$cache/pytest"
	"$@" -o addopts= -o "cache_dir=$cache/pytest" && return 0
	status=$?
	if [ $status != 1 ] || [ "${RETRY:-0}" != 1 ]; then
		return $status
	fi
	say "once more what failed"
	"$@" -o addopts= -o "cache_dir=$cache/pytest" --last-failed --last-failed-no-failures none
}

if [ "${SERVICE:-${UNIT:-1}}" = 1 ]; then
	say "the devbox test service"
	(cd tests/devbox && suite $python -m pytest -q)
fi

for pass in $passes; do
	say "mount tests as $pass"
	if [ "$pass" = root ] || [ "$(id -u)" != 0 ]; then
		(cd tests/mount && SBXFS=$sbxfs suite $python -m pytest "$@")
		continue
	fi
	# the checkout and the build may lie where nobody else can read
	scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/sbxfs-user.XXXXXX")
	chmod 0777 "$cache"
	mkdir "$scratch/home" "$scratch/tmp"
	cp "$sbxfs" "$scratch/sbxfs"
	cp -r tests docs "$scratch/"
	chown -R nobody:nogroup "$scratch"
	if ! setpriv --reuid=nobody --regid=nogroup --clear-groups sh -c 'exec 3<>/dev/fuse' 2>/dev/null; then
		fuse_mode=$(stat -c %a /dev/fuse)
		chmod 0666 /dev/fuse
	fi
	(
		cd "$scratch/tests/mount"
		suite setpriv --reuid=nobody --regid=nogroup --clear-groups env -u XDG_RUNTIME_DIR -u XDG_CONFIG_HOME \
			-u XDG_STATE_HOME HOME="$scratch/home" TMPDIR="$scratch/tmp" USER=nobody LOGNAME=nobody \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SBX_SCALE="${SBX_SCALE:-0.2}" \
			SBXFS="$scratch/sbxfs" "$python" -m pytest "$@"
	)
done
