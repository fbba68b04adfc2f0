#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A distributed job with code, input and output: what the containers see, what the shell
# gets, and that nothing is left.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
fake_gateway

mkdir -p "$T/job/src" "$FAKE/store/bkt/in" "$FAKE/store/bkt/out"
echo 41 >"$FAKE/store/bkt/in/data"
cat >"$T/job/src/train.sh" <<-'END'
	case $RUNNER_ROLE in ps) exec sleep "$1" ;; esac
	grep -q worker-0 /etc/hosts && getent hosts ps-0 >/dev/null || exit 9
	touch /input/x 2>/dev/null && exit 8
	[ "$PWD" = /code ] || exit 7
	env | cut -d= -f1 | sort >/output/env.$RUNNER_INDEX
	echo "$TF_CONFIG" >/output/tf.$RUNNER_INDEX
	cat /run/runner/hparams.json >/output/hp.$RUNNER_INDEX
	echo $(($(cat /input/data) + HP_STEP)) >/output/result.$RUNNER_INDEX
	echo "trained with $2"
END
cat >"$T/job/job.yaml" <<-END
	name: whole
	framework: tensorflow
	image: host
	code: {dir: src}
	command: [/bin/sh, train.sh, "$MARK", "lr {{hp.lr}} on {{ps_hosts}}"]
	hyperparameters: {lr: 0.1, step: 1}
	roles:
	  ps: {count: 1, memory: 64M, cpu: 0.5}
	  worker: {count: 2, memory: 64M, cpu: 0.5}
	input: oss://bkt/in
	output: {source: "oss://bkt/out", endpoint: "http://store:1", region: r1}
END
export OSS_ACCESS_KEY_ID=id-in-env OSS_ACCESS_KEY_SECRET=sec-in-env
expect_rc 0 timeout 60 "$runner" start "$T/job/job.yaml"
out=$FAKE/store/bkt/out

[ "$(cat "$out/result.0" "$out/result.1")" = $'42\n42' ] || fail "results"
[ "$(cat "$out/tf.1")" = '{"cluster":{"ps":["ps-0:2222"],"worker":["worker-0:2222","worker-1:2222"]},"task":{"type":"worker","index":1},"environment":"cloud"}' ] ||
	fail "TF_CONFIG: $(cat "$out/tf.1")"
[ "$(cat "$out/hp.0")" = '{"lr":0.1,"step":1}' ] || fail "hparams: $(cat "$out/hp.0")"
grep -q OSS_ "$out/env.0" && fail "a credential is in the container's environment"
grep -q SLUICE "$out/env.0" && fail "the runner's environment leaks into the container"
grep -q '^worker-1 *| trained with lr 0.1 on ps-0:2222$' "$T/out" || fail "live logs: $(cat "$T/out")"
grep -q 'all workers have finished' "$T/err" || fail "progress"
[ "$(cat "$SLUICE_RUN_DIR/jobs/whole/logs/worker-0.log")" = "trained with lr 0.1 on ps-0:2222" ] ||
	fail "log file"

# The gateway: both roles mounted, output flushed before it is unmounted, secrets only in
# its environment.
sed -e 's/ .*--role/ --role/' "$FAKE/calls" | cut -d' ' -f1-3 >"$T/verbs"
[ "$(cut -d' ' -f1 "$T/verbs" | paste -sd' ')" = "mount mount flush umount umount" ] ||
	fail "gateway calls: $(cat "$FAKE/calls")"
grep -q "^mount oss://bkt/out .* --role output --endpoint http://store:1 --region r1" "$FAKE/calls" ||
	fail "mount of output"
grep -q sec-in-env "$FAKE/calls" && fail "a secret in argv"
grep -q OSS_ACCESS_KEY_SECRET=sec-in-env "$FAKE/mount.env" || fail "no credentials for the gateway"

"$runner" status whole --json | jq -e '.phase == "succeeded" and .exit_code == 0 and
	.output == "stored" and .first_failure == -1 and
	([.replicas[].exit_code] == [0, 0, 143])' >/dev/null || fail "status: $("$runner" status whole --json)"
jq -e '.pending == []' "$SLUICE_RUN_DIR/jobs/whole/receipt.json" >/dev/null || fail "receipt"
[ -z "$(ls -A "$SLUICE_RUN_DIR/outputs" 2>/dev/null)" ] || fail "state of a stored output is left"
expect_clean whole

# The same name again: the old run's records give way.
expect_rc 0 timeout 60 "$runner" start "$T/job/job.yaml" --quiet --set roles.worker.count=1
[ ! -s "$T/out" ] && [ ! -s "$T/err" ] || fail "quiet is not quiet"
[ ! -e "$SLUICE_RUN_DIR/jobs/whole/logs/worker-1.log" ] || fail "an old log is left"
