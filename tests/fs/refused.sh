#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The store refuses uploads for good: it is said which files wait and why, a program that waits
# for the store is told, and all arrives when the store takes it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
M=$T/mnt
head -c 3000000 /dev/urandom >"$T/data"
refuse() {
	faults '[{"op":"PutObject","fault":"status","status":403,"code":"AccessDenied"},
		{"op":"InitiateMultipartUpload","fault":"status","status":403,"code":"AccessDenied"}]'
}

# Local durability: what is on the disk is acknowledged, whatever the store says.
mount_sluice oss://data "$M" output
refuse
cp "$T/data" "$M/large"
echo small >"$M/small"
expect_rc 75 timeout 60 "$bin/sluice" flush "$M" --deadline 3s --json
jq -e '.status == "pending" and .files_pending == 2 and
	([.pending[] | select(.error | test("AccessDenied")) | .path] | sort) == ["large", "small"]' \
	"$T/out" >"$T/jq" || fail "receipt: $(cat "$T/out")"
grep -q "small: .*AccessDenied" "$T/err" || fail "flush: $(cat "$T/err")"
json '.output.last_failure | test("AccessDenied")' >"$T/jq" || fail "status: $(json .output)"
[ -z "$(ls "$S")" ] || fail "it was not refused, so this tests nothing"
store_back
expect_rc 0 timeout 60 "$bin/sluice" flush "$M"
cmp "$T/data" "$S/large"
[ "$(cat "$S/small")" = small ] || fail "small is not whole"
expect_rc 0 timeout 60 "$bin/sluice" umount "$M"

# Remote durability: fsync() and close() say so, and in time.
mount_sluice oss://data "$M" output --durability remote
refuse
python3 - "$M" >"$T/told" <<'END' &
import errno, os, sys
def told(call, *args):
    try:
        call(*args)
        return "good"
    except OSError as e:
        return errno.errorcode[e.errno]
for name in "closed", "synced":
    fd = os.open(f"{sys.argv[1]}/{name}", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"remote")
    if name == "synced":
        print(told(os.fsync, fd))
    print(told(os.close, fd))
END
eventually 60 dead $!
[ "$(xargs <"$T/told")" = "EACCES EACCES EACCES" ] ||
	fail "close, fsync, close: $(cat "$T/told")"
expect_rc 75 timeout 60 "$bin/sluice" umount "$M" --deadline 1s
store_back
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/state"
for f in closed synced; do [ "$(cat "$S/$f")" = remote ] || fail "$f is not whole"; done
