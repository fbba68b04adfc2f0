#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a long listing takes of memory goes back to the system, however often it is read.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

names=40000
limit_mib=64 # --memory
mkdir -p "$T/oss/data/many"
(cd "$T/oss/data/many" && seq -f 'name-of-a-file-%06g' $names | xargs touch)
start_ossd
mount_sluice oss://data "$T/mnt" output --memory ${limit_mib}M --ttl 1h
pid=$("$bin/sluice" status "$T/mnt" --json | jq -r .pid)
# in_memory VmRSS|VmHWM: now, or at most so far.
in_memory() { awk -v name="$1:" '$1 == name {print int($2 / 1024)}' "/proc/$pid/status"; }
is_small() { [[ ${BUILD:-} == *san-* ]] || [ "$(in_memory VmRSS)" -le $((limit_mib + 16)) ]; }

for round in 1 2 3; do
	ls -l "$T/mnt/many" >"$T/shown"
	[ "$(wc -l <"$T/shown")" -eq $((names + 1)) ] || fail "$(wc -l <"$T/shown") lines"
	eventually 60 is_small
	echo "listing $round: $(in_memory VmRSS) MiB, $(in_memory VmHWM) at most"
done
[[ ${BUILD:-} == *san-* ]] || [ "$(in_memory VmHWM)" -le $((limit_mib + 64)) ] ||
	fail "$(in_memory VmHWM) MiB in memory"
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
