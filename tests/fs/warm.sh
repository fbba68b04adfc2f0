#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is local already is served by the kernel: a second pass over an immutable source asks
# the daemon nothing, large files are passed through, and what is replaced meanwhile is
# never mixed with what it was. The same with and without each of the kernel's helps.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src/small" "$T/src/large"
for i in $(seq 200); do head -c $((i * 500)) /dev/urandom >"$T/src/small/$i"; done
for i in 1 2; do head -c 3000000 /dev/urandom >"$T/src/large/$i"; done
status() { "$bin/sluice" status "${2:-$T/in}" --json | jq -er "$1"; }
same() { diff -r "$T/src/$1" "${2:-$T/in}/$1" || fail "$1: the trees differ"; }
down() { "$bin/sluice" umount "${1:-$T/in}" || fail "umount"; }
# silent FILTER COMMAND…: done again it causes none of these requests.
silent() { undisturbed rests "$@"; }
rests() {
	local before after filter=.fuse.requests.$1
	shift
	"$@" >/dev/null
	before=$(status "$filter")
	"$@" >/dev/null
	after=$(status "$filter")
	[ "$before" = "$after" ] || { echo "$filter: $before, then $after: $(status .fuse)"; return 1; }
}
# Few, to be done before the kernel drops some of them again.
few() { (cd "$T/in/small" && cat {1..20}); }

# Once read, small files of a source that never changes are the kernel's alone.
for help in "" "--io-uring off" "--passthrough off" "--io-uring off --passthrough off"; do
	# shellcheck disable=SC2086
	mount_sluice "file://$T/src" "$T/in" input --immutable --profile small $help
	same small
	silent total few
	status '.fuse | .without_open and .without_opendir' >/dev/null || fail "opens are sent"
	same large # not passed through, but right
	down
done

# Unless told, it finds out by itself; a few small files among large ones do not decide.
mount_sluice "file://$T/src" "$T/in" input --immutable
cat "$T/in/small/1" "$T/in/small/2" >/dev/null
same large
status '.fuse.without_open | not' >/dev/null || fail "decided too early"
# What is whole in the cache is passed through from the first open of a new mount on.
passed() {
	status '.fuse | (.passthrough.used | not) or (.opens.passthrough > 0 and .opens.direct == 0)' \
		>/dev/null || fail "$1: $(status .fuse)"
}
passed "after a new mount"
pid=$(status .pid)
kill -9 "$pid"
eventually 30 dead "$pid"
umount -l "$T/in" 2>/dev/null || true
mount_sluice "file://$T/src" "$T/in" input --immutable
same large
passed "after an unclean end"
same small
same small
silent total few
down

# A source that may change takes more to be known as one of small files, and names are still
# looked up in time.
mount_sluice "file://$T/src" "$T/in" input --ttl 1h
same small
same small
status '.fuse.without_open | not' >/dev/null || fail "decided too early"
for _ in 1 2 3 4; do same small; done
status .fuse.without_open >/dev/null || fail "opens are sent: $(status .fuse)"
silent open few
silent read few
same large

down

# Told otherwise, it never does.
mount_sluice "file://$T/src" "$T/in" input --immutable --profile large
same small
same small
status '.fuse.without_open | not' >/dev/null || fail "large: opens are left out"
silent read few

# Another mount with the other profile serves the same cache meanwhile.
mount_sluice "file://$T/src" "$T/in2" input --immutable --profile small
for _ in 1 2; do
	same small "$T/in2" &
	same large "$T/in2" &
	same small &
	same large &
	wait
done
[ "$(status .input.bytes_fetched "$T/in2")" -eq 0 ] || fail "the cache is not shared"
down
down "$T/in2"

# An open file is one version, whatever the kernel has of it; the next open sees the next.
replaced() {
	mount_sluice "file://$T/src" "$T/in" input --ttl 1s "$@"
	python3 - "$T/src/$version_of" "$T/in/$version_of" "$*" <<'END'
import mmap, os, sys, time
source, path, options = sys.argv[1:]
old = open(source, "rb").read()
f = open(path, "rb")
assert f.read() == old
m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
for n in (len(old) + 5000, len(old) // 2, len(old)):
    new = os.urandom(n)
    with open(source + ".new", "wb") as out:
        out.write(new)
    os.utime(source + ".new", (n, n))
    os.rename(source + ".new", source)
    deadline = time.monotonic() + 30
    while True:
        try:
            with open(path, "rb") as g:
                got = g.read()
        except OSError as e:
            assert e.errno == 116, e
            got = None
        assert got in (old, new, None), "two versions in one read"
        if got == new:
            break
        assert time.monotonic() < deadline, "the new version never showed"
        time.sleep(0.1)
    assert os.stat(path).st_size == n
    old = new
if "small" in options:
    sys.exit()  # what the kernel has dropped meanwhile is stale
first = m[:]
os.fstat(f.fileno())
f.seek(0)
assert f.read() == first, "an open file has changed"
END
	down
}
for version_of in small/200 large/1; do
	for help in "" "--passthrough off --io-uring off" "--profile small"; do
		# shellcheck disable=SC2086
		replaced $help
	done
done

# Who learns that a file has been replaced makes the next open see what it is now.
fresh() { cmp "$T/src/small/7" "$T/in/small/7"; }
mount_sluice "file://$T/src" "$T/in" input --ttl 1h --profile small --cache-dir "$T/cache2"
ls -l "$T/in/small" >/dev/null
head -c 5000 /dev/urandom >"$T/new"
mv "$T/new" "$T/src/small/7"
expect_rc 1 cat "$T/in/small/7"
grep -q 'Stale file handle' "$T/err" || fail "a replaced file: $(cat "$T/err")"
eventually 30 fresh
down

# A version that has been replaced leaves the disk, too.
used() { status .cache.size_used; }
shown() { cmp "$T/src/large/1" "$T/in/large/1" 2>/dev/null; }
mount_sluice "file://$T/src" "$T/in" input --ttl 1s --cache-dir "$T/cache3"
head -c 8388608 /dev/urandom >"$T/src/large/1"
eventually 30 shown
kept() { [ "$(used)" -gt 8388608 ] && [ "$(used)" -lt 12582912 ]; }
eventually 30 kept
for _ in 1 2; do
	head -c 8388608 /dev/urandom >"$T/new"
	mv "$T/new" "$T/src/large/1"
	eventually 30 shown
	eventually 30 kept
done
down
