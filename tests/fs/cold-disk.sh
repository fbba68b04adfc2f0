#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The disk under the cache is full, becomes read-only, or hangs: reads go around it, are
# right, and end in time.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
command -v mkfs.ext4 >/dev/null || skip "needs mkfs.ext4"

data=$T/oss/data
mkdir -p "$data/small"
for i in 1 2 3 4; do head -c 12000000 /dev/urandom >"$data/large$i"; done
# Alone in their folders: nothing fetches them ahead.
for i in 1 2 3; do
	mkdir "$data/alone$i"
	head -c 30000000 /dev/urandom >"$data/alone$i/f"
done
for i in $(seq 40); do head -c 50000 /dev/urandom >"$data/small/f$i"; done
start_ossd
cache_status() { "$bin/sluice" status "$T/in" --json | jq -e ".input.detail.cache | $1" >"$T/jq"; }

# disk SIZE: an ext4 of its own at $T/disk.
disk() {
	truncate -s "$1" "$T/image"
	mkfs.ext4 -q -F -m 0 "$T/image"
	mkdir -p "$T/disk"
	mount -o loop,errors=remount-ro "$T/image" "$T/disk" || skip "cannot mount a loop device"
}
disk_away() {
	mountpoint -q "$T/disk" || return 0
	fsfreeze -u "$T/disk" 2>/dev/null || true
	umount -l "$T/disk"
}
defer disk_away
mount_on_disk() { mount_sluice oss://data "$T/in" input --cache-dir "$T/disk/cache" --cache-free 1M \
		--deadline 20s; }
# same FILE…: it is as in the store, within the time that a hanging disk may cost.
same() {
	local name
	for name in "$@"; do
		timeout 30 cmp "$data/$name" "$T/in/$name" || fail "$name"
	done
}
# same_small FROM TO
same_small() {
	local i
	for i in $(seq "$1" "$2"); do same "small/f$i"; done
}

# Full: less room than one object, and nothing of ours that could go.
disk 24M
head -c 13M /dev/zero >"$T/disk/others" 2>"$T/nothing" || true
mount_on_disk
same large1 large2 large3
same_small 1 20
cache_status '.bypassed > 0' || fail "it was never full: this tests nothing"

# Read-only from one moment to the next, with part of an object in the cache.
"$bin/sluice" umount "$T/in"
rm "$T/disk/others"
mount_on_disk
same_small 1 10
dd if="$T/in/large4" of="$T/nothing" bs=1M count=2 status=none
mount -o remount,abort "$T/disk" || skip "cannot make ext4 read-only under open files"
expect_rc 1 touch "$T/disk/anything"
same large4 large1
same_small 11 20
"$bin/sluice" umount "$T/in"
disk_away

# Hanging: what is asked of it does not come back.
rm "$T/image"
disk 192M
mount_on_disk
same_small 1 10
dd if="$T/in/alone1/f" of="$T/nothing" bs=1M count=2 status=none
# Whatever happens here, the disk answers again: nothing could be ended before.
(sleep 30; fsfreeze -u "$T/disk") 2>/dev/null &
thaw=$!
defer kill "$thaw"
fsfreeze -f "$T/disk"
same alone1/f
# logged SENTENCE: it is noticed when something is read.
logged() {
	timeout 10 dd if="$T/in/alone1/f" of="$T/nothing" bs=64K count=1 status=none
	grep -q "$1" "$T/state/log"
}
eventually 20 logged 'cache disk hangs'
same alone2/f large1
same_small 1 30
fsfreeze -u "$T/disk"
eventually 20 logged 'cache disk answers again'
same alone3/f
