#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random reads while objects are replaced and the store misbehaves: never a mixture, never a
# wrong byte where all is verified first, and elsewhere never all of an object with one.
# For a night: tests/fs/random-reads.sh 30000 [SEED]
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
quick && seconds=${1:-15} || seconds=${1:-60}
seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

start_ossd --bucket data
# The one has to make room all the time; the other keeps what it fetched until it is known to
# be right, as is promised of what can be kept.
mount_sluice oss://data "$T/whole" input --ttl 300ms --deadline 10s --verify whole \
	--cache-dir "$T/cache-whole" --cache-size 40M --memory 32M
mount_sluice oss://data "$T/end" input --ttl 300ms --deadline 10s \
	--cache-dir "$T/cache-end" --cache-size 1G --memory 32M
python3 "$(dirname "$0")/random-reads.py" "$T" "$bin/ossctl" "$OSS_ADMIN" data \
	"$seconds" "$seed" || fail "see above"
