#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A store that answers as badly as can be: every call ends within its deadline, with an
# error, and can be ended at any time by a signal to its caller.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

bad=(stall drip-head drip-body endless-head huge-chunk huge-length redirect storm nothing garbage)
data=$T/oss/data
for how in "${bad[@]}" good; do
	mkdir -p "$data/look-$how" "$data/list-$how"
	for i in 1 2 3; do head -c 1000 /dev/urandom >"$data/list-$how/$i"; done
	head -c 1000 /dev/urandom >"$data/look-$how/small"
	head -c 2000000 /dev/urandom >"$data/large-$how"
	head -c 2000 /dev/urandom >"$data/small-$how"
done
start_ossd --bucket data

# Between the mount and the store: passes everything on, or answers as $T/how says, by which
# "named" is as the key's name says.
cat >"$T/between.py" <<'END'
import http.client, re, socketserver, sys, time
store, how_file = sys.argv[1:]

class Between(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            line = self.rfile.readline()
            if not line.strip():
                return
            headers = {}
            while (header := self.rfile.readline()).strip():
                name, _, value = header.decode("latin-1").partition(":")
                headers[name.strip()] = value.strip()
            method, path, _ = line.decode().split()
            how = open(how_file).read().strip()
            if how == "named":
                named = re.search("(?:look|list|large|small)-([a-z-]+)", path)
                how = named[1] if named else "good"
            if how != "good":
                try:
                    getattr(self, how.replace("-", "_"))()
                except OSError:
                    pass
                return
            self.forward(method, path, headers)

    def forward(self, method, path, headers):
        c = http.client.HTTPConnection(store)
        c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            c.putheader(name, value)
        c.endheaders()
        r = c.getresponse()
        body = r.read()
        head = f"HTTP/1.1 {r.status} {r.reason}\r\n"
        fields = [(k, v) for k, v in r.getheaders()
                  if k.lower() not in ("connection", "transfer-encoding", "content-length")]
        length = r.getheader("Content-Length") if method == "HEAD" else len(body)
        fields.append(("Content-Length", length))
        self.wfile.write((head + "".join(f"{k}: {v}\r\n" for k, v in fields)
                          + "\r\n").encode("latin-1") + body)
        c.close()

    def send(self, text):
        self.wfile.write(text.encode())

    def drip(self, text):
        for c in text:
            self.send(c)
            time.sleep(1)

    # Until the store is well again: then the connection ends.
    def stall(self):
        for _ in range(1000):
            if open(how_file).read().strip() == "good":
                break
            time.sleep(0.1)

    def nothing(self):
        pass

    def garbage(self):
        self.send("\0\1\2 what is this\r\n\r\n" * 100)

    def drip_head(self):
        self.drip("HTTP/1.1 200 OK\r\nETag: " + "x" * 100)

    def drip_body(self):
        self.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        self.drip("<" * 1000)

    def endless_head(self):
        self.send("HTTP/1.1 200 OK\r\n")
        while True:
            self.send("X-More: " + "x" * 1000 + "\r\n")

    def huge_chunk(self):
        self.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.send("ffffffffffffffffff\r\n" + "x" * 100)
        time.sleep(100)

    def huge_length(self):
        self.send("HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999999\r\n\r\nx")
        time.sleep(100)

    def redirect(self):
        self.send("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")

    def storm(self):
        self.send("HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")

class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

server = Server(("127.0.0.1", 0), Between)
print(server.server_address[1], flush=True)
server.serve_forever()
END
echo good >"$T/how"
python3 "$T/between.py" "${OSS_ENDPOINT#http://}" "$T/how" >"$T/between.port" 2>/dev/null &
defer stop_pid $!
eventually 10 test -s "$T/between.port"
OSS_ENDPOINT=http://127.0.0.1:$(<"$T/between.port")

mount_sluice oss://data "$T/in" input --deadline 3s --timeout 2s --io-uring off
cmp "$data/large-good" "$T/in/large-good"
ls "$T/in" >/dev/null
stat -t "$T/in/look-good/small" >/dev/null

# ends COMMAND…: with an error, and long before anybody would give it up.
ends() {
	local rc=0 began=$SECONDS
	timeout -s KILL 60 "$@" >/dev/null 2>"$T/err.$BASHPID" || rc=$?
	[ $rc -ne 0 ] || { echo "$how: succeeded: $*"; return 1; }
	[ $((SECONDS - began)) -le 30 ] || { echo "$how: $((SECONDS - began)) s: $*"; return 1; }
}
echo named >"$T/how"
begin() {
	ends stat "$T/in/look-$how/small" & pids+=($!)
	ends ls "$T/in/list-$how" & pids+=($!)
	ends cat "$T/in/large-$how" & pids+=($!)
	ends cat "$T/in/small-$how" & pids+=($!)
}
# Half of them at once: as many as there are threads to wait.
for half in 0 5; do
	pids=()
	for how in "${bad[@]:half:5}"; do begin; done
	# What needs no store does not wait for it.
	timeout -s KILL 20 stat -f "$T/in" >/dev/null || fail "statfs"
	cmp "$data/large-good" "$T/in/large-good" || fail "what is in the cache"
	for pid in "${pids[@]}"; do wait "$pid" || fail "see above"; done
done

# A caller that waits is free at once.
"$bin/sluice" umount "$T/in"
echo good >"$T/how"
mount_sluice oss://data "$T/in" input --deadline 100s --timeout 100s --io-uring off \
	--cache-dir "$T/cache2"
ls "$T/in" >/dev/null
echo stall >"$T/how"
for signal in INT KILL; do
	# Read-ahead goes on when its reader has gone; where the page cache serves large files,
	# the next open waits for it.
	[ $signal = INT ] && of=stall || of=good
	calls=("stat $T/in/look-$of/small" "ls $T/in/list-$of" "cat $T/in/large-$of"
		"cat $T/in/small-$of")
	for call in "${calls[@]}"; do
		# A shell's background job ignores SIGINT; this one does not.
		# shellcheck disable=SC2086 # a command and its argument
		python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' $call >/dev/null 2>&1 &
		pid=$!
		# As itself: until then it may wait for its interpreter, and ignore SIGINT.
		waits() {
			grep -qsx "${call%% *}" "/proc/$pid/comm" &&
				grep -Eqs "fuse|request_wait|folio_" "/proc/$pid/wchan"
		}
		eventually 30 waits
		kill -"$signal" "$pid"
		eventually 30 dead "$pid"
		wait "$pid" || true
	done
done
echo good >"$T/how"
cmp "$data/large-stall" "$T/in/large-stall"
