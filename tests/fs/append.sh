#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --append-objects: a log costs what it grew by, also when answers are lost and the daemon is
# killed; what is rewritten becomes a normal object again.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data
store=(--endpoint "$OSS_ENDPOINT" --region cn-hangzhou)
ctl() { timeout 60 "$bin/ossctl" "$@" "${store[@]}"; }
flush() { timeout 60 "$bin/sluice" flush "$T/mnt" >"$T/out" || fail "flush: $(cat "$T/out")"; }
sent() { oss_stat .bytes_in; }
appends() { oss_stat '.requests.AppendObject // 0'; }
copies() { oss_stat '.requests | (.UploadPartCopy // 0) + (.CopyObject // 0)'; }
appendable() { [ "$(ctl stat "oss://data/$1" --json | jq -r .appendable)" = "$2" ] || fail "$1: appendable is not $2"; }
stored() {
	ctl get "oss://data/$2" "$T/got" >/dev/null
	cmp "$1" "$T/got" || fail "$2 in the bucket is not what was written"
}
line() {
	head -c "${1:-100000}" /dev/urandom >"$T/line"
	cat "$T/line" >&3
	cat "$T/line" >>"$T/want"
	# Times that are younger prove nothing: the close would be another version of the same.
	sleep 0.05
}

mount_sluice oss://data "$T/mnt" output --append-objects --publish-interval 0

# What is sent is what was appended, from the first byte on.
exec 3>>"$T/mnt/lines"
before=$(sent)
for i in 1 2 3 4 5; do
	line
	flush
done
stored "$T/want" lines
[ $(($(sent) - before)) = 500000 ] || fail "$(($(sent) - before)) bytes were sent for 500000"
[ "$(appends)" = 5 ] || fail "$(appends) appends"
appendable lines true

# An answer that is lost, and one before which nothing was done.
for fault in commit-then-500 drop reset-upload; do
	faults "[{\"op\":\"AppendObject\",\"fault\":\"$fault\",\"count\":1}]"
	line
	flush
done
faults '[]'
stored "$T/want" lines
appendable lines true

# The daemon dies while nobody answers, and with it what it knew of the append.
faults '[{"op":"AppendObject","fault":"commit-then-500"},{"op":"HeadObject","fault":"drop"},
	{"op":"GetObject","fault":"drop"}]'
line
before=$(appends)
(timeout 60 "$bin/sluice" flush "$T/mnt" --deadline 1 >/dev/null || true)
eventually 30 test "$(appends)" -gt "$before"
kill_daemon
faults '[]'
line
flush
stored "$T/want" lines
appendable lines true
exec 3>&-
flush

# A larger one, opened again by a mount that has nothing of it.
for _ in 1 2 3 4 5 6 7 8; do
	exec 3>>"$T/mnt/lines"
	line 1000000
	flush
	exec 3>&-
done
flush
appendable lines true
timeout 60 "$bin/sluice" umount "$T/mnt"
rm -r "$T/state"
mount_sluice oss://data "$T/mnt" output --append-objects --publish-interval 0 --passthrough off
exec 3>>"$T/mnt/lines"
before=$(sent) down=$(oss_stat .bytes_out)
line
exec 3>&-
flush
[ $(($(sent) - before)) = 100000 ] || fail "$(($(sent) - before)) bytes were sent for 100000"
# Its last page comes home: the page cache writes whole pages.
[ $(($(oss_stat .bytes_out) - down)) -le 8192 ] || fail 'the object was fetched to append to it'
stored "$T/want" lines
appendable lines true

# What is changed otherwise is an object like any other.
printf here | dd of="$T/mnt/lines" bs=1 seek=3000 conv=notrunc status=none
printf here | dd of="$T/want" bs=1 seek=3000 conv=notrunc status=none
flush
stored "$T/want" lines
appendable lines false
echo closed >"$T/mnt/closed"
flush
appendable closed false
