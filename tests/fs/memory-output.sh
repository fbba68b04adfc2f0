#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --memory bounds what /output keeps in memory while the store takes nothing.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

own_mib=64   # programs, threads, tables of names
limit_mib=32 # --memory
start_ossd --bucket data
mount_sluice oss://data "$T/mnt" output --memory ${limit_mib}M
pid=$("$bin/sluice" status "$T/mnt" --json | jq -r .pid)
ls "$T/mnt" >/dev/null
faults '[{"op":"PutObject","fault":"status","status":503},{"op":"UploadPart","fault":"status","status":503}]'
head -c 60000 /dev/urandom >"$T/data"
for i in $(seq 1500); do
	cat "$T/data" >"$T/mnt/f$i"
done
head -c 100000000 /dev/zero >"$T/mnt/large"
rss=$(awk '/^VmHWM/ {print int($2 / 1024)}' "/proc/$pid/status")
[[ ${BUILD:-} == *san-* ]] || [ "$rss" -le $((limit_mib + own_mib)) ] || fail "$rss MiB in memory"
faults '[]'
expect_rc 0 timeout 120 "$bin/sluice" umount "$T/mnt"
[ "$(find "$T/oss/data" -name 'f*' -size 60000c | wc -l)" -eq 1500 ] || fail "not all stored"
