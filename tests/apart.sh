#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# apart.sh DIR|- COMMAND…: in a mount name space of its own. Of the FUSE mounts of the host only
# those below DIR are there: a copy of another test's mount would keep that alive.
set -euo pipefail
keep=$1
shift
if [ "$keep" != --inside ]; then
	exec unshare --mount --propagation private "$0" --inside "$keep" "$@"
fi
keep=$1
shift
{ grep ' - fuse' /proc/self/mountinfo || true; } | while read -r _ _ _ _ dir _; do
	[[ $dir == "$keep"/* ]] || umount -l "$dir" || true
done
exec "$@"
