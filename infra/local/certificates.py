"""Certificate authorities, certificates and kubeconfigs of a local cluster."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.local.key_files import write_kubeconfigs, write_private
from infra.local.settings import (
    API_SERVICE_ADDRESS,
    CLUSTER_DOMAIN,
    CONTROL_PLANE_ADDRESS,
    ClusterSettings,
    node_address,
)

CERTIFICATE_LIFETIME = datetime.timedelta(days=3650)
"""Lifetime of each certificate: longer than that of any local cluster, because nothing renews certificates."""


class Authority:
    """Certificate authority. Its certificate and key are in `folder` as `<name>.crt` and `<name>.key`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"trainyard-{name}")])
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        write_private(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        write_private(folder / f"{name}.key", _private_pem(self._key))

    def issue(self, name: str, user: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """Write `<name>.crt` and `<name>.key` for `user` in `groups`, valid for the names and addresses `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        builder = (
            _builder(x509.Name(subject), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        write_private(self.folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        write_private(self.folder / f"{name}.key", _private_pem(key))


def make_keys(settings: ClusterSettings) -> None:
    """Create all keys, certificates and kubeconfigs of a cluster in its `keys` folder, with mode 0600."""
    folder = settings.keys
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    etcd = Authority(folder, "etcd-ca")
    etcd.issue("etcd", "etcd", hosts=["127.0.0.1", "localhost"])
    etcd.issue("apiserver-etcd-client", "kube-apiserver")
    authority = Authority(folder, "ca")
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names += [f"kubernetes.default.svc.{CLUSTER_DOMAIN}", "127.0.0.1", CONTROL_PLANE_ADDRESS, API_SERVICE_ADDRESS]
    authority.issue("apiserver", "kube-apiserver", hosts=names)
    authority.issue("apiserver-kubelet-client", "trainyard:kube-apiserver", groups=["system:masters"])
    signing = ec.generate_private_key(ec.SECP256R1())
    write_private(folder / "service-account.key", _private_pem(signing))
    public = signing.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_private(folder / "service-account.pub", public)
    clients: list[tuple[str, str, list[str]]] = [
        ("admin", "trainyard:admin", ["system:masters"]),
        ("controller-manager", "system:kube-controller-manager", []),
        ("scheduler", "system:kube-scheduler", []),
        ("coredns", "trainyard:coredns", []),
        ("kube-proxy", "system:kube-proxy", []),
    ]
    for index, node in enumerate(settings.node_names):
        clients.append((f"kubelet-{index}", f"system:node:{node}", ["system:nodes"]))
        authority.issue(f"kubelet-{index}-server", f"system:node:{node}", hosts=[node, node_address(index)])
    for name, user, groups in clients:
        authority.issue(name, user, groups=groups)
    write_kubeconfigs(settings)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + CERTIFICATE_LIFETIME)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
