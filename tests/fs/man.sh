#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual lists every option as the program knows it, help and completion know them too.
#   tests/fs/man.sh --fix    writes the list into fs/sluice.8
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

page=$top/fs/sluice.8
"$bin/sluice" man-options >"$T/options"
grep -q -- '-role' "$T/options" || fail "man-options prints nothing"
if [ "${1:-}" = --fix ]; then
	awk -v list="$T/options" '
		/begin options/ {print; while ((getline line <list) > 0) print line; inside = 1}
		/end options/ {inside = 0}
		!inside' "$page" >"$T/page"
	cp "$T/page" "$page"
	exit 0
fi
sed '1,/begin options/d;/end options/,$d' "$page" | diff - "$T/options" ||
	fail "fs/sluice.8 has another list of options: run tests/fs/man.sh --fix"
mandoc -Tlint -W warning "$page" || fail "mandoc finds faults"

# Every command has help with an example and its options, and a completion.
"$bin/sluice" completion bash >"$T/completion"
bash -n "$T/completion"
for command in mount umount flush status warm recover check metrics; do
	expect_rc 0 "$bin/sluice" "$command" --help
	grep -q '^Examples:' "$T/out" || fail "$command has no example"
	grep -q "$command) words=" "$T/completion" || fail "no completion of $command"
done
expect_rc 0 "$bin/sluice" --version
# shellcheck disable=SC1091
. "$T/completion"
COMP_WORDS=(sluice mount --ro) COMP_CWORD=2
_sluice
[ "${COMPREPLY[*]}" = --role ] || fail "completion of --ro: ${COMPREPLY[*]}"

# The other shells' say the same; those that are installed read them.
for shell in zsh fish; do
	"$bin/sluice" completion "$shell" >"$T/completion.$shell"
	for option in $("$bin/sluice" man-options | sed -n 's/^\.It Fl .-\([a-z-]*\).*/\1/p'); do
		grep -q -e "--${option}[=[]" -e "-l ${option} " "$T/completion.$shell" ||
			fail "$shell does not complete --$option"
	done
done
expect_rc 64 "$bin/sluice" completion csh
if command -v zsh >/dev/null; then
	zsh -n "$T/completion.zsh" || fail 'zsh cannot read its completion'
fi
if command -v fish >/dev/null; then
	fish -c "source $T/completion.fish; complete -C 'sluice mount --ro'" >"$T/out"
	grep -q '^--role' "$T/out" || fail "fish completes --ro to $(cat "$T/out")"
fi
