#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that knows only what "make install" lays down: header, library, pkg-config.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

make -s -C "$top" install PREFIX=/usr DESTDIR="$T/root" BUILD="${BUILD:-build}" \
	${FUSE_PREFIX:+FUSE_PREFIX="$FUSE_PREFIX"} >/dev/null
root=$T/root/usr
for file in bin/sluice bin/runner bin/ossd lib/libsluice.so \
	lib/libsluice.a include/sluice.h lib/pkgconfig/sluice.pc share/man/man8/sluice.8 \
	share/bash-completion/completions/sluice share/zsh/site-functions/_sluice \
	share/fish/vendor_completions.d/sluice.fish share/man/man1/runner.1; do
	[ -e "$root/$file" ] || fail "not installed: $file"
done
[ "$(readlink "$T/root/sbin/mount.sluice")" = /usr/bin/sluice ] || fail "no mount.sluice"
exported=$(nm -D --defined-only "$root/lib/libsluice.so" | awk '$2 == "T" {print $3}' |
	grep -v '^sluice_' || true)
[ -z "$exported" ] || fail "exports names that are not its own: $exported"

export PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$T/root
sanitizer=
case ${BUILD:-} in *san-*) sanitizer=-fsanitize=${BUILD##*san-} sanitizer=${sanitizer//-undefined/,undefined} ;; esac
# shellcheck disable=SC2046,SC2086
gcc -Wall -Werror -o "$T/probe" "$top/tests/fs/libsluice_probe.c" $sanitizer \
	$(pkg-config --cflags --libs sluice) -Wl,-rpath,"$root/lib"

mkdir -p "$T/store/d"
echo hello >"$T/store/a"
head -c 1000000 /dev/urandom >"$T/store/d/big"
expect_rc 0 timeout 60 "$T/probe" "file://$T/store" "$T/cache" "$T/state"
cmp "$T/store/d/big" "$T/store/copies/of/big"
[ ! -e "$T/store/gone" ] || fail "a removed file is in the store"
