#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo's training program alone, without containers: parameter servers and workers that
# find each other by TF_CONFIG learn something, and write what can be checked.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
data=/usr/share/datasets/fashion-mnist
[ -e "$data/train-images-idx3-ubyte.gz" ] || skip "dataset-fashion-mnist is not installed"
/usr/bin/python3 -c 'import numpy' 2>/dev/null || skip "python3-numpy is not installed"
job=$top/scripts/demo-job

# A tenth of the data: enough to learn from, and quick.
mkdir "$T/input"
/usr/bin/python3 - "$data" "$T/input" <<'PY'
import gzip, struct, sys
for kind, n in (("train", 6000), ("t10k", 1000)):
    for what, size in (("images-idx3", 784), ("labels-idx1", 1)):
        name = f"{kind}-{what}-ubyte.gz"
        data = gzip.open(f"{sys.argv[1]}/{name}").read()
        head = 4 + 4 * data[3]
        with gzip.open(f"{sys.argv[2]}/{name}", "wb", 1) as f:
            f.write(data[:4] + struct.pack(">I", n) + data[8:head] + data[head:head + n * size])
PY

free_port() { /usr/bin/python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
# start TASK INDEX OUTPUT OPTION…: one process of the cluster; its id is in $pid.
start() {
	local kind=$1 index=$2 output=$3
	shift 3
	TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"$kind\",\"index\":$index},\"environment\":\"cloud\"}" \
		/usr/bin/python3 -u "$job/train.py" --input "$T/input" --output "$output" \
		--hidden 32 --epochs 8 --learning-rate 0.05 "$@" >"$T/$kind-$index.out" 2>&1 &
	pid=$!
	defer stop_pid "$pid"
}
# check_results OUTPUT: what the files say, computed without the program's own code.
check_results() {
	/usr/bin/python3 - "$T/input" "$1" <<'PY'
import gzip, json, sys, numpy as np
inp, out = sys.argv[1:]
x = np.frombuffer(gzip.open(f"{inp}/t10k-images-idx3-ubyte.gz").read()[16:], np.uint8)
y = np.frombuffer(gzip.open(f"{inp}/t10k-labels-idx1-ubyte.gz").read()[8:], np.uint8)
c = np.load(f"{out}/checkpoints/final.npz")
answer = (np.maximum(x.reshape(-1, 784) / 255 @ c["w1"] + c["b1"], 0) @ c["w2"] + c["b2"]).argmax(1)
accuracy = (answer == y).mean()
assert abs(accuracy - float(c["accuracy"])) < 0.002, (accuracy, c["accuracy"])
print("accuracy", accuracy)
assert accuracy > 0.72, accuracy
losses = [json.loads(l)["loss"] for l in open(f"{out}/scalars/worker-0.jsonl") if "loss" in l]
assert len(losses) >= 2 and losses[-1] < 0.8 * losses[0], losses
PY
	grep -q '^.* final test accuracy 0\.[789]' "$1/logs/worker-0.log" || fail "no accuracy in the log"
	[ -e "$1/checkpoints/epoch-08.npz" ] && [ ! -e "$1/checkpoints/epoch-08.npz.tmp" ]
}

# One server, two workers, updates as they arrive; the server ends well when it is told to.
cluster="{\"ps\":[\"127.0.0.1:$(free_port)\"],\"worker\":[\"a:1\",\"b:1\"]}"
start worker 0 "$T/one"; w0=$pid   # before the server is there
start ps 0 "$T/one"; ps0=$pid
start worker 1 "$T/one"; w1=$pid
wait "$w0" || fail "worker 0: $(tail -n 3 "$T/worker-0.out")"
wait "$w1" || fail "worker 1: $(tail -n 3 "$T/worker-1.out")"
kill -TERM "$ps0"
wait "$ps0" || fail "the server ended with $?: $(tail -n 3 "$T/ps-0.out")"
check_results "$T/one"

# Two servers with a slice each, in step: then one run is like the other, to the last bit.
for run in two three; do
	cluster="{\"ps\":[\"127.0.0.1:$(free_port)\",\"127.0.0.1:$(free_port)\"],\"worker\":[\"a:1\",\"b:1\"]}"
	start ps 0 "$T/$run" --mode sync; ps0=$pid
	start ps 1 "$T/$run" --mode sync; ps1=$pid
	start worker 0 "$T/$run" --mode sync; w0=$pid
	start worker 1 "$T/$run" --mode sync; w1=$pid
	wait "$w0" || fail "worker 0: $(tail -n 3 "$T/worker-0.out")"
	wait "$w1" || fail "worker 1: $(tail -n 3 "$T/worker-1.out")"
	kill -TERM "$ps0" "$ps1"
	check_results "$T/$run"
done
/usr/bin/python3 -c 'import sys, numpy as np; a, b = map(np.load, sys.argv[1:])
assert all((a[k] == b[k]).all() for k in ("w1", "b1", "w2", "b2"))' \
	"$T"/two/checkpoints/final.npz "$T"/three/checkpoints/final.npz || fail "sync runs differ"

# The event file is what TensorBoard expects: lengths and checksums, known by their standard value.
(cd "$job" && /usr/bin/python3 - "$T"/two/tensorboard/worker-0/events.* <<'PY'
import struct, sys, events
crc = 0xE3069283  # CRC-32C of "123456789", of every publication of it
assert events.masked_crc32c(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
data, count = open(sys.argv[1], "rb").read(), 0
while data:
    n, = struct.unpack("<Q", data[:8])
    assert struct.unpack("<I", data[8:12])[0] == events.masked_crc32c(data[:8])
    assert struct.unpack("<I", data[12 + n:16 + n])[0] == events.masked_crc32c(data[12:12 + n])
    data, count = data[16 + n:], count + 1
assert count > 3, count
PY
)

# Damaged data is named, and no result is left that could be taken for one.
echo junk | gzip >"$T/input/train-labels-idx1-ubyte.gz"
expect_rc 1 env -u TF_CONFIG /usr/bin/python3 "$job/train.py" --input "$T/input" --output "$T/bad"
grep -q 'train-labels-idx1-ubyte.gz: not an IDX file' "$T/err" || fail "$(tail -n 1 "$T/err")"
[ ! -e "$T/bad/checkpoints" ]
