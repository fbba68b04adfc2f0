#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The contract of every origin, kept by a bucket through all layers: once with a store that
# does what it should, once with one that fails one request in ten or so in one way or another.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
test=$bin/tests/test_origin_conformance
[ -x "$bin/ossd" ] && [ -x "$test" ] || skip "ossd or the test is not built"

mkdir -p "$T/oss/data"
start_ossd
export SLUICE_TEST_SOURCE=oss://data SLUICE_TEST_ENDPOINT=$OSS_ENDPOINT
export SLUICE_TEST_REGION=$OSS_REGION

run() {
	timeout 120 "$test" >"$T/out" 2>&1 ||
		fail "$1: $(grep -B4 '^\[  FAILED' "$T/out" | sed -n 1,40p)"
	grep -q 'PASSED  ] 31' "$T/out" || fail "$1: $(tail -n 3 "$T/out")"
}
run "a good store"

# A request whose answer is lost may have had its effect. Two beginnings of one upload are
# no fault of the client's, but the cases count uploads. A request is tried ten times: rates
# at which all ten fail once in ten thousand runs.
faults '[
  {"fault": "status", "status": 500, "probability": 0.05},
  {"fault": "reset", "after": 0, "op": "PutObject", "probability": 0.05},
  {"fault": "commit-then-500", "op": "PutObject", "probability": 0.05},
  {"fault": "commit-then-500", "op": "AppendObject", "probability": 0.15},
  {"fault": "commit-then-500", "op": "CompleteMultipartUpload", "probability": 0.3},
  {"fault": "commit-then-500", "op": "DeleteObject", "probability": 0.1},
  {"fault": "reset", "after": 3, "op": "GetObject", "probability": 0.1},
  {"fault": "truncate", "after": 2, "op": "GetObject", "probability": 0.05},
  {"fault": "truncate", "after": 100, "op": "ListObjectsV2", "probability": 0.03}
]'
run "a failing store"
