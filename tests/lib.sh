# SPDX-License-Identifier: Apache-2.0
# What every test script sources first: a folder of its own, clean-up in reverse order, a
# local store, mounts. Everything a test starts it also ends, whatever happens.
#
#   . "$(dirname "$0")/../lib.sh"
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$top/${BUILD:-build}
T=$(mktemp -d "${TMPDIR:-/tmp}/sluice-test.XXXXXX")
export SLUICE_RUN_DIR=$T/run XDG_CACHE_HOME=$T/xdg-cache XDG_STATE_HOME=$T/xdg-state
export PYTHONDONTWRITEBYTECODE=1 # the tests' own modules lie in the tree
_undo=()

# What a failed test leaves to be read: the logs' ends and who still runs.
_logs() {
	local log
	find "$T" -xdev \( -name log -o -name '*.log' -o -name '*.err' \) -size +0 -print0 |
		while IFS= read -r -d '' log; do
			echo "--- ${log#"$T"/}"
			tail -n 15 "$log"
		done
	grep -s " $T" /proc/self/mountinfo
	ps -eo pid,stat,wchan:20,args | grep -F "$T" | grep -v grep
}
# defer COMMAND…: runs at the end, last one first, also when the test fails.
defer() { _undo+=("$(printf '%q ' "$@")"); }
_cleanup() {
	local rc=$? i
	set +e
	[ "$rc" -eq 0 ] || [ "$rc" -eq 77 ] || _logs >&2
	for ((i = ${#_undo[@]} - 1; i >= 0; i--)); do eval "${_undo[i]}"; done
	# Once more: the logs bury it.
	[ ! -e "$T/failure" ] || cat "$T/failure" >&2
	rm -rf --one-file-system "$T"
	exit "$rc"
}
trap _cleanup EXIT

# quick: the run is one of several (QUICK=1), in which a long form would add nothing.
quick() { [ -n "${QUICK:-}" ] || [[ ${BUILD:-} == *san-* ]]; }
fail() { echo "FAIL: $*" | tee "$T/failure" >&2; exit 1; }
skip() { echo "$*"; exit 77; }
# expect_rc CODE COMMAND…: runs it, its output in $T/out and $T/err.
expect_rc() {
	local want=$1 rc=0
	shift
	"$@" >"$T/out" 2>"$T/err" || rc=$?
	[ "$rc" -eq "$want" ] || fail "exit $rc, expected $want: $* ($(tail -n 3 "$T/err"))"
}
# eventually SECONDS COMMAND…: polls until it succeeds.
eventually() {
	local until=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt "$until" ] || fail "never became true: $*"
		sleep 0.05
	done
}
# Names and pages that the kernel has let go of: to make room, or because it was told to.
kernel_dropped() { awk '/^(drop_|slabs_scanned|pgsteal_)/ {n += $2} END {print n}' /proc/vmstat; }
# undisturbed CHECK…: about what the kernel keeps. It may drop that at any time, so a check that
# fails (it prints why) proves nothing unless the kernel has dropped nothing meanwhile; what it
# has dropped before, the check must bring back.
undisturbed() {
	local until=$((SECONDS + 120)) dropped said
	while :; do
		dropped=$(kernel_dropped)
		! said=$("$@") || return 0
		[ "$dropped" != "$(kernel_dropped)" ] && [ $SECONDS -lt $until ] || fail "$said"
	done
}
# dead PID: it ended and has let go of its files and locks.
dead() {
	local state
	state=$(grep -s '^State:' "/proc/$1/status") || return 0 # it may go while we look
	[[ $state == *Z* ]]
}
# hang PID: SIGSTOP, and waits until none of its threads runs; until then they answer.
hang() {
	kill -STOP "$1"
	eventually 30 all_stopped "$1"
}
all_stopped() { [ -z "$(grep -hs '^State:' /proc/"$1"/task/*/status | grep -v '[TtZX] (')" ]; }
stop_pid() {
	kill "$1" 2>/dev/null || return 0
	for _ in $(seq 100); do
		! dead "$1" || return 0
		sleep 0.05
	done
	kill -9 "$1" 2>/dev/null
}

# start_ossd [OPTION…]: a store of the test's own. Sets OSSD_PID, OSS_ENDPOINT, OSS_ADMIN and
# the credentials in the environment. Buckets are folders of $T/oss.
start_ossd() {
	mkdir -p "$T/oss"
	export OSS_ACCESS_KEY_ID=test-id OSS_ACCESS_KEY_SECRET=test-secret-$RANDOM$RANDOM
	unset OSS_SESSION_TOKEN
	(umask 077 && echo "$OSS_ACCESS_KEY_ID:$OSS_ACCESS_KEY_SECRET" >"$T/keys")
	rm -f "$T/ossd.out" # a former one's "ready"
	"$bin/ossd" --root "$T/oss" --listen "127.0.0.1:${OSSD_PORT:-0}" --admin 127.0.0.1:0 \
		--key-file "$T/keys" "$@" >"$T/ossd.out" 2>"$T/ossd.err" &
	OSSD_PID=$!
	defer stop_pid "$OSSD_PID"
	eventually 30 grep -q ^admin "$T/ossd.out"
	OSS_ENDPOINT=$(sed -n 's/^ready //p' "$T/ossd.out")
	OSS_ADMIN=$(sed -n 's/^admin //p' "$T/ossd.out")
	OSSD_PORT=${OSS_ENDPOINT##*:}
	export OSS_ENDPOINT OSS_REGION=cn-hangzhou
}
# faults JSON: sets the fault program; faults '[]' clears it.
faults() { curl -fsS -X PUT --data "$1" "$OSS_ADMIN/faults" >/dev/null; }
# No upload gets through; what the store holds can still be read.
store_away() {
	faults '[{"op":"PutObject","fault":"status","status":503},
		{"op":"InitiateMultipartUpload","fault":"status","status":503}]'
}
store_back() { faults '[]'; }
# oss_stat JQ-FILTER: a counter of the store.
oss_stat() { curl -fsS "$OSS_ADMIN/stats" | jq -r "$1"; }

# receipt_is_true FILE [PREFIX]: the bucket holds every file that the receipt names as it says.
receipt_is_true() {
	local key line
	jq -e '.files_left_out == 0' "$1" >/dev/null || fail "files are left out of the receipt"
	jq -c '.files[]' "$1" >"$T/receipt-lines"
	while read -r line; do
		key=${2:-}$(jq -r .key <<<"$line")
		"$bin/ossctl" stat "oss://data/$key" --json >"$T/receipt-stat" ||
			fail "the receipt names $key, the bucket does not have it"
		jq -e --argjson said "$line" '.size == $said.size and .etag == $said.etag and
			.crc64 == $said.crc64' "$T/receipt-stat" >/dev/null ||
			fail "the receipt says $line, the bucket $(cat "$T/receipt-stat")"
	done <"$T/receipt-lines"
}

# mount_sluice SOURCE DIR ROLE [OPTION…]: mounts, and unmounts at the end.
mount_sluice() {
	local source=$1 dir=$2 role=$3
	shift 3
	mkdir -p "$dir"
	defer unmount_hard "$dir"
	"$bin/sluice" mount "$source" "$dir" --role "$role" --endpoint "${OSS_ENDPOINT:-}" \
		--region cn-hangzhou --cache-dir "$T/cache" --state-dir "$T/state" "$@"
}
# json FILTER: of the status of the mount on $T/mnt, where most tests have theirs.
json() { "$bin/sluice" status "$T/mnt" --json | jq -er "$1"; }
# gone PID: the process that served $T/mnt, the mount and its socket.
gone() { dead "$1" && ! mountpoint -q "$T/mnt" && [ -z "$(ls "$T/run")" ]; }
# Kills the daemon that serves $T/mnt; another one takes over.
kill_daemon() {
	local pid
	pid=$(json .pid)
	kill -9 "$pid"
	eventually 30 serves_anew "$pid"
}
# serves_anew PID: another process does.
serves_anew() {
	local now
	now=$(json .pid) && [ "$now" != "$1" ]
}
# kill_under WORK KILLS: kills the daemon so often while the job (a pid) works, then ends that by
# way of $T/stop. What it says is in $T/work.txt.
kill_under() {
	for _ in $(seq "$2"); do
		sleep "0.$((RANDOM % 5))"
		kill_daemon
		[ ! -e "$T/stop" ] || break
	done
	sleep 0.3
	touch "$T/stop"
	eventually 120 dead "$1"
	wait "$1" || fail "the job saw it: $(cat "$T/work.txt")"
	[ "$(json .restart.count)" -ge "$2" ] || fail "not killed: $(json .restart)"
}
# Frees a mount whatever state it is in: abort its connection, then detach.
unmount_hard() {
	local dev
	mountpoint -q "$1" 2>/dev/null || grep -qs " $1 " /proc/self/mountinfo || return 0
	timeout 10 "$bin/sluice" umount "$1" --deadline 5 >/dev/null 2>&1
	# Only what is still there: a number that has become free may be another mount's.
	dev=$(awk -v d="$1" '$5 == d {split($3, n, ":"); print n[2]}' /proc/self/mountinfo)
	if [ -n "$dev" ]; then
		mkdir -p "$T/connections"
		mount -t fusectl none "$T/connections"
		for n in $dev; do
			[ ! -e "$T/connections/$n/abort" ] || echo 1 >"$T/connections/$n/abort"
		done
		umount "$T/connections"
	fi
	umount -l "$1" 2>/dev/null
	return 0
}
