#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The official OSS client for Node (npm: ali-oss) does everything it can against ossd: both
# signature versions, both addressing styles.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not installed"

# Installed once per build folder and version of the lock file.
sdk=$top/build/oss-sdk
mkdir -p "$top/build"
exec 9>"$top/build/.oss-sdk.lock"
flock 9
if ! cmp -s "$top/tests/oss/package-lock.json" "$sdk/.installed"; then
	mkdir -p "$sdk"
	cp "$top"/tests/oss/package*.json "$sdk/"
	(cd "$sdk" && timeout 120 npm ci --ignore-scripts --no-audit --no-fund >"$T/npm.log" 2>&1) ||
		skip "npm ci does not succeed (no registry?): $(tail -n 1 "$T/npm.log")"
	cp "$sdk/package-lock.json" "$sdk/.installed"
fi
flock -u 9

start_ossd
stop_pid "$OSSD_PID"
echo "STS.session:session-secret:the/token+=" >>"$T/keys"
"$bin/ossd" --root "$T/oss" --listen "127.0.0.1:$OSSD_PORT" --key-file "$T/keys" \
	>"$T/ossd.out" 2>"$T/ossd.err" &
pid=$!
defer stop_pid "$pid"
eventually 30 grep -q ^ready "$T/ossd.out"

for version in v1 v4; do
	for style in path virtual; do
		NODE_PATH=$sdk/node_modules timeout 60 node "$top/tests/oss/ali_oss.js" \
			"$OSS_ENDPOINT" "$version" "$style" || fail "ali-oss $version $style: $(cat "$T/ossd.err")"
	done
done
kill "$pid"
wait "$pid" || fail "ossd ended with $?: $(tail -n 20 "$T/ossd.err")"
