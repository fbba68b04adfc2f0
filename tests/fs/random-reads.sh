#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random reads while objects are replaced and the store misbehaves: never a mixture, never a
# wrong byte. For a night: tests/fs/random-reads.sh 30000 [SEED]
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
seconds=${1:-15} seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

start_ossd --bucket data
mount_sluice oss://data "$T/in" input --ttl 300ms --deadline 10s \
	--cache-size 40M --memory 32M
python3 "$(dirname "$0")/random-reads.py" "$T/in" "$bin/ossctl" "$OSS_ADMIN" data \
	"$seconds" "$seed" || fail "see above"
