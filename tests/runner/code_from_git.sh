#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Code from a git server: branch and commit, a private repository by reference, what is
# wrong with its codes, and that no secret is left anywhere.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
need_containers
command -v git >/dev/null && command -v python3 >/dev/null || skip "git or python3 is not installed"
fake_gateway

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
	GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git init -q -b main "$T/work"
(cd "$T/work" && echo 'echo first $RUNNER_CODE_COMMIT' >go.sh && git add . && git commit -qm 1)
first=$(git -C "$T/work" rev-parse HEAD)
(cd "$T/work" && echo 'echo second $RUNNER_CODE_COMMIT' >go.sh && git commit -qam 2)
second=$(git -C "$T/work" rev-parse HEAD)
mkdir "$T/root"
git clone -q --bare "$T/work" "$T/root/code.git"
mkfifo "$T/hold"
python3 "$top/tests/runner/git_server.py" "$T/root" <"$T/hold" >"$T/port" &
defer stop_pid $!
exec 9>"$T/hold"
eventually 30 grep -q . "$T/port"
url=http://127.0.0.1:$(cat "$T/port")

cat >"$T/job.yaml" <<-END
	name: git
	command: sh /code/go.sh
	code: {git: "$url/code.git"}
END
expect_rc 0 timeout 60 "$runner" start "$T/job.yaml"
grep -qx "worker-0 | second $second" "$T/out" || fail "$(cat "$T/out" "$T/err")"
[ "$("$runner" status --json | jq -r .commit)" = "$second" ] || fail "the commit is not in the status"
expect_rc 0 timeout 60 "$runner" start "$T/job.yaml" --set "code.commit=$first"
grep -qx "worker-0 | first $first" "$T/out" || fail "$(cat "$T/out")"
expect_rc 0 timeout 60 "$runner" start "$T/job.yaml" --set code.branch=main
expect_clean git

# A private repository: by a variable, by a file, by a token.
private=(--set "code.git=$url/auth/code.git")
(umask 077 && echo s3cret >"$T/password")
SECRET_GIT=s3cret expect_rc 0 timeout 60 "$runner" start "$T/job.yaml" "${private[@]}" \
	--set code.user=who --set 'code.password={env: SECRET_GIT}'
expect_rc 0 timeout 60 "$runner" start "$T/job.yaml" "${private[@]}" \
	--set code.user=who --set "code.password={file: $T/password}"
TOKEN=t0ken expect_rc 0 timeout 60 "$runner" start "$T/job.yaml" "${private[@]}" --set 'code.token={env: TOKEN}'
grep -rqE 's3cret|t0ken' "$SLUICE_RUN_DIR" && fail "a secret in the job's records"

wrong() { # CODE TEXT SET…
	local code=$1 text=$2
	shift 2
	expect_rc "$code" timeout 60 "$runner" start "$T/job.yaml" "$@"
	grep -q 'cannot fetch the code: ' "$T/err" && grep -qiE "$text" "$T/err" || fail "$(cat "$T/err")"
	expect_clean git
}
wrong 77 'user|password|credential' "${private[@]}"
SECRET_GIT=wrong wrong 77 'user|password|credential' "${private[@]}" \
	--set code.user=who --set 'code.password={env: SECRET_GIT}'
wrong 78 'no-such-branch' --set code.branch=no-such-branch
wrong 69 'connect|refused' --set code.git=http://127.0.0.1:1/x.git
chmod 644 "$T/password"
expect_rc 77 timeout 60 "$runner" start "$T/job.yaml" "${private[@]}" \
	--set code.user=who --set "code.password={file: $T/password}"
grep -q 'chmod 600' "$T/err" || fail "$(cat "$T/err")"

# A server that never answers does not hold Ctrl-C.
python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(60)' >"$T/mute" &
defer stop_pid $!
eventually 30 grep -q . "$T/mute"
SECONDS=0
setsid env --default-signal=INT "$runner" start "$T/job.yaml" \
	--set "code.git=http://127.0.0.1:$(cat "$T/mute")/x.git" >"$T/out" 2>"$T/err" &
pid=$!
eventually 30 grep -q 'fetch http' "$T/err"
kill -INT "$pid"
rc=0
wait "$pid" || rc=$?
[ "$rc" -eq 130 ] && [ $SECONDS -lt 15 ] || fail "exit $rc after $SECONDS s: $(cat "$T/err")"
expect_clean git
