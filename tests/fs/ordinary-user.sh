#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mounts of a user who is not root, through fusermount3: they outlive their daemon as root's
# do, end in the same ways, and need no memory that the user may not lock.
# shellcheck source=tests/lib.sh

# In a mount name space of its own: what is mounted here is nobody else's, and /dev/fuse is
# everybody's, as on any machine with udev.
if [ -z "${SLUICE_TEST_APART:-}" ]; then
	[ "$(id -u)" -eq 0 ] || { echo "needs root, to be somebody else"; exit 77; }
	command -v fusermount3 >/dev/null || { echo "needs fusermount3"; exit 77; }
	export SLUICE_TEST_APART=1
	exec "$(dirname "$0")/../apart.sh" - bash "$0" "$@"
fi
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
seed=${SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
user=65534
mkdir "$T/dev"
mount -t tmpfs none "$T/dev"
mknod -m 666 "$T/dev/fuse" c 10 229
mount --bind "$T/dev/fuse" /dev/fuse
umount -l "$T/dev"
chown $user "$T"
chmod 755 "$T"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

memlock=8388608 # what users get where nobody changed it
as_user() {
	prlimit --memlock="$memlock:$memlock" \
		setpriv --reuid=$user --regid=$user --clear-groups "$@"
}
mounted() { grep -q " $T/mnt " /proc/self/mountinfo; }
# gone PID: as in lib.sh; whether it is mounted cannot be asked of the mount, which is the
# user's alone.
gone() { dead "$1" && ! mounted && [ -z "$(ls "$T/run")" ]; }
S=$T/oss/data
mkdir -p "$S/one"
for i in $(seq 40); do head -c $((RANDOM * 5)) /dev/urandom >"$S/one/f$i"; done
head -c 12000000 /dev/urandom >"$S/large"
start_ossd --bucket data --region cn-hangzhou
as_user mkdir "$T/mnt"
defer unmount_hard "$T/mnt"
# start ROLE OPTION…
start() {
	as_user "$bin/sluice" mount oss://data "$T/mnt" --role "$1" \
		--endpoint "$OSS_ENDPOINT" --region cn-hangzhou --cache-dir "$T/cache" \
		--state-dir "$T/state" --io-uring off "${@:2}"
	pid=$(json .pid)
	holder=$(json ".restart.holder // 0")
}
stop() {
	expect_rc 0 as_user timeout 120 "$bin/sluice" umount "$T/mnt"
	eventually 30 gone "$holder"
}

start output
[ "$(json .restart.used)" = true ] || {
	[[ $(json .restart.why) == *'Linux 6.9'* ]] && skip "this kernel does not send requests again"
	fail "nobody would take over: $(json .restart)"
}
[ "$(json .restart.locked)" = true ] || fail "$memlock bytes are enough: $(json .restart)"
stop

# under_work ROLE KILLS JOB…: the job runs until $T/stop is there; the daemon is killed.
under_work() {
	local role=$1 kills=$2
	shift 2
	rm -f "$T/stop"
	SLUICE_RESTART_MAX=200 start "$role"
	[ "$role" != output ] || as_user mkdir "$T/mnt/work$memlock"
	as_user "$@" >"$T/work.txt" 2>&1 &
	kill_under $! "$kills"
	stop
	cat "$T/work.txt"
}
under_work input "${KILLS:-3}" "$here/holder_read.py" "$T/mnt" "$S" "$seed" 3 "$T/stop"
for memlock in 8388608 0; do
	under_work output "${KILLS:-3}" "$here/holder_work.py" "$T/mnt/work$memlock" "$T/manifest" \
		"$seed" 3 "$T/stop"
	"$here/holder_job.py" "$T/manifest" "$S/work$memlock" || fail "the store lacks something"
done
memlock=8388608

# Without memory that can be locked, it says so. (A sanitizer lets nobody lock any.)
if [[ ${BUILD:-} != *san-* ]]; then
	memlock=0
	start output
	as_user sh -c "echo data >$T/mnt/unlocked"
	json '.restart.locked | not' >/dev/null || fail "locked more than allowed: $(json .restart)"
	grep -q 'restarts .*too little memory' < <("$bin/sluice" status "$T/mnt") || fail "status does not say so"
	stop
	[ "$(cat "$S/unlocked")" = data ] || fail "not stored"
	memlock=8388608
fi

# More requests at once than buffers that can be locked: all are served.
start output
as_user python3 - "$T/mnt" <<'END'
import os, sys, threading
def write(i):
    for n in range(20):
        with open(f"{sys.argv[1]}/many{i}", "wb") as f:
            f.write(b"x" * 3000000)
            f.flush()
            os.fsync(f.fileno())
threads = [threading.Thread(target=write, args=(i,)) for i in range(16)]
for t in threads:
    t.start()
for t in threads:
    t.join()
END
[ "$(json .restart.locked)" = true ] || fail "more than could be locked: $(json .restart)"
stop
[ "$(cat "$S"/many* | wc -c)" -eq 48000000 ] || fail "not all is stored"

# in_use NAME: somebody has a file open.
in_use() {
	rm -f "$T/user.pid"
	as_user sh -c "exec 7>$T/mnt/$1; echo \$\$ >$T/user.pid; exec sleep 600" &
	eventually 30 test -s "$T/user.pid"
	user_pid=$(cat "$T/user.pid")
}

# In use: refused, told by whom, and it goes on. Also when another daemon serves by then.
start output
kill_daemon
in_use busy
expect_rc 75 as_user timeout 30 "$bin/sluice" umount "$T/mnt"
grep -q "in use by.*$user_pid " "$T/err" || fail "$(cat "$T/err")"
mounted || fail "taken away while in use"
kill "$user_pid"
eventually 30 dead "$user_pid"
stop

# Too often: it gives up, nothing of it is left, and what was staged is not lost.
SLUICE_RESTART_MAX=3 start output
store_away
as_user sh -c "echo kept >$T/mnt/kept"
kill_daemon
kill_daemon
kill -9 "$(json .pid)"
eventually 30 gone "$holder"
grep -q 'error: daemon died.*too often' "$T/state/log" || fail "the log does not say so"
store_back
expect_rc 0 as_user timeout 60 "$bin/sluice" recover --state-dir "$T/state"
[ "$(cat "$S/kept")" = kept ] || fail "not recovered"

# With and without a way to abort the connection, which a user gets only where it is mounted.
umount -l /sys/fs/fuse/connections 2>/dev/null || true
for abort in without with; do
	[ $abort = without ] || mount -t fusectl none /sys/fs/fuse/connections

	# By force: neither process is left, nor the mount.
	start output
	in_use forced-$abort
	hang "$pid"
	expect_rc 75 as_user timeout 30 "$bin/sluice" umount --force "$T/mnt"
	eventually 30 dead "$holder"
	eventually 30 dead "$pid"
	mounted && fail "still mounted"
	kill "$user_pid"

	# SIGTERM: also in use, also with nobody to take over, also where another mount name
	# space has it.
	for restart in auto off; do
		start output --restart $restart
		in_use terminated-$abort-$restart
		as_user sh -c "echo data >$T/mnt/before-$abort-$restart"
		kill -TERM "$pid"
		eventually 30 gone "$pid"
		kill "$user_pid"
		[ "$(cat "$S/before-$abort-$restart")" = data ] || fail "not stored"
		start output --restart $restart
		"$top/tests/apart.sh" "$T" sleep 600 &
		copy=$!
		eventually 30 grep -q sleep "/proc/$copy/comm"
		expect_rc 0 as_user timeout 30 "$bin/sluice" umount "$T/mnt"
		grep -q "elsewhere.*$copy sleep.*$pid" "$T/err" || fail "$(cat "$T/err")"
		kill -TERM "$pid"
		eventually 30 gone "$pid"
		kill "$copy"
	done
done

# A mount whose processes are both gone can be taken away.
start output
kill -9 "$holder"
kill -9 "$pid"
eventually 30 dead "$pid"
mounted || fail "it went with its process, so this tests nothing"
expect_rc 75 as_user timeout 30 "$bin/sluice" umount "$T/mnt"
mounted && fail "still mounted"

# A mount point that the user may not write to: one line says why.
mkdir "$T/roots"
expect_rc 77 as_user "$bin/sluice" mount oss://data "$T/roots" --role output \
	--endpoint "$OSS_ENDPOINT" --region cn-hangzhou --state-dir "$T/state"
grep -q "^sluice: $T/roots: .*write access" "$T/err" && [ "$(wc -l <"$T/err")" -eq 1 ] ||
	fail "$(cat "$T/err")"
exit 0
