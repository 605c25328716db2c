#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the static in-sandbox program and a header that names it, for blob.c.
# usage: build.sh CC SOURCE_DIR PROGRAM HEADER      CC = cc gets -static as any other
set -eu
cc=$1 dir=$2 program=$3 header=$4
case $program in /*) ;; *) program=$PWD/$program ;; esac
# never sanitized, whatever the rest is built with: it is the first process of a box
$cc -static -O2 -g0 -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -fno-sanitize=all -fstack-protector-strong \
	-o "$program" "$dir/init.c" "$dir/host.c" "$dir/supervisor.c" "$dir/tree.c"
hash=$(sha256sum "$program" | cut -c1-16)
cat >"$header" <<END
/* made by lib/init/build.sh */
#define SBX_INIT_FILE "$program"
#define SBX_INIT_HASH "$hash"
END
