"""Certificates: a certificate authority for one test, and the certificates that it signs."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=1)
SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """`file`: its own certificate, which clients are given."""

    file: Path
    _key: ec.EllipticCurvePrivateKey
    _certificate: x509.Certificate

    @classmethod
    def founded(cls, folder: Path, name: str = "authority") -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        called = _called(name)
        is_authority = x509.BasicConstraints(ca=True, path_length=0)
        builder = _certificate(called, called, key).add_extension(is_authority, critical=True)
        builder = builder.add_extension(SIGNS, critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        file = folder / f"{name}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(file=file, _key=key, _certificate=certificate)

    def server(self, address: str = "127.0.0.1") -> ssl.SSLContext:
        """What a server shows that this authority vouches for at this address."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _certificate(_called("server"), self._certificate.subject, key)
        builder = builder.add_extension(names, critical=False).add_extension(issuer, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        pem = self.file.with_name(f"server-{signed.serial_number}.pem")
        pem.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"runyard's tests: {name}")])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
