#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Large objects that are open and changed in place without having been fetched: the daemon
# is killed, and what was written and not yet acknowledged is there, between the bytes that
# are only in the store.
#
# KILLS makes it longer, SEED repeats a run.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
seed=${SEED:-$RANDOM}
quick && steps=100 kills=${KILLS:-2} || steps=300 kills=${KILLS:-4}
echo "seed $seed"
RANDOM=$seed
start_ossd --bucket data --region cn-hangzhou
S=$T/oss/data
MiB=$((1 << 20))
store=(--endpoint "$OSS_ENDPOINT" --region cn-hangzhou)
put() { timeout 60 "$bin/ossctl" put "$1" "oss://data/$2" "${store[@]}" >/dev/null; }
# start FILES OPTION…: a store with so many objects, mounted.
start() {
	local i
	rm -rf "$T/originals" "$T/stop"
	mkdir "$T/originals"
	for ((i = 0; i < $1; i++)); do
		head -c $((12 * MiB + RANDOM)) /dev/urandom >"$T/originals/f$i"
		put "$T/originals/f$i" "f$i"
	done
	shift
	mount_sluice oss://data "$T/mnt" output --io-uring off "$@"
	holder=$(json .restart.holder)
}
end() {
	expect_rc 0 timeout 120 "$bin/sluice" umount "$T/mnt"
	eventually 30 gone "$holder"
}
work() {
	"$here/holder_sparse.py" "$T/mnt" "$T/originals" "$T/manifest" "$seed" "$1" "$T/stop" \
		>"$T/work.txt" 2>&1
}
# checked NAME: the job has ended, and the store has what it wrote.
checked() {
	local kills
	kills=$(json .restart.count)
	end
	"$here/holder_job.py" "$T/manifest" "$S" || fail "$1: the store has something else"
	echo "$1: $(tail -n 1 "$T/work.txt"), $kills kills"
}

start 0
if [ "$(json .restart.used)" != true ]; then
	skip "this kernel does not send requests again"
fi
end

# under_work NAME KILLS OPTION…: a job runs, the daemon is killed so often.
under_work() {
	local name=$1 kills=$2
	shift 2
	SLUICE_RESTART_MAX=200 start 3 "$@"
	work 1000000 &
	kill_under $! "$kills"
	checked "$name"
}
under_work direct "$kills"
under_work written-back "$kills" --passthrough off

# killed_at POINT:N STEPS OPTION…: at every N-th arrival there, as long as the job runs.
killed_at() {
	local point=$1 steps=$2
	shift 2
	SLUICE_RESTART_MAX=200 SLUICE_KILL_AT=$point start 1 "$@"
	work "$steps" || fail "killed at $point $*: $(cat "$T/work.txt")"
	[ "$(json .restart.count)" -gt 0 ] || fail "$point is never come to"
	checked "$point $*"
}
killed_at stage.write:9 $((steps / 2))
killed_at request.executed:25 $steps
killed_at request.executed:25 $steps --passthrough off

# hold: the first object is open in a program, $T/want its copy.
hold() {
	cp "$T/originals/f0" "$T/want"
	rm -f "$T/ask" "$T/answer"
	mkfifo "$T/ask" "$T/answer"
	"$here/holder_file.py" "$T/mnt/f0" "$T/want" <"$T/ask" >"$T/answer" &
	exec 5>"$T/ask" 6<"$T/answer"
}
# told ANSWER COMMAND…: the program does that.
told() {
	local want=$1 answer
	shift
	echo "$@" >&5
	read -r answer <&6 || fail "$*: no answer"
	[[ $answer =~ ^$want$ ]] || fail "$*: $answer, expected $want"
}

# The version that is published becomes the object: killed in the middle of that.
# Each daemon comes there twice by itself: to finish the upload, and once more.
published_and_killed_at() {
	local i
	SLUICE_RESTART_MAX=200 SLUICE_KILL_AT=$1 start 1 --passthrough off
	hold
	for i in 1 2 3 4; do
		told ok write $((i * 2 * MiB)) "before $i"
		told ok write $((12 * MiB + i * MiB)) "behind $i"
		timeout 60 "$bin/sluice" flush "$T/mnt" >/dev/null || fail "killed at $1: no flush"
		told ok write $((i * 2 * MiB + 4)) "afterwards $i"
		told ok same 0 $((20 * MiB))
		cmp "$T/want" "$T/mnt/f0" || fail "killed at $1: something else is read"
	done
	[ "$(json .restart.count)" -gt 0 ] || fail "$1 is never come to"
	kill_daemon
	told ok same 0 $((20 * MiB))
	told ok close
	end
	cmp "$T/want" "$S/f0" || fail "killed at $1: the store has something else"
}
published_and_killed_at multi.end.before:3
published_and_killed_at multi.end.acked:3

# Renamed, removed: what has no name any more reads on, and leaves nothing.
start 1
hold
told ok write 100 'here something changed'
mv "$T/mnt/f0" "$T/mnt/moved"
kill_daemon
told ok same 0 $((13 * MiB))
rm "$T/mnt/moved"
told ok write $((5 * MiB)) 'and here'
kill_daemon
told ok same 0 $((13 * MiB))
told ok close
end
[ ! -e "$S/f0" ] && [ ! -e "$S/moved" ] || fail "the store has what was removed"

# Replaced by name: who has the old one open keeps it, whichever daemon brings it home.
start 1
exec 4<"$T/mnt/f0"
head -c 1000 /dev/urandom >"$T/other"
store_away
cp "$T/other" "$T/mnt/new"
mv "$T/mnt/new" "$T/mnt/f0"
kill_daemon
store_back
expect_rc 0 timeout 60 "$bin/sluice" flush "$T/mnt"
cmp "$T/other" "$S/f0" || fail "the store does not have the new one"
kill_daemon
cmp "$T/originals/f0" <(cat <&4) || fail "the old one is not what it was"
exec 4<&-
end

# Others replace the object: nothing is mixed, and theirs stays.
start 1 --ttl 0
hold
told ok write 100 'here something changed'
head -c $((12 * MiB)) /dev/urandom >"$T/other"
put "$T/other" f0
kill_daemon
ls "$T/mnt" >/dev/null # theirs is known now
told ESTALE same $((5 * MiB)) 10
told ESTALE sync
told '(ESTALE|ok)' close # a kernel that writes back has said it once
end
cmp "$T/other" "$S/f0" || fail "the store has something else"
