#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Small files are fetched ahead of readers that go along a directory, each once, and nearly
# nothing for nothing when there is no order. The store's counters tell.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

count=300
mkdir -p "$T/oss/bucket/d" "$T/oss/bucket/random"
for i in $(seq -w $count); do
	head -c 20000 /dev/urandom >"$T/oss/bucket/d/$i"
	head -c 20000 /dev/urandom >"$T/oss/bucket/random/$i"
done
start_ossd
# Slow enough that the readers have to wait for the first files.
faults '[{"op":"*","fault":"latency","ms":20}]'
mount_sluice oss://bucket "$T/in" input
gets() { oss_stat '.requests.GetObject // 0'; }
sent() { oss_stat .bytes_out; }

# One reader stops in the middle: what follows is there already, or on its way.
ls "$T/in/d" >"$T/names"
before=$(gets)
for i in $(head -n 40 "$T/names"); do cat "$T/in/d/$i" >/dev/null; done
more_than_read() { [ $(($(gets) - before)) -ge 60 ]; }
eventually 20 more_than_read
# Not all of it: the window is twice what was read.
[ $(($(gets) - before)) -le 160 ] || fail "$(($(gets) - before)) files fetched for 40 read"

# The rest by eight readers, every eighth file each: every file is fetched once.
pids=()
for w in $(seq 0 7); do
	(awk -v w="$w" 'NR > 40 && NR % 8 == w' "$T/names" | while read -r i; do
		cmp "$T/in/d/$i" "$T/oss/bucket/d/$i" || exit 1
	done) &
	pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "wrong bytes"; done
[ $(($(gets) - before)) -eq $count ] || fail "$(($(gets) - before)) requests for $count files"
ahead=$("$bin/sluice" status "$T/in" --json | jq .input.detail.ahead.files_read)
[ "$ahead" -ge $((count / 3)) ] || fail "only $ahead of $count files were there in time"

# A third of a directory in random order.
ls "$T/in/random" >/dev/null
bytes=$(sent)
shuf --random-source=<(yes) -n 100 "$T/names" | while read -r i; do
	cmp "$T/in/random/$i" "$T/oss/bucket/random/$i" || exit 1
done || fail "wrong bytes"
sleep 0.3 # for what would be fetched without a reader
fetched=$(($(sent) - bytes))
[ $fetched -le $((100 * 20000 * 12 / 10)) ] || fail "$fetched bytes for 2000000 read at random"
