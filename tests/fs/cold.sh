#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What has to be fetched: how often, how much, how soon it is shown, and what happens when
# the store sends nothing at all.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

data=$T/oss/data
mkdir -p "$data/small"
for i in $(seq 60); do head -c $((i * 1000)) /dev/urandom >"$data/small/f$i"; done
for name in stalled shared kill-off kill-on term-off term-on; do
	head -c 3000000 /dev/urandom >"$data/$name"
done
head -c 128M /dev/urandom >"$data/random"
mkdir "$data/shards"
for i in 1 2 3 4 5 6; do head -c 16M "$data/random" >"$data/shards/$i"; done
start_ossd
requests() { oss_stat ".requests.$1 // 0"; }
input_status() { "$bin/sluice" status "$T/in" --json | jq -er "$1"; }

mount_sluice oss://data "$T/in" input
ls -l "$T/in" "$T/in/small" >"$T/listing"

# A listing tells enough: each small file costs one request, and none is asked for first.
before=$(requests GetObject) heads=$(requests HeadObject)
diff -r "$data/small" "$T/in/small" || fail "small files differ"
[ "$(requests GetObject)" -eq $((before + 60)) ] || fail "not one request for each small file"
[ "$(requests HeadObject)" -eq "$heads" ] || fail "asked for what the listing said"

# Of a large file whose start is read comes little more, as nobody knows that it is read on.
ls "$T/in/shards" >/dev/null
sent() { oss_stat .bytes_out; }
settled() { [ "$(oss_stat .in_flight)" -eq 0 ]; }
start_of() { dd if="$T/in/shards/$1" of="$T/start" bs="${2:-64K}" count=1 status=none; }
before=$(sent)
start_of 1
eventually 10 settled
[ $(($(sent) - before)) -le $((2 << 20)) ] || fail "the start of a file fetched $(($(sent) - before)) bytes"
# What comes after a file that was read on is expected to be read on, too, ...
cmp "$data/shards/2" "$T/in/shards/2" || fail "wrong bytes"
before=$(sent)
start_of 3
enough() { [ $(($(sent) - before)) -ge $((15 << 20)) ]; }
eventually 10 enough
# ... and soon not any more when it was not.
start_of 4
eventually 10 settled
before=$(sent)
start_of 5
start_of 6
eventually 10 settled
[ $(($(sent) - before)) -le $((8 << 20)) ] || fail "starts of files fetched $(($(sent) - before)) bytes"

# The first bytes are there while the rest never comes.
faults '[{"op":"GetObject","key":"stalled","fault":"stall","after":200000}]'
timeout 20 dd if="$T/in/stalled" of="$T/first" bs=64K count=2 status=none ||
	fail "the first bytes wait for the last ones"
cmp -n 131072 "$data/stalled" "$T/first" || fail "the first bytes are wrong"

# Many readers of one place cause one request.
faults '[{"op":"GetObject","key":"shared","fault":"latency","ms":500}]'
before=$(requests GetObject)
for i in $(seq 16); do
	dd if="$T/in/shared" of="$T/shared.$i" bs=64K skip=20 count=1 status=none &
	readers[i]=$!
done
wait "${readers[@]}"
for i in $(seq 16); do
	cmp -n 65536 "$T/shared.$i" <(tail -c +1310721 "$data/shared") || fail "reader $i"
done
[ "$(requests GetObject)" -eq $((before + 1)) ] || fail "the readers did not share a request"
faults '[]'

# Random reads fetch what is read, until they show a pattern.
before=$(oss_stat .bytes_out)
python3 - "$T/in/random" "$data/random" <<'END'
import os, random, sys, threading
want = open(sys.argv[2], "rb").read()
seed = random.randrange(1 << 32)
bad = []
def reader(n):
    rng = random.Random(seed + n)
    fd = os.open(sys.argv[1], os.O_RDONLY)
    for _ in range(32):
        at = rng.randrange(len(want) >> 16) << 16
        if os.pread(fd, 65536, at) != want[at:at + 65536]:
            bad.append(at)
    os.close(fd)
threads = [threading.Thread(target=reader, args=(n,)) for n in range(16)]
for t in threads: t.start()
for t in threads: t.join()
print("seed", seed)
sys.exit(f"wrong bytes at {bad[:5]}, seed {seed}" if bad else 0)
END
fetched=$(($(oss_stat .bytes_out) - before))
[ "$fetched" -le $((16 * 32 * 65536 * 12 / 10)) ] || fail "random reads fetched $fetched bytes"

# A reader that waits can be ended at once, whatever the transport and the signal.
"$bin/sluice" umount "$T/in"
waits() {
	[ "$(requests GetObject)" -gt "$asked" ] && [ "$(oss_stat .in_flight)" -gt 0 ] &&
		[ "$(input_status .fuse.deferred)" -gt "$deferred" ]
}
for uring in off on; do
	mount_sluice oss://data "$T/in" input --cache-dir "$T/cache-$uring" --io-uring "$uring"
	ls "$T/in" >/dev/null
	faults '[{"op":"GetObject","fault":"stall"}]'
	for signal in TERM KILL; do
		asked=$(requests GetObject) deferred=$(input_status .fuse.deferred)
		cat "$T/in/${signal,,}-$uring" >"$T/nothing" &
		reader=$!
		eventually 10 waits
		[ "$(input_status '.fuse.interrupts' || true)" = true ] || continue
		kill -"$signal" "$reader"
		eventually 5 dead "$reader"
		wait "$reader" || true
	done
	faults '[]'
	"$bin/sluice" umount "$T/in"
done
