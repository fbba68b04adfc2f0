#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every parser of hostile bytes over its corpus and the mutations of it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
count=0
for source in "$top"/tests/fuzz/fuzz_*.c; do
	name=$(basename "$source" .c)
	"$bin/tests/$name" "$top/tests/fuzz/corpus/${name#fuzz_}" || fail "$name"
	count=$((count + 1))
done
[ $count -gt 0 ] || fail 'no fuzz targets'
