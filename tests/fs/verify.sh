#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A wrong bit in a range of a large object, which the store gives no checksum for: nobody
# gets all of the object without an error, and with --verify whole not a byte of it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

data=$T/oss/data
mkdir -p "$data"
for name in shown unseen open whole-1 whole-2; do head -c 5000000 /dev/urandom >"$data/$name"; done
head -c 20M /dev/urandom >"$data/too-large"
start_ossd
status() { "$bin/sluice" status "$T/in" --json | jq -er ".input.detail.cache.$1"; }
is() { [ "$(status "$1")" -eq "$2" ]; }

for options in "" "--io-uring off --passthrough off" "--immutable --profile large --passthrough off"; do
	# shellcheck disable=SC2086 # several options
	mount_sluice oss://data "$T/in" input --cache-dir "$T/cache$options" $options

	# In the middle nothing is read ahead, so what is wrong is shown. Then all of it is read
	# and the last of it is not to be had; what the kernel kept of it goes, for those who
	# have it open, too.
	faults '[{"op":"GetObject","key":"shown","fault":"flip","count":1}]'
	python3 - "$T/in/shown" "$data/shown" <<'END' || fail "see above ($options)"
import errno, os, sys, time
want = open(sys.argv[2], "rb").read()
def read_all(fd):
    data, step = b"", 100000
    while part := os.pread(fd, step, len(data)):
        data += part
    return data
def fails(what):
    try:
        what()
    except OSError as e:
        return e.errno == errno.EIO or sys.exit(str(e))
    return False
fd, other = (os.open(sys.argv[1], os.O_RDONLY) for _ in range(2))
if os.pread(fd, 4096, 2000000) == want[2000000:2004096]:
    sys.exit("no wrong byte to begin with")
if not fails(lambda: read_all(fd)):
    sys.exit("all of it was read")
until = time.monotonic() + 20
while not (fails(lambda: os.pread(fd, 4096, 2000000)) and fails(lambda: read_all(other))):
    if time.monotonic() > until:
        sys.exit("a file that showed wrong bytes goes on")
    time.sleep(0.05)
again = os.open(sys.argv[1], os.O_RDONLY)
if read_all(again) != want:
    sys.exit("wrong bytes after they were found out")
END
	is crc_mismatches 1 && is wrong_shown 1 || fail "not counted ($options)"
	grep -q "wrong bytes were shown.*key=shown" "$T/state/log" || fail "not in the log"

	# All that has come is dropped when it is wrong, and comes again before the reader, who
	# has seen nothing of it yet, knows.
	faults '[{"op":"GetObject","key":"unseen","fault":"flip","count":1}]'
	dd if="$T/in/unseen" of="$T/unseen" bs=5000000 iflag=fullblock status=none || true
	rc=0
	cmp "$data/unseen" "$T/unseen" || rc=$?
	[ $rc -eq 0 ] || [ "$(status wrong_shown)" -eq 2 ] || fail "wrong bytes ($options)"
	cmp "$data/unseen" "$T/in/unseen"
	faults '[]'
	"$bin/sluice" umount "$T/in"
	rm -f "$T/state/log"
done

# Not a byte before all is known to be right. Twice wrong is repaired.
mount_sluice oss://data "$T/in" input --cache-dir "$T/cache-whole" --cache-size 16M --verify whole
faults '[{"op":"GetObject","fault":"flip","count":2}]'
cmp "$data/whole-1" "$T/in/whole-1" || fail "a wrong byte was shown"
is wrong_shown 0 || fail "counted as shown"
[ "$(status crc_mismatches)" -ge 1 ] || fail "no wrong byte to begin with"
faults '[{"op":"GetObject","fault":"flip"}]'
expect_rc 1 cat "$T/in/whole-2"
[ ! -s "$T/out" ] || fail "a byte was shown that never was right"
# What cannot be kept until then cannot be read so.
faults '[]'
expect_rc 1 cat "$T/in/too-large"
grep -q "cannot be kept.*key=too-large" "$T/state/log" || fail "no reason in the log"
