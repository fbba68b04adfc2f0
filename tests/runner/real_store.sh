#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs on the real gateway: data out of a bucket, results into it, from and to directories;
# a store that goes away, a gateway that is killed, output that has to wait.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
[ -x "$bin/sluice" ] && [ -x "$bin/ossd" ] || skip "sluice or ossd is not built"
defer release_jobs
start_ossd
mkdir -p "$T/oss/bkt"
ossctl() { "$bin/ossctl" "$@" --endpoint "$OSS_ENDPOINT" --region cn-hangzhou; }
ossctl mb oss://bkt >/dev/null 2>&1 || true
head -c 5000000 /dev/urandom >"$T/data"
ossctl put "$T/data" oss://bkt/in/deep/data.bin >/dev/null

cat >"$T/job.yaml" <<-END
	name: real
	command: "mkdir -p /output/a/b && cp /input/deep/data.bin /output/a/b/copy.\$RUNNER_INDEX && echo done"
	roles: {worker: {count: 2, memory: 128M}}
	input: {source: "oss://bkt/in", endpoint: "$OSS_ENDPOINT", region: cn-hangzhou, cache_dir: "$T/cache"}
	output: {source: "oss://bkt/out", endpoint: "$OSS_ENDPOINT", region: cn-hangzhou}
END
expect_rc 0 timeout 100 "$runner" start "$T/job.yaml"
for i in 0 1; do
	ossctl get "oss://bkt/out/a/b/copy.$i" "$T/copy.$i" >/dev/null || fail "copy.$i is not in the bucket"
	cmp "$T/data" "$T/copy.$i" || fail "copy.$i differs"
done
jq -e . "$SLUICE_RUN_DIR/jobs/real/receipt.json" >/dev/null || fail "no receipt"
[ "$("$runner" status real --json | jq -r .output)" = stored ] || fail "$("$runner" status real --json)"
pgrep -f "sluice mount oss://bkt.*$T" >/dev/null && fail "a gateway is left"
expect_clean real

# A failed job's output is stored as well.
expect_rc 5 timeout 100 "$runner" start "$T/job.yaml" --set name=fails \
	--set 'command="echo why >/output/failed.log; exit 5"' --set roles.worker.count=1
ossctl get oss://bkt/out/failed.log "$T/failed.log" >/dev/null || fail "output of a failed job"
[ "$(cat "$T/failed.log")" = why ] || fail "failed.log"
expect_clean fails

# Directories serve as both sides.
mkdir -p "$T/from/x" "$T/to"
echo 7 >"$T/from/x/n"
cat >"$T/dirs.yaml" <<-END
	name: dirs
	command: "cat /input/x/n /input/x/n >/output/twice"
	input: {source: "file://$T/from", cache_dir: "$T/cache"}
	output: "file://$T/to"
END
expect_rc 0 timeout 100 "$runner" start "$T/dirs.yaml"
[ "$(cat "$T/to/twice")" = $'7\n7' ] || fail "file:// output: $(ls -R "$T/to")"
expect_clean dirs

# Refused by the store: its words, its code, one line, nothing left.
wrong() {
	expect_rc "$1" timeout 100 "$runner" start "$T/job.yaml" --set name=wrong "${@:3}"
	grep -q "cannot mount /" "$T/err" && grep -qiE "$2" "$T/err" || fail "$(cat "$T/err")"
	expect_clean wrong
}
wrong 78 'bucket' --set input.source=oss://no-such-bucket/x
OSS_ACCESS_KEY_SECRET=no wrong 77 'secret|signature|credential|key'
wrong 69 'refused|connect|reach' --set input.endpoint=http://127.0.0.1:1

# The store goes away before the end: the job is done, the output waits, and recover
# brings it home.
cat >"$T/late.yaml" <<-END
	name: late
	command: "touch /output/up; while [ ! -e /run/go/on ]; do sleep 0.1; done; echo late >/output/late.txt"
	output: {source: "oss://bkt/late", endpoint: "$OSS_ENDPOINT", region: cn-hangzhou, flush_deadline: 3s}
END
sed -i 's|/run/go/on|/code/on|' "$T/late.yaml"
mkdir "$T/code"
timeout 100 "$runner" start "$T/late.yaml" --set "code.dir=$T/code" >"$T/out" 2>"$T/err" &
job=$!
eventually 30 is_phase late running
stop_pid "$OSSD_PID"
touch "$SLUICE_RUN_DIR/jobs/late/code/on"
rc=0
wait "$job" || rc=$?
[ "$rc" -eq 75 ] || fail "exit $rc, expected 75: $(cat "$T/err")"
state=$(sed -n 's/.*sluice recover --state-dir \([^ ]*\).*/\1/p' "$T/err" | tail -n 1)
[ -d "$state" ] || fail "no state to recover: $(cat "$T/err")"
expect_clean late
port=${OSS_ENDPOINT##*:}
"$bin/ossd" --root "$T/oss" --listen "127.0.0.1:$port" --key-file "$T/keys" >"$T/ossd2" 2>&1 &
defer stop_pid $!
eventually 30 grep -q ^ready "$T/ossd2"
expect_rc 0 timeout 60 "$bin/sluice" recover --state-dir "$state"
ossctl get oss://bkt/late/late.txt "$T/late.txt" >/dev/null || fail "late.txt did not arrive"
[ "$(cat "$T/late.txt")" = late ] || fail "late.txt"

# The gateway is killed under the job after it acknowledged: what it held arrives.
cat >"$T/kill.yaml" <<-END
	name: kill
	command: "echo acked >/output/acked.txt; touch /code/acked; while [ ! -e /code/on ]; do sleep 0.1; done"
	output: {source: "oss://bkt/kill", endpoint: "$OSS_ENDPOINT", region: cn-hangzhou}
END
timeout 100 "$runner" start "$T/kill.yaml" --set "code.dir=$T/code" >"$T/out" 2>"$T/err" &
job=$!
eventually 30 test -e "$SLUICE_RUN_DIR/jobs/kill/code/acked"
kill -9 $(pgrep -f "sluice mount oss://bkt/kill $SLUICE_RUN_DIR/jobs/kill/") || fail "no gateway to kill"
touch "$SLUICE_RUN_DIR/jobs/kill/code/on"
rc=0
wait "$job" || rc=$?
[ "$rc" -eq 0 ] || fail "exit $rc: $(cat "$T/err")"
ossctl get oss://bkt/kill/acked.txt "$T/acked.txt" >/dev/null || fail "an acknowledged file is lost"
expect_clean kill
