#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a person can get wrong: one line each that says what to do, the documented exit
# code, nothing left.
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
fake_gateway

# refused CODE TEXT [SET…]: start and check agree, one line each, and it holds TEXT.
refused() {
	local code=$1 text=$2 verb
	shift 2
	for verb in start check; do
		expect_rc "$code" timeout 20 "$runner" $verb "$T/job.yaml" "$@"
		[ "$(wc -l <"$T/err")" -eq 1 ] || fail "not one line: $(cat "$T/err")"
		grep -qF -- "$text" "$T/err" || fail "expected \"$text\": $(cat "$T/err")"
		[ ! -s "$T/out" ] || fail "$verb also wrote: $(cat "$T/out")"
	done
	[ ! -d "$SLUICE_RUN_DIR/jobs" ] || fail "a refused job left something"
}

printf 'name: bad\ncommand: "true"\nroles:\n  worker:\n    count: 2\n' >"$T/job.yaml"
refused 64 '--set name: "a_b" cannot be a job'"'"'s name' --set name=a_b
refused 64 'cannot be a job'"'"'s name' --set "name=$(printf 'a%.0s' {1..65})"
refused 64 'roles.worker.count is 0' --set roles.worker.count=0
refused 64 'only http and https repositories' --set 'code={git: "ssh://git@host/x.git"}'
refused 64 'only http and https repositories' --set 'code={git: "git@host:x.git"}'
refused 78 'ask for less' --set roles.worker.memory=100000G
refused 78 'cores are more than this machine has' --set roles.worker.cpu=9999
refused 78 'image /no/such: No such file' --set image=/no/such
refused 64 'is no image of this engine' --set image=ubuntu:22.04
refused 78 "$T/no: No such file" --set "code={dir: $T/no}"
refused 78 '/no/input' --set input=file:///no/input
refused 64 'is no source' --set input=ftp://x

printf 'name: bad\ncommand: "true"\nroles:\n  worker:\n    cuont: 2\n' >"$T/job.yaml"
refused 64 "$T/job.yaml:5:5: unknown key \"cuont\" in roles.worker, did you mean \"count\"?"
printf 'name: bad\n command: x\n' >"$T/job.yaml"
refused 64 "$T/job.yaml:2:"
rm "$T/job.yaml"
refused 64 "$T/job.yaml: cannot be read: No such file or directory"
expect_rc 64 "$runner" check "$T/"$'\e[31mred'
grep -q 'x1b.31mred: cannot be read' "$T/err" || fail "drives the terminal: $(cat "$T/err")"

expect_rc 64 "$runner" strat x
grep -q 'did you mean "start"' "$T/err" || fail "$(cat "$T/err")"
expect_rc 64 "$runner" start
for verb in status logs stop; do
	expect_rc 78 "$runner" $verb nobody
	[ "$(wc -l <"$T/err")" -eq 1 ] || fail "$(cat "$T/err")"
done
expect_rc 78 "$runner" status
grep -q 'runner start FILE' "$T/err" || fail "$(cat "$T/err")"

# check and plan as JSON; plan touches nothing.
printf 'name: good\ncommand: "true"\noutput: oss://bkt/o\n' >"$T/job.yaml"
expect_rc 0 "$runner" check "$T/job.yaml" --json
jq -e '.ok and .mistakes == []' "$T/out" >/dev/null || fail "$(cat "$T/out")"
expect_rc 64 "$runner" check "$T/job.yaml" --json --set x=1
jq -e '.ok == false and (.mistakes | length) == 1' "$T/out" >/dev/null || fail "$(cat "$T/out")"
expect_rc 0 "$runner" plan "$T/job.yaml"
grep -q 'flush /output' "$T/out" || fail "$(cat "$T/out")"
expect_rc 0 "$runner" plan "$T/job.yaml" --json
jq -e '.steps[-1].kind == "wait" and .containers[0].hostname == "worker-0"' "$T/out" >/dev/null ||
	fail "$(cat "$T/out")"
[ ! -d "$SLUICE_RUN_DIR/jobs" ] && [ ! -e "$FAKE/calls" ] || fail "plan touched something"
