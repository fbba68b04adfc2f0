#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A parameter-server training in Python and numpy.

A network of one hidden layer learns to tell the ten kinds of clothes of Fashion-MNIST apart.
The parameters live in the ps replicas, a slice in each; a worker computes gradients on its
share of the images, sends each slice to its owner and gets the newest values back. Updates
are applied as they arrive (--mode async), or once all workers have sent one (--mode sync).

TF_CONFIG says who this process is and where the others are, as TensorFlow has it. Without
it the process is its own parameter server and only worker:

    python3 train.py --input /usr/share/datasets/fashion-mnist --output /tmp/out

Reads  INPUT/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz
Writes OUTPUT/logs/<task>.log               what is printed
       OUTPUT/scalars/<task>.jsonl          loss and accuracy by step
       OUTPUT/tensorboard/<task>/           the same as TensorBoard's event file
       OUTPUT/checkpoints/epoch-NN.npz      parameters, from worker 0; final.npz at the end
"""
import argparse
import gzip
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # replicas share the cores, threads not

import numpy as np  # noqa: E402

import events  # noqa: E402

PIXELS, KINDS = 28 * 28, 10
CONNECT_S = 120
PUSH, PULL, BARRIER = b"G", b"P", b"B"
HEAD = struct.Struct("<cQ")  # what, bytes that follow


# ---- the network ----------------------------------------------------------------------------


class Network:
    """Two layers; the parameters are one flat vector, so that it can be cut anywhere."""

    def __init__(self, hidden):
        self.shapes = [(PIXELS, hidden), (hidden,), (hidden, KINDS), (KINDS,)]
        self.size = sum(int(np.prod(s)) for s in self.shapes)

    def initial(self):
        rng = np.random.default_rng(1)
        parts = [rng.normal(0, np.sqrt(2 / s[0]), s) if len(s) == 2 else np.zeros(s)
                 for s in self.shapes]
        return np.concatenate([p.ravel() for p in parts]).astype(np.float32)

    def split(self, flat):
        parts, at = [], 0
        for shape in self.shapes:
            n = int(np.prod(shape))
            parts.append(flat[at:at + n].reshape(shape))
            at += n
        return parts

    def gradient(self, flat, images, labels):
        """(mean loss, gradient) of a batch."""
        w1, b1, w2, b2 = self.split(flat)
        hidden = np.maximum(images @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(p[rows, labels] + 1e-9).mean()
        p[rows, labels] -= 1
        p /= len(labels)
        below = (p @ w2.T) * (hidden > 0)
        parts = [images.T @ below, below.sum(axis=0), hidden.T @ p, p.sum(axis=0)]
        return float(loss), np.concatenate([g.ravel() for g in parts]).astype(np.float32)

    def accuracy(self, flat, images, labels):
        w1, b1, w2, b2 = self.split(flat)
        right = 0
        for at in range(0, len(labels), 2000):
            x = scaled(images[at:at + 2000])
            answer = (np.maximum(x @ w1 + b1, 0) @ w2 + b2).argmax(axis=1)
            right += int((answer == labels[at:at + 2000]).sum())
        return right / len(labels)


# ---- data -----------------------------------------------------------------------------------


def read_idx(path):
    """An array of the IDX format: two zero bytes, type, dimensions, sizes, values."""
    with gzip.open(path) as f:
        data = f.read()
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of bytes")
    count = data[3]
    sizes = struct.unpack(f">{count}I", data[4:4 + 4 * count])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * count).reshape(sizes)


def load(folder, kind):
    images = read_idx(os.path.join(folder, f"{kind}-images-idx3-ubyte.gz"))
    labels = read_idx(os.path.join(folder, f"{kind}-labels-idx1-ubyte.gz"))
    if len(images) != len(labels):
        raise ValueError(f"{folder}: {len(images)} images but {len(labels)} labels")
    return images.reshape(len(images), PIXELS), labels


def scaled(images):
    return images.astype(np.float32) / 255


# ---- messages -------------------------------------------------------------------------------


def receive_exactly(conn, n):
    data = bytearray(n)
    view, at = memoryview(data), 0
    while at < n:
        got = conn.recv_into(view[at:])
        if got == 0:
            raise ConnectionError("the other side has closed the connection")
        at += got
    return data


def send(conn, what, payload=b""):
    conn.sendall(HEAD.pack(what, len(payload)))
    conn.sendall(payload)


def receive(conn):
    what, n = HEAD.unpack(receive_exactly(conn, HEAD.size))
    return what, receive_exactly(conn, n)


# ---- parameter server -----------------------------------------------------------------------


class ParameterServer:
    """One slice of the parameters and its momentum; a thread per worker."""

    def __init__(self, values, workers, options):
        self.values = values
        self.speed = np.zeros_like(values)
        self.sum = np.zeros_like(values)  # sync: of the gradients of this round
        self.workers = workers
        self.options = options
        self.changed = threading.Condition()
        self.arrived = self.round = self.updates = 0
        self.waiting = self.barriers = 0

    def apply(self, gradient):
        self.speed *= self.options.momentum
        self.speed -= self.options.learning_rate * gradient
        self.values += self.speed
        self.updates += 1

    def push(self, gradient):
        with self.changed:
            if self.options.mode == "async":
                self.apply(gradient)
                return
            self.sum += gradient
            self.arrived += 1
            mine = self.round
            if self.arrived == self.workers:
                self.apply(self.sum / self.workers)
                self.sum[:] = 0
                self.arrived = 0
                self.round += 1
                self.changed.notify_all()
            else:
                self.changed.wait_for(lambda: self.round > mine)

    def barrier(self):
        with self.changed:
            mine = self.barriers
            self.waiting += 1
            if self.waiting == self.workers:
                self.waiting = 0
                self.barriers += 1
                self.changed.notify_all()
            else:
                self.changed.wait_for(lambda: self.barriers > mine)

    def serve_worker(self, conn, peer):
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                what, payload = receive(conn)
                if what == PUSH:
                    self.push(np.frombuffer(payload, np.float32))
                elif what == BARRIER:
                    self.barrier()
                with self.changed:
                    values = self.values.tobytes()
                send(conn, what, values)
        except ConnectionError:
            say(f"worker at {peer} has left after {self.updates} updates")
        finally:
            conn.close()

    def serve(self, listener):
        while True:
            conn, peer = listener.accept()
            say(f"worker at {peer[0]} has come")
            threading.Thread(target=self.serve_worker, args=(conn, peer[0]),
                             daemon=True).start()


def slices(size, count):
    """Where the parameters are cut: one (from, to) for each server."""
    cuts = [size * i // count for i in range(count + 1)]
    return list(zip(cuts, cuts[1:]))


def start_server(network, address, index, servers, workers, options):
    low, high = slices(network.size, servers)[index]
    server = ParameterServer(network.initial()[low:high].copy(), workers, options)
    listener = socket.create_server(address, backlog=128)
    say(f"serving parameters {low} to {high} of {network.size} on port "
        f"{listener.getsockname()[1]}, {options.mode}")
    return server, listener


# ---- worker ---------------------------------------------------------------------------------


class Parameters:
    """The servers as a worker sees them: one vector."""

    def __init__(self, addresses, size):
        self.slices = slices(size, len(addresses))
        self.conns = [self.connect(a) for a in addresses]
        self.values = np.empty(size, np.float32)

    @staticmethod
    def connect(address):
        until = time.monotonic() + CONNECT_S
        while True:
            try:
                conn = socket.create_connection(address, timeout=CONNECT_S)
            except OSError as e:
                if time.monotonic() > until:
                    raise SystemExit(f"no parameter server at {address[0]}:{address[1]}: {e}")
                time.sleep(0.1)
                continue
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return conn

    def exchange(self, what, gradient=None):
        """Sends to all, then reads from all: the servers work at the same time."""
        for conn, (low, high) in zip(self.conns, self.slices):
            send(conn, what, b"" if gradient is None else gradient[low:high].tobytes())
        for conn, (low, high) in zip(self.conns, self.slices):
            self.values[low:high] = np.frombuffer(receive(conn)[1], np.float32)
        return self.values


def save(folder, name, network, flat, **more):
    """Complete or not at all: a checkpoint appears under its name by a rename."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path + ".tmp", "wb") as f:
        np.savez(f, **dict(zip(("w1", "b1", "w2", "b2"), network.split(flat))), **more)
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)
    say(f"saved {path}")


