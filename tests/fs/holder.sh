#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The mount outlives its daemon: killed while a job creates, appends, renames, maps and
# reads, again and again, and the job sees no error; what it closed is in the store. And
# the ways such a mount ends.
#
# KILLS makes it longer, SEED repeats a run.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
seed=${SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
start() {
	mount_sluice oss://data "$T/mnt" output --io-uring off "$@"
	pid=$(json .pid)
	holder=$(json .restart.holder)
}

# The fs must hold: needs a kernel that sends requests again.
start
if [ "$(json .restart.used)" != true ]; then
	skip "this kernel does not send requests again"
fi
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"

# under_work NAME KILLS OPTION…: a job runs, the daemon is killed so often.
under_work() {
	local name=$1 kills=$2
	shift 2
	rm -f "$T/stop"
	SLUICE_RESTART_MAX=200 start "$@"
	mkdir "$T/mnt/$name"
	"$here/holder_work.py" "$T/mnt/$name" "$T/manifest" "$seed" 3 "$T/stop" \
		>"$T/work.txt" 2>&1 &
	kill_under $! "$kills"
	expect_rc 0 timeout 120 "$bin/sluice" umount "$T/mnt"
	eventually 30 gone "$holder"
	"$here/holder_job.py" "$T/manifest" "$S/$name" || fail "the store lacks something"
	cat "$T/work.txt"
}
under_work passed-through "${KILLS:-3}"
under_work written-back "${KILLS:-2}" --passthrough off

# What was told is not taken back, though nothing made it durable.
start --passthrough off
store_away
mkdir "$T/mnt/dir"
echo one >"$T/mnt/dir/old"
mv "$T/mnt/dir" "$T/mnt/moved"
chmod 0750 "$T/mnt/moved"
ln -s moved "$T/mnt/link"
exec 7>>"$T/mnt/moved/log"
echo first >&7
kill_daemon
echo second >&7
[ "$(stat -c %a "$T/mnt/moved")" = 750 ] || fail "chmod was taken back"
[ "$(cat "$T/mnt/link/old")" = one ] || fail "mv or ln was taken back"
[ ! -e "$T/mnt/dir" ] || fail "mv was taken back"
exec 7>&-
[ "$(paste -sd, "$T/mnt/moved/log")" = first,second ] || fail "$(cat "$T/mnt/moved/log")"

# SIGTERM to the holder is the daemon's; killed while it drains, the next one goes on so.
kill -TERM "$holder"
draining() { [ "$(json .state)" = draining ]; }
eventually 30 draining
kill_daemon
eventually 30 draining
store_back
eventually 60 gone "$holder"
[ "$(paste -sd, "$S/moved/log")" = first,second ] || fail "the store has something else"

# Other ways to die: by its own fault, by abort(), for want of memory.
start --passthrough off
exec 7>"$T/mnt/ways"
for signal in SEGV ABRT BUS; do
	pid=$(json .pid)
	kill -"$signal" "$pid"
	echo "$signal" >&7
	eventually 30 serves_anew "$pid"
done
memory=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
[ -d "$memory" ] || memory=/sys/fs/cgroup limit=memory.max
group=$memory/sluice-test-$$
ungroup() { for _ in $(seq 50); do rmdir "$group" && break; sleep 0.1; done 2>/dev/null; }
if mkdir "$group" 2>/dev/null && echo 100K >"$group/$limit"; then
	defer ungroup
	pid=$(json .pid)
	head -c 20000000 /dev/urandom >"$T/large"
	writers=()
	echo "$pid" >"$group/cgroup.procs"
	for i in 1 2 3 4; do
		dd if="$T/large" of="$T/mnt/large$i" bs=1M status=none &
		writers+=($!)
	done
	eventually 60 serves_anew "$pid"
	for writer in "${writers[@]}"; do wait "$writer" || fail "a writer saw it"; done
	grep -q "oom_kill [1-9]" "$group"/memory.{oom_control,events} 2>/dev/null || fail "not killed for memory"
	for i in 1 2 3 4; do cmp "$T/large" "$T/mnt/large$i"; done
else
	echo "no memory cgroup: not killed for memory"
fi
exec 7>&-
[ "$(paste -sd, "$T/mnt/ways")" = SEGV,ABRT,BUS ] || fail "$(cat "$T/mnt/ways")"
expect_rc 0 timeout 120 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"
[ "$(paste -sd, "$S/ways")" = SEGV,ABRT,BUS ] || fail "$(cat "$S/ways")"

# A listing goes on where it was, though names came and went.
start
mkdir "$T/mnt/many"
(cd "$T/mnt/many" && for i in $(seq 1500); do : >"name-of-some-length-$i"; done)
cat >"$T/list.py" <<'END'
import os, sys, time
top, flags = sys.argv[1], sys.argv[2]
stay = {f"name-of-some-length-{i}" for i in range(500, 1501)}
listing = os.scandir(top)
seen = [next(listing).name for _ in range(5)]
open(f"{flags}/begun", "w").close()
while not os.path.exists(f"{flags}/go-on"):
    time.sleep(0.01)
seen += [e.name for e in listing]
for name in stay:
    if seen.count(name) != 1:
        sys.exit(f"{name}: {seen.count(name)} times")
END
python3 "$T/list.py" "$T/mnt/many" "$T" &
list=$!
eventually 30 test -e "$T/begun"
kill_daemon
(cd "$T/mnt/many" && for i in $(seq 499); do rm "name-of-some-length-$i"; : >"another-name-$i"; done)
touch "$T/go-on"
wait "$list" || fail "a listing lacks names, or has some twice"
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"

# The receipt names what every daemon of the mount brought to the store, and nothing else.
start
stored() { [ "$(json .output.files_pending)" = 0 ]; }
for name in one two three; do
	echo $name >"$T/mnt/$name"
	eventually 60 stored
	kill_daemon
done
mv "$T/mnt/two" "$T/mnt/second"
echo 1 >"$T/mnt/one"
rm "$T/mnt/three"
eventually 60 stored
kill_daemon
"$bin/sluice" flush "$T/mnt" --json >"$T/receipt"
jq -e '[.files[].key] | contains(["one", "second"]) and
	(contains(["two"]) or contains(["three"]) | not)' "$T/receipt" >/dev/null ||
	fail "the receipt: $(cat "$T/receipt")"
jq -e '.status == "stored" and .files_stored >= 4 and .files_left_out == 0 and
	([.files[] | select(.key == "one")] | length == 1 and .[0].size == 2)' "$T/receipt" >/dev/null ||
	fail "the receipt: $(cat "$T/receipt")"
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"

# The holder dies: the daemon serves on, alone, and ends as ever.
start
kill -9 "$holder"
echo data >"$T/mnt/alone"
[ "$(json .restart.used)" = false ] || fail "status tells of a holder that is gone"
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$pid"
[ "$(cat "$S/alone")" = data ] || fail "not stored"

# By force: nobody starts another one.
start
hang "$pid"
expect_rc 75 timeout 30 "$bin/sluice" umount --force "$T/mnt"
eventually 30 dead "$holder"
dead "$pid" || fail "its daemon lives"
mountpoint -q "$T/mnt" && fail "still mounted"

# Too often: it gives up, and who waits gets an error.
SLUICE_RESTART_MAX=3 start
store_away
echo kept >"$T/mnt/kept"
exec 7>"$T/mnt/open"
kill_daemon
kill_daemon
pid=$(json .pid)
kill -9 "$pid"
eventually 30 dead "$holder"
mountpoint -q "$T/mnt" && fail "still mounted"
(echo more >&7) 2>/dev/null && [ -e "$T/mnt/open" ] && fail "someone still answers"
exec 7>&-
grep -q 'error: daemon died.*too often' "$T/state/log" || fail "the log does not say so"
[ -z "$(ls "$T/run")" ] || fail "its socket is left"
store_back
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$T/state"
[ "$(cat "$S/kept")" = kept ] || fail "not recovered"

# Every daemon that takes over dies with the requests in its hands: no one waits for ever.
SLUICE_KILL_AT=handover.resent start --passthrough off
mkdir "$T/mnt/dir" "$T/mnt/dir/sub"
waiting=()
for i in 1 2 3; do
	(while mkdir "$T/mnt/dir/$i" && rmdir "$T/mnt/dir/$i"; do :; done) 2>/dev/null &
	waiting+=($!)
done
sleep 0.3
kill -9 "$pid"
eventually 30 dead "$holder"
mountpoint -q "$T/mnt" && fail "still mounted"
for waiter in "${waiting[@]}"; do eventually 30 dead "$waiter"; done
grep -q 'error: daemon died.*too often' "$T/state/log" || fail "the log does not say so"

# Over io_uring there is no other daemon; --restart on does without.
start --restart on --io-uring auto
[ "$(json .fuse.io_uring.used)" = false ] || fail "--restart on uses io_uring"
kill_daemon
ls "$T/mnt" >/dev/null
expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
eventually 30 gone "$holder"
if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ]; then
	start --io-uring on
	ls "$T/mnt" >/dev/null
	if [ "$(json .fuse.io_uring.used)" = true ]; then
		[ "$(json .restart.used)" = false ] || fail "it says that it can take over"
		exec 7>"$T/mnt/over-ring"
		kill -9 "$pid"
		eventually 30 dead "$holder"
		mountpoint -q "$T/mnt" && fail "still mounted"
		(echo more >&7 && [ -e "$T/mnt/over-ring" ]) 2>/dev/null && fail "someone answers"
		exec 7>&-
	else
		expect_rc 0 timeout 60 "$bin/sluice" umount "$T/mnt"
	fi
fi

# Switched off.
mount_sluice oss://data "$T/mnt" output --restart off
pid=$(json .pid)
[ "$(json .restart.used)" = false ] || fail "--restart off has a holder"
kill -9 "$pid"
eventually 30 dead "$pid"
[ "$("$bin/sluice" status "$T/mnt" --json | jq -r .state)" = dead ] || fail "not dead"
