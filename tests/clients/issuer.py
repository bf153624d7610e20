"""An issuer of tokens with public keys: its key set over HTTP, and tokens that its keys sign."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms


def _key_for(algorithm: str) -> Any:
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(kw_only=True)
class Issuer:
    """`private`: its keys by their ids; those of `published` are in the set. `status`: of its answers."""

    private: dict[str, Any] = field(default_factory=dict)
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: int = 0
    status: int = 200
    url: str = ""

    def publish(self, key_id: str, algorithm: str) -> None:
        """A new key. Its entry in the set does not say what it is for, as many issuers' do not."""
        private = self.private[key_id] = _key_for(algorithm)
        public = get_default_algorithms()[algorithm].to_jwk(private.public_key(), as_dict=True)
        self.published[key_id] = public | {"kid": key_id}

    def token(
        self, key_id: str, algorithm: str, *, user: str, header: dict[str, Any] | None = None, **more: Any
    ) -> str:
        claims = {"sub": user, "exp": int(time.time()) + 3600} | more
        return jwt.encode(claims, self.private[key_id], algorithm=algorithm, headers={"kid": key_id} | (header or {}))


@contextmanager
def serving_issuer() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked += 1
            body = json.dumps({"keys": list(issuer.published.values())}).encode()
            self.send_response(issuer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_port}/.well-known/jwks.json"
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
