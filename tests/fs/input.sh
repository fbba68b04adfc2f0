#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# /input over a directory: what is in the source is there, read-only, the same bytes, also
# for many readers at once, and the cache serves it again after a new mount.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src/d/deep" "$T/src/many"
head -c 5000000 /dev/urandom >"$T/src/d/big"
echo hello >"$T/src/small"
: >"$T/src/empty"
ln -s small "$T/src/link"
printf 'odd' >"$T/src/d/ name with	tab and ümlaut"
for i in $(seq 300); do echo "$i" >"$T/src/many/f$i"; done
jq_status() { "$bin/sluice" status "$T/in" --json | jq -er "$1"; }
same_tree() { diff -r --no-dereference "$T/src" "$T/in" || fail "the trees differ"; }

mount_sluice "file://$T/src" "$T/in" input
same_tree
[ "$(ls "$T/in/many" | wc -l)" -eq 300 ] || fail "a listing is not complete"
[ "$(ls -a "$T/in" | sed -n 1,2p | paste -sd' ')" = '. ..' ] || fail "no dots"
[ "$(readlink "$T/in/link")" = small ] || fail "link"
[ "$(stat -c %s "$T/in/d/big")" -eq 5000000 ] || fail "size"
expect_rc 1 cat "$T/in/nothing"
expect_rc 1 cat "$T/in/nothing" # the second time from the kernel's memory

# Ranges in any order, shared mappings, many readers.
python3 - "$T/src/d/big" "$T/in/d/big" <<'END'
import mmap, os, random, sys, threading
want = open(sys.argv[1], "rb").read()
bad = []
def read_ranges(seed):
    rng = random.Random(seed)
    fd = os.open(sys.argv[2], os.O_RDONLY)
    for _ in range(200):
        at, n = rng.randrange(len(want) + 10), rng.randrange(1, 70000)
        if os.pread(fd, n, at) != want[at:at + n]:
            bad.append((seed, at, n))
    os.close(fd)
threads = [threading.Thread(target=read_ranges, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
with open(sys.argv[2], "rb") as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    if m[:] != want: bad.append("mmap")
sys.exit(f"wrong bytes: {bad[:5]}" if bad else 0)
END

# Nothing can be changed.
for change in "touch $T/in/new" "rm $T/in/small" "mkdir $T/in/x" "truncate -s 0 $T/in/small" \
	"mv $T/in/small $T/in/other" "chmod 600 $T/in/small"; do
	expect_rc 1 $change
	grep -q 'Read-only' "$T/err" || fail "$change: $(cat "$T/err")"
done
options=$(awk -v d="$T/in" '$5 == d {print $6}' /proc/self/mountinfo)
for option in ro nosuid nodev; do
	[[ ,$options, == *,$option,* ]] || fail "not mounted $option: $options"
done

# Status says what is true.
[ "$(jq_status .role)" = input ] && [ "$(jq_status .state)" = serving ] || fail "status"
[ "$(jq_status .source)" = "file://$T/src" ] || fail "status: source"
[ "$(jq_status .input.bytes_fetched)" -ge 5000000 ] || fail "status: fetched"
jq_status '.fuse | .passthrough, .io_uring | .used or (.why | length > 0)' >/dev/null ||
	fail "a path that is not used has no reason"
grep -q "^$T/in  input of file://$T/src: serving" < <("$bin/sluice" status) || fail "text status"
jq_status '(.fuse.passthrough.used | not) or .fuse.opens.direct > 0' >/dev/null ||
	fail "a large file that is not whole yet is not read past the page cache"
kept() { jq_status '.cache.size_used > 5000000' >/dev/null; }
eventually 20 kept

# A new mount finds the bytes on disk.
"$bin/sluice" umount "$T/in" || fail "umount"
mountpoint -q "$T/in" && fail "still mounted"
[ -z "$(ls "$T/run")" ] || fail "sockets left"
mount_sluice "file://$T/src" "$T/in" input --immutable
same_tree
same_tree
fetched=$(jq_status .input.bytes_fetched)
[ "$fetched" -lt 1000000 ] || fail "fetched $fetched bytes again"

# Room that others are to find free is not taken.
"$bin/sluice" umount "$T/in"
mount_sluice "file://$T/src" "$T/in" input --cache-dir "$T/cache3" --cache-free 1P
same_tree
same_tree
used=$(jq_status .cache.size_used)
[ "$used" -lt 100000 ] || fail "took $used bytes of what is to be left free"
[ "$(jq_status .cache.bypassed)" -gt 0 ] || fail "nothing went past the disk"

# With the kernel's help switched off the same bytes come.
"$bin/sluice" umount "$T/in"
mount_sluice "file://$T/src" "$T/in" input --passthrough off --io-uring off
same_tree
[ "$(jq_status .fuse.passthrough.why)" = 'switched off' ] || fail "passthrough is on"
# All of them from the cache, and none where nothing is cached.
jq_status '.cache.hit_ratio == 1' >/dev/null || fail "warm: $(jq_status .cache)"
grep -q ' 100% from the cache' < <("$bin/sluice" status) || fail "warm: $("$bin/sluice" status)"
"$bin/sluice" umount "$T/in"
mount_sluice "file://$T/src" "$T/in" input --cache-dir "$T/cache-cold" --passthrough off
cmp "$T/src/small" "$T/in/small" || fail "wrong bytes"
jq_status '.cache | .bytes_read > 0 and .hit_ratio == 0' >/dev/null || fail "cold: $(jq_status .cache)"
grep -q ' 0% from the cache' < <("$bin/sluice" status) || fail "cold: $("$bin/sluice" status)"

# Over io_uring, where kernel and library have it: the switch is off after boot.
switch=/sys/module/fuse/parameters/enable_uring
if [ -w "$switch" ]; then
	"$bin/sluice" umount "$T/in"
	before=$(cat "$switch")
	defer sh -c "echo $before >$switch"
	mount_sluice "file://$T/src" "$T/in" input --cache-dir "$T/cache2" --io-uring on
	same_tree
	jq_status '.fuse.io_uring | .used or (.why | test("libfuse"))' >/dev/null ||
		fail "io_uring is not used: $(jq_status .fuse.io_uring.why)"
fi
