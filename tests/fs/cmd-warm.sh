#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sluice warm: trees, lists and recorded orders come into the cache ahead of use, each object
# once; an ended job is taken up again; what does not fit, is gone or fails is said.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

b=$T/oss/bucket
mkdir -p "$b/tree/deep/er" "$b/flat" "$b/big"
for i in $(seq -w 60); do
	head -c $((2000 + 10#$i * 50)) /dev/urandom >"$b/flat/$i"
	head -c 9000 /dev/urandom >"$b/tree/deep/er/$i"
done
odd=$'odd \\ name\twith\nnewline'
echo odd >"$b/flat/$odd"
head -c 3000000 /dev/urandom >"$b/big/one"
: >"$b/flat/empty"
mkdir -p "$T/oss/second"
for i in $(seq -w 40); do head -c 100000 /dev/urandom >"$T/oss/second/$i"; done
start_ossd
gets() { oss_stat '.requests.GetObject // 0'; }
warm() { "$bin/sluice" warm "$@"; }
job() { "$bin/sluice" status "$T/in" --json | jq -er ".warm[-1]$1"; }
fresh_mount() {
	"$bin/sluice" umount "$T/in" 2>/dev/null || true
	mount_sluice oss://bucket "$T/in" input "$@"
}
same_without_gets() {
	local before
	before=$(gets)
	diff -r "$b" "$T/in" || fail "wrong bytes"
	[ "$(gets)" -eq "$before" ] || fail "$(($(gets) - before)) files came from the store"
}

# One tree, then everything: what is there is not fetched again, and reading costs nothing.
fresh_mount
before=$(gets)
expect_rc 0 warm "$T/in/tree" --wait --json
[ "$(jq -r '"\(.state) \(.files_fetched) \(.files_cached)"' "$T/out")" = 'done 60 0' ] ||
	fail "a tree: $(cat "$T/out")"
[ $(($(gets) - before)) -eq 60 ] || fail "$(($(gets) - before)) requests for 60 files"
expect_rc 0 warm --all --wait --json
[ "$(jq -r '"\(.files_fetched) \(.files_cached) \(.files_total)"' "$T/out")" = '62 61 123' ] ||
	fail "everything: $(cat "$T/out")"
same_without_gets
# After a restart, too.
fresh_mount
expect_rc 0 warm --all "$T/in" --wait --json
[ "$(jq .files_fetched "$T/out")" -eq 0 ] || fail "fetched again: $(cat "$T/out")"

# Without --wait the daemon does it, and says so; relative names are below the mount point.
fresh_mount --cache-dir "$T/cache2"
expect_rc 0 warm flat "tree/deep/../deep"
grep -q 'job 1' "$T/err" || fail "nothing said: $(cat "$T/err")"
is_done() { [ "$(job .state)" = 'done' ]; }
eventually 30 is_done
[ "$(job .files_fetched)" -eq 121 ] || fail "in the background: $(job '')"
grep -q 'warm *job 1 done: 122' < <("$bin/sluice" status "$T/in") || fail "status is silent"
(cd "$T/in/big" && expect_rc 0 warm one --wait)
same_without_gets

# Names that are wrong, and lists with wrong lines: each is said, the rest is done.
expect_rc 64 warm
expect_rc 64 warm --all --list x
expect_rc 64 warm /etc/passwd
expect_rc 64 warm ../../../x
expect_rc 64 warm --list "$T/nothing"
expect_rc 64 warm --from "$T/keys"
expect_rc 78 warm x --mount "$T"
expect_rc 75 warm flat/none --wait
grep -q 'flat/none: no such file' "$T/err" || fail "$(cat "$T/err")"
fresh_mount --cache-dir "$T/cache3"
{
	printf '%s\n' "$T/in/flat/01" './flat/02' '' 'flat//03' '/etc/passwd' '../x' flat/04
	head -c 20000 /dev/zero | tr '\0' x
	printf '\n%s' flat/05
} >"$T/list"
before=$(gets)
expect_rc 64 warm --list "$T/list" --wait --json
[ "$(jq -r '"\(.files_fetched) \(.lines_bad)"' "$T/out")" = '4 4' ] || fail "$(cat "$T/out")"
grep -q 'line 6: dot component' "$T/err" && grep -q 'line 5: not below' "$T/err" ||
	fail "lines are not named: $(cat "$T/err")"
[ $(($(gets) - before)) -eq 4 ] || fail "$(($(gets) - before)) requests"
expect_rc 0 sh -c "ls $T/in/flat/1* | '$bin/sluice' warm --list - --wait"

# Cut short by kill -9 and done again: only what was not there is fetched.
fresh_mount --cache-dir "$T/cache4"
faults '[{"op":"GetObject","fault":"latency","ms":1000}]'
expect_rc 0 warm --all
some_there() { [ "$(job .files_fetched)" -ge 40 ]; }
eventually 30 some_there
sleep 1.2 # what is fetched is entered into the index a few times a second
kill -9 "$("$bin/sluice" status "$T/in" --json | jq .pid)"
faults '[]'
unmount_hard "$T/in" || true
mount_sluice oss://bucket "$T/in" input --cache-dir "$T/cache4"
expect_rc 0 warm --all --wait --json
[ "$(jq .files_cached "$T/out")" -ge 40 ] || fail "nothing was kept: $(cat "$T/out")"
same_without_gets

# Cancelled.
fresh_mount --cache-dir "$T/cache5"
faults '[{"op":"GetObject","fault":"latency","ms":2000}]'
expect_rc 0 warm --all
expect_rc 0 warm --cancel
is_cancelled() { [ "$(job .state)" = cancelled ]; }
eventually 30 is_cancelled
expect_rc 78 warm --cancel
faults '[]'

# On a terminal it shows how far it is.
fresh_mount --cache-dir "$T/cache13"
faults '[{"op":"GetObject","fault":"latency","ms":300}]'
expect_rc 0 timeout 60 script -qec "stty cols 100; '$bin/sluice' warm --all --wait '$T/in'" "$T/terminal"
faults '[]'
tr '\r' '\n' <"$T/terminal" | grep -E '[1-9][0-9.]* [KM]iB of 3\.6 MiB, [1-9][0-9]* of 123 files' >/dev/null ||
	fail "no progress: $(cat -v "$T/terminal")"

# A cache that is too small: nothing that was fetched is pushed out, the rest is counted.
fresh_mount --cache-dir "$T/cache6" --cache-size 2M
expect_rc 75 warm --all --wait --json
grep -q 'larger --cache-size' "$T/err" || fail "$(cat "$T/err")"
fitting=$(jq .files_done "$T/out")
[ "$fitting" -ge 100 ] && [ "$(jq .files_not_fitting "$T/out")" -eq $((123 - fitting)) ] ||
	fail "too small: $(cat "$T/out")"
[ "$("$bin/sluice" status "$T/in" --json | jq .cache.evicted)" -eq 0 ] || fail "evicted"

# An object that is replaced between its listing and its fetch comes as it is now.
fresh_mount --cache-dir "$T/cache7"
ls -l "$T/in/flat" >/dev/null
echo changed >"$T/new"
curl -fsS "$OSS_ADMIN/stats" >/dev/null
cp "$T/new" "$b/flat/07"
rm "$b/flat/08"
expect_rc 75 warm --list <(printf 'flat/07\nflat/08\nflat/09\n') --wait --json
[ "$(jq -r '"\(.files_fetched) \(.files_missing)"' "$T/out")" = '2 1' ] || fail "$(cat "$T/out")"
cmp "$T/in/flat/07" "$T/new" || fail "the old version was kept"

# With a store that fails now and then everything comes all the same.
fresh_mount --cache-dir "$T/cache8"
faults '[{"op":"GetObject","skip":5,"count":8,"fault":"status","status":503},
	{"op":"GetObject","skip":20,"count":5,"fault":"flip","after":100},
	{"op":"GetObject","skip":30,"count":5,"fault":"truncate","after":500}]'
expect_rc 0 warm --all --wait
faults '[]'
same_without_gets

# A recorded order: written while reading, fetched in that order by the next mount.
fresh_mount --cache-dir "$T/cache9" --record "$T/order"
(cd "$T/in" && find flat tree -type f -print0 | shuf -z --random-source="$bin/sluice" >"$T/shuffled" &&
	xargs -0 cat <"$T/shuffled" >/dev/null && xargs -0 cat <"$T/shuffled" >/dev/null)
"$bin/sluice" umount "$T/in"
[ "$(head -n 1 "$T/order")" = 'sluice-order 1' ] || fail "no order: $(head -n 1 "$T/order")"
python3 - "$T/order" "$T/shuffled" <<'END'
import re, sys
want = [n for n in open(sys.argv[2], "rb").read().split(b"\0") if n]
have = [re.sub(rb"\\x(..)", lambda m: bytes([int(m[1], 16)]), line)
        for line in open(sys.argv[1], "rb").read().splitlines()[1:]]
# The kernel may or may not ask for nothing.
want, have = ([n for n in names if n != b"flat/empty"] for names in (want, have))
sys.exit(0 if have == want else f"recorded {len(have)} of {len(want)}: {have[:3]}")
END
printf 'torn/li' >>"$T/order"
fresh_mount --cache-dir "$T/cache10"
expect_rc 0 warm --from "$T/order" --wait --json
[ "$(jq .files_done "$T/out")" -eq $(($(wc -l <"$T/order") - 1)) ] || fail "$(cat "$T/out")"
before=$(gets)
(cd "$T/in" && xargs -0 cat <"$T/shuffled" >/dev/null)
[ "$(gets)" -eq "$before" ] || fail "files of the order came from the store"

# One that does not fit is fetched ahead of its readers.
{
	echo 'sluice-order 1'
	seq -w 40
} >"$T/order2"
"$bin/sluice" umount "$T/in"
mount_sluice oss://second "$T/in" input --cache-dir "$T/cache11" --cache-size 2M
expect_rc 75 warm --from "$T/order2" --wait
grep -q 'as files of it are read' "$T/err" || fail "$(cat "$T/err")"
for i in $(seq -w 40); do
	cmp "$T/in/$i" "$T/oss/second/$i" || fail "wrong bytes"
done
eventually 20 is_done
[ "$(job .files_done)" -eq 40 ] || fail "not all of the order: $(job '')"

# The end of a mount does not wait for a store that has gone, whatever a job is at.
"$bin/sluice" umount "$T/in"
mount_sluice oss://bucket "$T/in" input --cache-dir "$T/cache12"
faults '[{"op":"GetObject","fault":"latency","ms":300}]'
expect_rc 0 warm --all
eventually 20 job '.files_fetched > 0'
kill -9 "$OSSD_PID"
sleep 0.5
timeout 30 "$bin/sluice" umount "$T/in" || fail "the mount does not end"
