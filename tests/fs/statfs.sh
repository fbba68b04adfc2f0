#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The free space that /output shows is what can be written without waiting for the store: the
# disk's less what stays free, or what --stage-size leaves; it falls by what is staged and comes
# back with the upload.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
M=$T/mnt
reserve=$((64 << 20)) slack=$((2 << 20)) # of journal and blocks
head -c 8000000 /dev/urandom >"$T/data"
mkdir "$T/disk"
mount -t tmpfs -o size=400m none "$T/disk"
defer umount -l "$T/disk"

free() { stat -f -c '%a %S' "$1" | awk '{print $1 * $2}'; }
# within WHAT A B: about the same.
within() { [ "$2" -ge $(($3 - slack)) ] && [ "$2" -le $(($3 + slack)) ] || fail "$1: $2, not $3"; }
# The disk is asked now and then only.
truthful() { [ "$(free "$M")" -le $(($(free "$T/disk") - reserve)) ]; }
# What the store has may be kept for readers; its room is free all the same.
back() { [ "$(free "$M")" -ge $((before - slack)) ]; }
# fill ROOM: so much is shown at first.
fill() {
	before=$(free "$M")
	within "at first" "$before" "$1"
	eventually 10 truthful
	store_away
	for i in 1 2 3; do
		cp "$T/data" "$M/$1-$i"
		within "with $i staged" "$(free "$M")" $((before - i * 8000000))
		eventually 10 truthful
	done
	store_back
	timeout 60 "$bin/sluice" flush "$M"
	eventually 30 back
}

mount_sluice oss://data "$M" output --state-dir "$T/disk/state"
fill $(($(free "$T/disk") - reserve))
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
mount_sluice oss://data "$M" output --state-dir "$T/disk/state" --stage-size 100M
fill $((100 << 20))
[ "$(stat -f -c '%b %S' "$M" | awk '{print $1 * $2}')" -eq $((100 << 20)) ] ||
	fail "another size: $(stat -f "$M")"
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
