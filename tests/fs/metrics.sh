#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What "sluice metrics" prints is what Prometheus reads, says what happened, and does not
# grow with the number of files.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

start_ossd --bucket data --region cn-hangzhou
mount_sluice oss://data "$T/results" output
mount_sluice oss://data "$T/inputs" input
store_away
for i in $(seq 20); do echo "secret-name $i" >"$T/results/secret-name$i"; done

# value SERIES: its number, as another reader of the format understands it.
value() {
	"$bin/sluice" metrics >"$T/metrics"
	/usr/bin/python3 - "$T" "$1" <<'EOF'
import sys
from prometheus_client.parser import text_string_to_metric_families as parse

(top, want), seen = sys.argv[1:], {}
for family in parse(open(f"{top}/metrics").read()):
    assert family.type in ("counter", "gauge") and family.documentation, family
    # The parser takes "_total" from a counter's family; all others are named as printed.
    for s in family.samples:
        assert s.name.startswith("sluice_"), s
        assert s.name.endswith("_total") == (family.type == "counter"), s
        if "mount" in s.labels and not s.labels["mount"].startswith(top):
            continue  # of a test beside this one
        mount = s.labels.get("mount", "").rsplit("/", 1)[-1]
        rest = ",".join(v for k, v in sorted(s.labels.items()) if k in ("op", "mode", "role"))
        name = f"{s.name}/{mount}" + (f"/{rest}" if rest else "")
        assert name not in seen, name
        seen[name] = s.value
print(int(seen[want]))
EOF
}
is() { [ "$(value "$1")" = "$2" ]; }
is sluice_up/inputs 1 && is sluice_up/results 1 || fail "who is up: $(<"$T/metrics")"
is sluice_mount_info/results/output 1 || fail 'the role of a mount'
is sluice_pending_files/results 20 || fail "pending: $(value sluice_pending_files/results)"
retried() { [ "$(value sluice_store_retries_total/results)" -gt 0 ]; }
eventually 20 retried
series() { grep -c "{mount=\"$T/" "$T/metrics"; }
many=$(series)
! grep -q secret "$T/metrics" || fail 'a name of a file'

store_back
expect_rc 0 timeout 60 "$bin/sluice" flush "$T/results"
is sluice_pending_files/results 0 || fail 'still pending'
[ "$(value sluice_stored_files_total/results)" -ge 20 ] || fail 'stored'
cat "$T/inputs"/secret-name* >/dev/null
[ "$(value sluice_requests_total/inputs/readdir)" -gt 0 ] || fail 'requests'
[ "$(value sluice_read_bytes_total/inputs)" -gt 0 ] || fail 'bytes read'
[ "$(series)" = "$many" ] || fail 'more series for more files'

# As a file for a collector, whole or not at all; and a mount whose process is gone.
expect_rc 0 "$bin/sluice" metrics --output "$T/sluice.prom" "$T/results"
grep -q '^sluice_up{.*} 1$' "$T/sluice.prom" && ! grep -q "$T/inputs" "$T/sluice.prom" || fail 'the file'
[ "$(stat -c %a "$T/sluice.prom")" = 644 ] || fail 'nobody else can read the file'
expect_rc 78 "$bin/sluice" metrics --output "$T/nowhere/sluice.prom"
expect_rc 78 "$bin/sluice" metrics "$T"
expect_rc 0 "$bin/sluice" umount "$T/results"
mount_sluice oss://data "$T/results" output --restart off
kill -9 "$("$bin/sluice" status "$T/results" --json | jq .pid)"
down() { is sluice_up/results 0; }
eventually 20 down
