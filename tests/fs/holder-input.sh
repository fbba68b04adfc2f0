#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A mount of /input outlives its daemon: killed while a job looks up, lists, maps and reads,
# from the store and from the cache, again and again, and the job sees nothing of it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
seed=${SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
S=$T/oss/data
for dir in "" one one/two three; do
	mkdir -p "$S/$dir"
	for i in $(seq 40); do
		head -c $((RANDOM * 5)) /dev/urandom >"$S/$dir/f$i"
	done
	head -c 12000000 /dev/urandom >"$S/$dir/large"
done
: >"$S/empty"
start_ossd --bucket data --region cn-hangzhou
start() {
	rm -rf "$T/cache"
	mount_sluice oss://data "$T/mnt" input --io-uring off "$@"
	holder=$(json .restart.holder)
}

start
if [ "$(json .restart.used)" != true ]; then
	skip "this kernel does not send requests again"
fi
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"

# under_work KILLS OPTION…: a job reads, the daemon is killed so often.
under_work() {
	local kills=$1
	shift
	rm -f "$T/stop"
	SLUICE_RESTART_MAX=200 start "$@"
	"$here/holder_read.py" "$T/mnt" "$S" "$seed" 3 "$T/stop" >"$T/work.txt" 2>&1 &
	kill_under $! "$kills"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
	eventually 30 gone "$holder"
	cat "$T/work.txt"
}
under_work 6
under_work 4 --immutable
under_work 4 --passthrough off
under_work 4 --profile small

# The kernel goes on without opens; the next daemon learns of it by the first read.
start --immutable
cat "$T"/mnt/f* "$T"/mnt/one/f* >/dev/null
json .fuse.without_open >/dev/null || fail "opens are sent: $(json .fuse)"
kill_daemon
cat "$T"/mnt/three/f* >/dev/null
json '.fuse.without_open and .fuse.requests.open == 0' >/dev/null ||
	fail "the next daemon does not know: $(json .fuse)"
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"

# In the middle of a read that waits for the store.
start --passthrough off
faults '[{"op":"GetObject","fault":"latency","ms":2000}]'
cat "$T/mnt/one/large" >"$T/large" &
reader=$!
sleep 0.3
kill_daemon
faults '[]'
wait "$reader" || fail "the reader saw it"
cmp "$T/large" "$S/one/large"

# A file that others replace while nobody serves: stale, never the other version's bytes.
cp "$S/three/large" "$T/old"
exec 7<"$T/mnt/three/large"
dd bs=1000 count=1 status=none <&7 >/dev/null
pid=$(json .pid)
hang "$holder"
kill -9 "$pid"
head -c 12000000 /dev/urandom >"$T/other"
(umask 022 && cp "$T/other" "$S/three/large.new" && mv "$S/three/large.new" "$S/three/large")
kill -CONT "$holder"
eventually 30 serves_anew "$pid"
cat <&7 >"$T/mixed" 2>/dev/null || true
cmp -i 1000:0 -n "$(stat -c %s "$T/mixed")" "$T/old" "$T/mixed" ||
	fail "another version's bytes came through an open file"
exec 7<&-
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
