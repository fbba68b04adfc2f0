#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 in the middle of PUTs, parts, appends and deletes, several times over: what was
# answered is there, everything is whole, nothing is half.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir "$T/oss"
start() {
	rm -f "$T/ossd.out" # the former one's "ready"
	"$bin/ossd" --root "$T/oss" --listen 127.0.0.1:0 --no-auth --bucket data --part-min 1 \
		>"$T/ossd.out" 2>>"$T/ossd.err" &
	pid=$!
	defer stop_pid "$pid"
	eventually 30 grep -q ^ready "$T/ossd.out"
	url=$(sed -n 's/^ready //p' "$T/ossd.out")/data
}

# content KEY ROUND: a body that tells which write it is, of a size of its own.
content() { awk -v t="$1 $2" -v n=$((20000 + $2 % 7 * 9000)) 'BEGIN {while (n > 0) {print t; n -= length(t) + 1}}'; }

# Writes until the server dies; a line in "acked" for each answer.
writer() {
	local n=$1 i
	for ((i = 0; ; i++)); do
		content "w$n/k$((i % 5))" "$round$i" >"$T/body.$n"
		curl -sf -m 5 -o "$T/answer.$n" -T "$T/body.$n" "$url/w$n/k$((i % 5))" || return 0
		echo "put w$n/k$((i % 5)) $round$i" >>"$T/acked.$n"
		[ $((i % 4)) -eq 3 ] || continue
		curl -sf -m 5 -X DELETE "$url/w$n/k$((i % 5))" || return 0
		echo "del w$n/k$((i % 5)) -" >>"$T/acked.$n"
	done
}

appender() {
	local at=0 i
	curl -sf -m 5 -X DELETE "$url/log"
	: >"$T/acked.log"
	for ((i = 0; ; i++)); do
		printf 'line %06d\n' $i >"$T/line"
		curl -sf -m 5 -X POST --data-binary "@$T/line" "$url/log?append&position=$at" || return 0
		at=$((at + 12))
		echo $at >"$T/acked.log"
	done
}

# The last acknowledged state of each key of a writer must be there, or the one write that
# was under way when the server died.
verify() {
	local n=$1 key kind what got
	for key in $(cut -d' ' -f2 "$T/acked.$n" | sort -u); do
		read -r kind _ what < <(grep " $key " "$T/acked.$n" | tail -n 1)
		got=$(curl -s -o "$T/got" -w '%{http_code}' "$url/$key")
		if [ "$got" = 404 ]; then
			# The next step after this state may have been the delete of this key.
			[ "$kind" = del ] || [ "$(tail -n 1 "$T/acked.$n" | cut -d' ' -f2)" = "$key" ] ||
				fail "$key: $what was acknowledged and is gone"
			continue
		fi
		[ "$got" = 200 ] || fail "$key: status $got"
		read -r _ what < <(head -n 1 "$T/got")
		content "$key" "$what" | cmp -s - "$T/got" || fail "$key: torn"
		cmp -s "$T/got" "$T/oss/data/$key" || fail "$key: the file is another"
		local acked
		acked=$(grep "^put $key " "$T/acked.$n" | tail -n 1 | cut -d' ' -f3)
		[ "$what" -ge "${acked:-0}" ] || fail "$key: is $what, acknowledged was $acked"
	done
}

busy() { [ "$(wc -l <"$T/acked.1")" -gt 5 ] && [ "$(wc -l <"$T/acked.2")" -gt 5 ]; }

start
for round in 1 2 3 4; do
	round=${round}0000
	: >"$T/acked.1"
	: >"$T/acked.2"
	writer 1 &
	w1=$!
	writer 2 &
	w2=$!
	appender &
	w3=$!
	eventually 30 busy
	sleep 0.$((RANDOM % 5))
	kill -9 "$pid"
	wait "$w1" "$w2" "$w3" || true
	wait "$pid" 2>/dev/null || true
	start
	verify 1
	verify 2
	acked=$(cat "$T/acked.log")
	size=$(curl -sf "$url/log" | tee "$T/log" | wc -c)
	[ "$size" -eq "${acked:-0}" ] || [ "$size" -eq $((acked + 12)) ] ||
		fail "log has $size bytes, $acked were acknowledged"
	[ "$(curl -sfI "$url/log" | tr -d '\r' | awk 'tolower($1) == "content-length:" {print $2}')" = "$size" ]
	awk '{if ($0 != sprintf("line %06d", NR - 1)) exit 1}' "$T/log" || fail "log is torn"
	[ -z "$(find "$T/oss/.ossd/tmp" -type f)" ] || fail "temporary files are left"
done

# An upload with parts survives; an interrupted Complete can be done again.
content p 1 >"$T/p1"
content p 2 >"$T/p2"
id=$(curl -sf -X POST "$url/mp?uploads" | grep -o '<UploadId>[^<]*' | cut -d'>' -f2)
curl -sf -T "$T/p1" "$url/mp?partNumber=1&uploadId=$id"
curl -sf -T "$T/p2" "$url/mp?partNumber=2&uploadId=$id"
kill -9 "$pid"
start
curl -sf -X POST -H 'x-oss-complete-all: yes' "$url/mp?uploadId=$id" >"$T/answer"
cat "$T/p1" "$T/p2" | cmp - "$T/oss/data/mp"
[ -z "$(ls "$T/oss/.ossd/uploads")" ] || fail "parts are left behind"
