#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual page names every field of the schema, every command and every option.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$(dirname "$0")/../lib.sh"

page=$top/runner/runner.1
"$bin/runner" check --fields | cut -d' ' -f1 >"$T/fields"
[ "$(wc -l <"$T/fields")" -gt 40 ] || fail "no schema"
while read -r field; do
	case $field in
	*.file | *.env) continue ;; # the two keys of any secret, said once
	output.*) continue ;;      # as input.*
	esac
	grep -qF -- ".It Li $field Pq" "$page" || fail "runner.1 does not explain the field $field"
done <"$T/fields"
grep -qF '.It Li output.*' "$page" || fail "output.* is not explained"
"$bin/runner" man-options | sed -n 's/^\.Ss \([a-z]*\).*/\1/p' >"$T/commands"
[ "$(wc -l <"$T/commands")" -ge 7 ] || fail "no commands"
while read -r command; do
	grep -qE "^\.It Cm $command( |$)" "$page" || fail "runner.1 does not explain the command $command"
done <"$T/commands"
"$bin/runner" man-options | sed -n 's/^\.It Fl \\-\([a-z-]*\).*/\1/p' | sort -u >"$T/options"
while read -r option; do
	grep -qE -- "-$option( |$)" "$page" || fail "runner.1 does not explain the option --$option"
done <"$T/options"
if command -v mandoc >/dev/null; then
	mandoc -T lint -W warning "$page" >"$T/lint" || fail "$(cat "$T/lint")"
elif command -v groff >/dev/null; then
	groff -mandoc -Tutf8 -ww "$page" >/dev/null 2>"$T/lint"
	[ ! -s "$T/lint" ] || fail "$(cat "$T/lint")"
fi
