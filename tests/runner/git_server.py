#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""git over http for tests: `git http-backend` behind a small server on a port of its own.

git_server.py ROOT: serves the repositories below ROOT; prints the port once it listens; ends
when its standard input does.
/auth/X is repository X with basic authentication (user "who", password "s3cret", or any
user with the token "t0ken"); /elsewhere/X answers with a redirect to X under another host name.
"""
import base64
import http.server
import os
import subprocess
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, headers=(), data=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def allowed(self):
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            return False
        user, _, password = base64.b64decode(value).decode().partition(":")
        return (user, password) == ("who", "s3cret") or password == "t0ken"

    def serve(self):
        path, _, query = self.path.partition("?")
        data = self.body()
        if path.startswith("/elsewhere/"):
            where = path[len("/elsewhere"):] + ("?" + query if query else "")
            where = f"http://localhost:{server.server_port}{where}"
            return self.answer(302, [("Location", where)])
        if path.startswith("/auth/"):
            if not self.allowed():
                return self.answer(401, [("WWW-Authenticate", 'Basic realm="test"')])
            path = path[len("/auth"):]
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": sys.argv[1],
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(data)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=data, env=env, check=False,
                              stdout=subprocess.PIPE)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        status, headers = 200, []
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            if name == "Status":
                status = int(value.split()[0])
            elif name:
                headers.append((name, value))
        return self.answer(status, headers, rest)

    do_GET = do_POST = serve

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args):
        """A client that goes away in the middle is part of the tests."""


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
