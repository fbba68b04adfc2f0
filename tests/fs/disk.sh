#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The disk under /output: full, without inodes, read-only. Writers wait while uploads make
# room, are refused before anything is acknowledged, and go on when there is space again;
# what was acknowledged arrives.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
command -v mkfs.ext4 >/dev/null || skip "needs mkfs.ext4"

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
# write_until_refused FILE NAME COUNT: copies of the file, until the first is refused; the names
# of those that were not are in $acknowledged.
write_until_refused() {
	local i
	acknowledged=()
	for i in $(seq "$3"); do
		if ! cp "$1" "$M/$2-$i" 2>"$T/refused"; then
			grep -q "No space left" "$T/refused" || fail "$(cat "$T/refused")"
			[ ${#acknowledged[@]} -gt 0 ] || fail "not one was taken"
			return 0
		fi
		acknowledged+=("$2-$i")
	done
	fail "nothing was refused, so this tests nothing"
}
# arrived FILE: each of them, in the store.
arrived() {
	local name
	for name in "${acknowledged[@]}"; do
		cmp "$1" "$S/$name" || fail "$name was acknowledged"
	done
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
write_until_refused "$T/data" full 40
store_back
write() { cp "$T/data" "$M/again"; }
eventually 5 write
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
arrived "$T/data"
cmp "$T/data" "$S/again"
for f in "$S"/full-*; do
	# The refused one may be there as far as it came, and only that one.
	cmp -s "$T/data" "$f" || grep -q "${f##*/}" "$T/refused" || fail "$f is not whole"
done

# The store stays away and something else makes room: that is enough to write on.
head -c 60M /dev/zero >"$T/roomy/others"
mount_on roomy
store_away
write_until_refused "$T/data" others 40
rm "$T/roomy/others"
write() { cp "$T/data" "$M/room"; }
eventually 5 write
[ "$(json .output.files_stored)" -eq 0 ] || fail "something was stored, so this tests nothing"
store_back
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
arrived "$T/data"
cmp "$T/data" "$S/room"

# No inodes left. The files are too large to travel in the journal.
head -c 100000 /dev/urandom >"$T/middling"
disk few size=400m,nr_inodes=60
mount_on few
store_away
write_until_refused "$T/middling" inode 80
store_back
write_one() { echo one >"$M/one"; }
eventually 5 write_one
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
arrived "$T/middling"
[ "$(cat "$S/one")" = one ]

# Read-only from one moment to the next, as after an error of the disk: what is not on it is
# refused and the status says so, what is stays. Such a disk is well again when it is mounted anew.
truncate -s 300M "$T/image"
mkfs.ext4 -q -F -m 0 "$T/image"
mkdir "$T/fragile"
mount -o loop,errors=remount-ro "$T/image" "$T/fragile"
defer eval "mountpoint -q '$T/fragile' && umount -l '$T/fragile'"
mount_on fragile --restart off
store_away
cp "$T/data" "$M/before"
echo small >"$M/before-small"
# What a program is told that has a file open: by write(), fsync() and close().
python3 - "$M/during" "$T" >"$T/told" <<'END' &
import errno, os, sys, time
def told(call, *args):
    try:
        call(*args)
        return "good"
    except OSError as e:
        return errno.errorcode[e.errno]
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(fd, b"written")
open(sys.argv[2] + "/opened", "w").close()
while not os.path.exists(sys.argv[2] + "/read-only"):
    time.sleep(0.05)
print(told(os.write, fd, bytes(1000000)), told(os.fsync, fd), told(os.close, fd))
END
holder=$!
eventually 30 test -e "$T/opened"
mount -o remount,abort "$T/fragile" || fail "cannot make ext4 read-only under open files"
expect_rc 1 touch "$T/fragile/anything"
touch "$T/read-only"
wait "$holder"
read -r _ synced closed <"$T/told"
[[ $synced$closed != *good* ]] || fail "write, fsync, close: $(cat "$T/told")"
expect_rc 1 cp "$T/data" "$M/refused"
json '.output.detail | .health == "degraded" and .journal.failures > 0' >"$T/jq" ||
	fail "status: $(json .output.detail)"
expect_rc 75 timeout 30 "$bin/sluice" umount "$M" --deadline 1s
eventually 30 umount "$T/fragile"
mount -o loop "$T/image" "$T/fragile"
store_back
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/fragile/state"
cmp "$T/data" "$S/before"
[ "$(cat "$S/before-small")" = small ] || fail "an acknowledged small file is not whole"
[ ! -s "$S/refused" ] || fail "a refused file is in the store"
mount_on fragile
cp "$T/data" "$M/after"
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"
cmp "$T/data" "$S/after"
