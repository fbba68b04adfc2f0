#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The disk under /output: full, without inodes, read-only. Writers wait while uploads make
# room, are refused before anything is acknowledged, and go on when there is space again.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
M=$T/mnt
head -c 8000000 /dev/urandom >"$T/data"

# disk NAME OPTIONS: a small file system of its own for the state directory.
disk() {
	mkdir "$T/$1"
	mount -t tmpfs -o "$2" none "$T/$1"
	defer umount -l "$T/$1"
}
mount_on() {
	local disk=$1
	shift
	mount_sluice oss://data "$M" output --full-timeout 2s "$@" --state-dir "$T/$disk/state"
}
# Starts writers that may be refused, and waits for the first refusal.
write_until_refused() {
	local i
	for i in $(seq 40); do
		cp "$T/data" "$M/$1-$i" 2>"$T/refused" || return 0
	done
	fail "nothing was refused, so this tests nothing"
}

# More than fits, with a store that takes it slowly: nobody is refused.
disk roomy size=160m
for how in on off; do
	mount_on roomy --passthrough $how
	faults '[{"op":"PutObject","fault":"latency","ms":100}]'
	for i in $(seq 30); do cp "$T/data" "$M/slow-$how-$i"; done
	store_back
	expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
	for i in $(seq 30); do cmp "$T/data" "$S/slow-$how-$i"; done
done

# The store is away and the disk is full: ENOSPC, in time; what was acknowledged arrives.
mount_on roomy
store_away
write_until_refused full
grep -q "No space left" "$T/refused" || fail "$(cat "$T/refused")"
store_back
write() { cp "$T/data" "$M/again"; }
eventually 5 write
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
cmp "$T/data" "$S/full-1" && cmp "$T/data" "$S/again"
for f in "$S"/full-*; do
	# The refused one may be there as far as it came, and only that one.
	cmp -s "$T/data" "$f" || grep -q "${f##*/}" "$T/refused" || fail "$f is not whole"
done

# No inodes left. The files are too large to travel in the journal.
head -c 100000 /dev/urandom >"$T/middling"
disk few size=400m,nr_inodes=60
mount_on few
store_away
for i in $(seq 80); do cp "$T/middling" "$M/inode-$i" 2>"$T/refused" || break; done
grep -q "No space left" "$T/refused" || fail "$(cat "$T/refused")"
store_back
write_one() { echo one >"$M/one"; }
eventually 5 write_one
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
cmp "$T/middling" "$S/inode-1"
[ "$(cat "$S/one")" = one ]

# Read-only all of a sudden: nothing is acknowledged; writable again: it goes on.
disk fragile size=400m
mount_on fragile
store_away
cp "$T/data" "$M/before"
exec 9>"$M/during"
echo text >&9
mount -o remount,ro "$T/fragile" 2>/dev/null || mount_busy=1
if [ -z "${mount_busy:-}" ]; then
	cp "$T/data" "$M/refused" 2>"$T/refused" && fail "acknowledged on a read-only disk"
	mount -o remount,rw "$T/fragile"
fi
exec 9>&-
store_back
again() { cp "$T/data" "$M/after"; }
eventually 10 again
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
cmp "$T/data" "$S/before" && cmp "$T/data" "$S/after"
