"""An S3 server for tests: moto's, behind a gate that can be told to misbehave.

    server.py [--lose SHARE] [--refuse SHARE] [--deaf HEADER] [--racy] [--seed N]

Prints its port once it answers; ends when its standard input does. It has a bucket named "pool". One request at a time, so that a look and the put after
it are one step.

--lose    of so large a share of puts and deletes the answer is lost: they have taken effect, and the client is told 500
--refuse  so large a share of all requests is answered 503, and has no effect
--deaf    the server does not hear this header (if-match, if-none-match)
--racy    the server looks whether an object is the version that If-Match names, and puts a moment later
"""

import argparse
import io
import random
import sys
import threading
import time

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Gate:
    def __init__(self, app, said):
        self.app, self.said = app, said
        self.dice = random.Random(said.seed)
        self.alone = threading.Lock()

    def __call__(self, environ, start_response):
        # The whole of it is taken in, whatever becomes of it: the next request comes on the same connection.
        if not environ.get("wsgi.input_terminated"):
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
        with self.alone:
            refused, lost = self.dice.random() < self.said.refuse, self.dice.random() < self.said.lose
        if refused:
            return fail(start_response, "503 Slow Down", b"<Error><Code>SlowDown</Code><Message>Later.</Message></Error>")
        if self.said.deaf:
            environ.pop("HTTP_" + self.said.deaf.upper().replace("-", "_"), None)
        if self.said.racy and "HTTP_IF_MATCH" in environ:
            wanted = environ.pop("HTTP_IF_MATCH")
            if self.version_of(environ) != wanted:
                return fail(start_response, "412 Precondition Failed", b"<Error><Code>PreconditionFailed</Code></Error>")
            time.sleep(0.5)
        with self.alone:
            answer = list(self.app(environ, start_response if not lost_by(environ, lost) else drop))
        if lost_by(environ, lost):
            return fail(start_response, "500 Internal Server Error", b"<Error><Code>InternalError</Code><Message>Lost.</Message></Error>")
        return answer


    def version_of(self, environ):
        told = {}
        look = dict(environ, REQUEST_METHOD="HEAD", CONTENT_LENGTH="0")
        look["wsgi.input"] = io.BytesIO(b"")
        with self.alone:
            list(self.app(look, lambda _status, headers, _exc_info=None: told.update({k.lower(): v for k, v in headers})))
        return told.get("etag")


def lost_by(environ, lost):
    return lost and environ["REQUEST_METHOD"] in ("PUT", "DELETE")


def drop(_status, _headers, _exc_info=None):
    return lambda _bytes: None


def fail(start_response, status, body):
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lose", type=float, default=0)
    parser.add_argument("--refuse", type=float, default=0)
    parser.add_argument("--deaf", default="")
    parser.add_argument("--racy", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    app = DomainDispatcherApplication(create_backend_app)
    gate = Gate(app, said)
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=Handler)
    from moto.s3.models import s3_backends

    s3_backends["123456789012"]["aws"].create_bucket("pool", "us-east-1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


main()