def train(network, addresses, index, workers, options):
    images, labels = load(options.input, "train")
    tests = load(options.input, "t10k") if index == 0 else None
    mine = np.arange(index, len(labels) - len(labels) % workers, workers)
    steps = len(mine) // options.batch
    rng = np.random.default_rng(100 + index)
    parameters = Parameters(addresses, network.size)
    task = f"worker-{index}"
    scalars = events.Scalars(options.output, task)
    checkpoints = os.path.join(options.output, "checkpoints")
    values = parameters.exchange(PULL)
    step, first, mean = 0, None, None

    say(f"{len(mine)} of {len(labels)} images, {options.epochs} epochs of {steps} steps")
    for epoch in range(1, options.epochs + 1):
        rng.shuffle(mine)
        begin = time.monotonic()
        for at in range(steps):
            rows = mine[at * options.batch:(at + 1) * options.batch]
            loss, gradient = network.gradient(values, scaled(images[rows]), labels[rows])
            gradient *= 1 - 0.9 * step / (steps * options.epochs)  # smaller steps to the end
            values = parameters.exchange(PUSH, gradient)
            step += 1
            mean = loss if mean is None else 0.95 * mean + 0.05 * loss
            if step == 20:
                first = mean
            if step % 50 == 0:
                scalars.add(step, loss=mean)
        rate = steps * options.batch / (time.monotonic() - begin)
        say(f"epoch {epoch}: loss {mean:.4f}, {rate:.0f} images/s")
        if tests:
            accuracy = network.accuracy(values, *tests)
            say(f"epoch {epoch}: test accuracy {accuracy:.4f}")
            scalars.add(step, accuracy=accuracy)
            save(checkpoints, f"epoch-{epoch:02}.npz", network, values, epoch=epoch)
    values = parameters.exchange(BARRIER)
    if tests:
        accuracy = network.accuracy(values, *tests)
        save(checkpoints, "final.npz", network, values, accuracy=accuracy)
        scalars.add(step + 1, accuracy=accuracy)
        say(f"final test accuracy {accuracy:.4f}")
    scalars.close()
    if first is not None and not mean < first:
        raise SystemExit(f"the loss did not fall: {first:.4f} at step 20, {mean:.4f} at the end")


