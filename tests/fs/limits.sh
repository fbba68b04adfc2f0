#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Many files at once, few descriptors, programs that end without closing: all that was
# written arrives. Nor does the log grow without end.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data

# A thousand small files by eight writers, with hardly a descriptor to spare.
(
	ulimit -n 64
	mount_sluice oss://data "$T/mnt" output
)
defer unmount_hard "$T/mnt"
write_some() {
	local i
	for i in $(seq 125); do echo "$1 $i" >"$T/mnt/w$1-$i"; done
}
writers=()
for w in $(seq 8); do
	write_some "$w" &
	writers+=($!)
done
for pid in "${writers[@]}"; do wait "$pid" || fail "a writer was refused"; done
expect_rc 0 timeout 100 "$bin/sluice" flush "$T/mnt" --json
jq -e '.pending == [] and (.files | length) == 1000' "$T/out" >/dev/null || fail "receipt: $(head -c 300 "$T/out")"
for w in $(seq 8); do
	for i in $(seq 125); do [ "$(<"$S/w$w-$i")" = "$w $i" ] || fail "w$w-$i is wrong"; done
done

# More files open at once than descriptors: what cannot be opened says so, the rest arrives.
python3 - "$T/mnt" <<'EOF'
import errno, os, sys

files, refused = [], 0
for i in range(60):
    try:
        f = open(f"{sys.argv[1]}/open{i}", "wb", buffering=0)
    except OSError as e:
        if e.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        refused += 1
        continue
    f.write(b"%d" % i)
    files.append(f)
for f in files:
    f.close()
print(f"{len(files)} taken, {refused} refused")
EOF
expect_rc 0 timeout 60 "$bin/sluice" flush "$T/mnt"
for f in "$T/mnt"/open*; do
	n=${f##*/open}
	# An open that was refused may have left its name.
	[ ! -s "$f" ] || [ "$(<"$S/open$n")" = "$n" ] || fail "open$n is wrong"
done

# A mount with little address space does without what would outlive its daemon. (A sanitizer
# takes more for itself.)
if [[ ${BUILD:-} != *san-* ]]; then
	(
		ulimit -v 6000000
		mount_sluice oss://data "$T/narrow" output --state-dir "$T/narrow-state"
	)
	defer unmount_hard "$T/narrow"
	"$bin/sluice" status "$T/narrow" --json >"$T/json"
	jq -e '.restart | .used == false and .why == "no address space for it"' "$T/json" || fail "status: $(jq -c .restart "$T/json")"
	echo narrow >"$T/narrow/narrow"
	expect_rc 0 timeout 60 "$bin/sluice" umount "$T/narrow"
	[ "$(<"$S/narrow")" = narrow ] || fail 'what was written with little address space'
fi

# The log: one that has grown large is set aside, by all who write to it.
log=$T/state/log
truncate -s 65M "$log"
# old MIB: after another line that much is in the old one.
old() {
	echo more >>"$T/mnt/logged"
	"$bin/sluice" flush "$T/mnt" 2>/dev/null
	[ "$(stat -c %s "$log.1")" -ge $(($1 << 20)) ]
}
eventually 30 old 65
[ "$(stat -c %s "$log")" -lt 1000000 ] || fail "the log is $(stat -c %s "$log") bytes"
kill_daemon
grep -q 'daemon died' "$log" || fail "the holder writes elsewhere: $(cat "$log")"
truncate -s 66M "$log"
eventually 30 old 66

# A program that is killed, and one that leaves without closing.
python3 - "$T/mnt" <<'EOF'
import os, signal, sys

for name, end in (("killed", lambda: os.kill(os.getpid(), signal.SIGKILL)), ("left", lambda: os._exit(0))):
    if os.fork() == 0:
        f = os.open(f"{sys.argv[1]}/{name}", os.O_WRONLY | os.O_CREAT)
        os.write(f, b"text" * 100000)
        end()
    os.wait()
EOF
arrived() { [ "$(stat -c %s "$S/killed" "$S/left" 2>/dev/null)" = "400000
400000" ]; }
eventually 20 arrived
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
