#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --memory holds whatever is read: one stream, random reads, many small files, many readers
# at once. A small budget is slower, and never an error.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

data=$T/oss/data
mkdir -p "$data/small"
for i in 1 2 3; do head -c 96M /dev/urandom >"$data/large$i"; done
for i in $(seq 200); do head -c 100000 /dev/urandom >"$data/small/f$i"; done
start_ossd
# Latency, so that as much as may be is on its way.
faults '[{"op":"GetObject","fault":"latency","ms":5}]'

# read_all MEMORY LIMIT: the peak of the daemon stays below it, in KiB.
read_all() {
	local reader readers=() pid peak
	mount_sluice oss://data "$T/in" input --memory "$1" --cache-dir "$T/cache-$1"
	for i in 1 2 3; do
		cmp "$data/large$i" "$T/in/large$i" &
		readers+=($!)
	done
	for i in 1 2 3 4; do
		dd if="$T/in/large$((i % 3 + 1))" of="$T/nothing" bs=64K skip=$((i * 311)) count=16 \
			status=none &
		readers+=($!)
		diff -r "$data/small" "$T/in/small" &
		readers+=($!)
	done
	for reader in "${readers[@]}"; do
		wait "$reader" || fail "a reader failed with --memory $1"
	done
	pid=$("$bin/sluice" status "$T/in" --json | jq .pid)
	peak=$(awk '/^VmHWM/ {print $2}' "/proc/$pid/status")
	echo "--memory $1: peak $((peak / 1024)) MiB"
	[[ ${BUILD:-} == *san-* ]] || [ "$peak" -le "$2" ] || fail "peak of $peak KiB with --memory $1"
	"$bin/sluice" umount "$T/in"
}
read_all 128M $((192 * 1024))
read_all 32M $((96 * 1024))
