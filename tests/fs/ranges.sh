#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An object in the bucket is changed and appended to without being downloaded or sent again,
# through the mount; what was acknowledged survives a kill -9.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data
store=(--endpoint "$OSS_ENDPOINT" --region cn-hangzhou)
ctl() { timeout 60 "$bin/ossctl" "$@" "${store[@]}"; }
flush() { timeout 60 "$bin/sluice" flush "$T/mnt" >"$T/out" || fail "flush: $(cat "$T/out")"; }
sent() { oss_stat .bytes_in; }
fetched() { oss_stat .bytes_out; }
copies() { oss_stat '.requests.UploadPartCopy // 0'; }
stored() {
	ctl get "oss://data/$2" "$T/got" >/dev/null
	cmp "$1" "$T/got" || fail "$2 in the bucket is not what was written"
}
MiB=$((1 << 20))

head -c $((64 * MiB)) /dev/urandom >"$T/want"
ctl put "$T/want" oss://data/big
ctl put "$T/want" oss://data/lines
mount_sluice oss://data "$T/mnt" output

# A few bytes in the middle, at the start, and behind the end.
change() {
	printf '%s' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
before=$(sent) down=$(fetched) copied=$(copies)
for place in 33000000 5 $((64 * MiB + 100)); do
	change "$T/want" "$place" 'here something changed'
	change "$T/mnt/big" "$place" 'here something changed'
done
cmp "$T/want" "$T/mnt/big" || fail 'read back'
down=$(($(fetched) - 64 * MiB - down))
[ $down -lt $((4 * MiB)) ] || fail "$down bytes were downloaded to change 66"
flush
[ $(($(sent) - before)) -lt $((2 * MiB)) ] || fail "$(($(sent) - before)) bytes were sent for 66"
[ "$(copies)" -gt "$copied" ] || fail 'nothing was copied in the store'
stored "$T/want" big

# Cut, and grown again: zeros, not what was there.
truncate -s 40000000 "$T/want" "$T/mnt/big"
truncate -s 50000000 "$T/want" "$T/mnt/big"
flush
stored "$T/want" big

# A log that stays open: what it costs is its tail.
ctl get oss://data/lines "$T/lines" >/dev/null
exec 3>>"$T/mnt/lines"
before=$(sent)
for i in 1 2 3 4; do
	head -c $MiB /dev/urandom >"$T/line"
	cat "$T/line" >&3
	cat "$T/line" >>"$T/lines"
	flush
done
cost=$(($(sent) - before))
[ $cost -le $((6 * MiB)) ] || fail "$cost bytes were sent for 4 MiB appended"
stored "$T/lines" lines
exec 3>&-

# A log made here.
exec 3>"$T/mnt/new"
head -c $((32 * MiB)) /dev/urandom | tee "$T/new" >&3
flush
before=$(sent)
for i in 1 2 3 4; do
	head -c $MiB /dev/urandom >"$T/line"
	cat "$T/line" >&3
	cat "$T/line" >>"$T/new"
	flush
done
cost=$(($(sent) - before))
[ $cost -le $((6 * MiB)) ] || fail "$cost bytes were sent for 4 MiB appended to a new file"
exec 3>&-
flush
stored "$T/new" new

# Acknowledged and not yet sent, then killed: recovered with the map of what was written.
ctl get oss://data/lines "$T/lines" >/dev/null
timeout 60 "$bin/sluice" umount "$T/mnt"
faults '[{"op":"UploadPartCopy","fault":"status","status":503,"code":"ServiceUnavailable"}]'
mount_sluice oss://data "$T/mnt" output --restart off
pid=$("$bin/sluice" status "$T/mnt" --json | jq -er .pid)
change "$T/lines" 20000000 'before the crash'
change "$T/mnt/lines" 20000000 'before the crash'
kill -9 "$pid"
eventually 30 dead "$pid"
umount "$T/mnt"
faults '[]'
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/state"
stored "$T/lines" lines