# ---- this process ---------------------------------------------------------------------------

log = None


def say(text):
    print(text, flush=True)
    if log:
        print(time.strftime("%H:%M:%S"), text, file=log, flush=True)


def address_of(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def parse_options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--input", default="/input")
    p.add_argument("--output", default="/output")
    p.add_argument("--epochs", type=positive, default=3)
    p.add_argument("--batch", type=positive, default=100)
    p.add_argument("--hidden", type=positive, default=64)
    p.add_argument("--learning-rate", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.8)
    p.add_argument("--mode", choices=("async", "sync"), default="async")
    return p.parse_args()


def main():
    global log
    options = parse_options()
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    kind = config.get("task", {}).get("type", "worker")
    index = int(config.get("task", {}).get("index", 0))
    servers = config.get("cluster", {}).get("ps", [])
    workers = len(config.get("cluster", {}).get("worker", ["alone"]))
    network = Network(options.hidden)

    # The server is stopped when the workers have ended: that is a good end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0 if kind == "ps" else 143))
    os.makedirs(os.path.join(options.output, "logs"), exist_ok=True)
    with open(os.path.join(options.output, "logs", f"{kind}-{index}.log"), "a") as log:
        if kind == "ps":
            port = address_of(servers[index])[1]
            server, listener = start_server(network, ("", port), index, len(servers),
                                            workers, options)
            server.serve(listener)
        elif kind != "worker":
            raise SystemExit(f"this program knows ps and worker, not {kind}")
        if not servers:
            server, listener = start_server(network, ("127.0.0.1", 0), 0, 1, 1, options)
            threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
            servers = [f"127.0.0.1:{listener.getsockname()[1]}"]
        train(network, [address_of(s) for s in servers], index, workers, options)


if __name__ == "__main__":
    main()
