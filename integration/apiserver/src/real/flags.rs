//! The flags of the two programs: rights and admission as on any cluster, nothing that needs a network.

use super::Real;

pub(super) fn etcd(folder: &str, clients: u16, peers: u16) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let flags = [
        ("data-dir", folder.to_string()),
        ("listen-client-urls", url(clients)),
        ("advertise-client-urls", url(clients)),
        ("listen-peer-urls", url(peers)),
        ("initial-advertise-peer-urls", url(peers)),
        ("initial-cluster", format!("default={}", url(peers))),
        // What a test wrote need not outlive the machine.
        ("unsafe-no-fsync", "true".to_string()),
    ];
    spelt(&flags)
}

pub(super) fn server(of: &Real) -> Vec<String> {
    let word = str::to_string;
    let flags = [
        ("etcd-servers", format!("http://127.0.0.1:{}", of.etcd_port)),
        ("secure-port", of.client.port.to_string()),
        ("bind-address", word("127.0.0.1")),
        // No client uses this address, but the server refuses loopback, and without a route it finds no default.
        ("advertise-address", word("192.0.2.1")),
        ("endpoint-reconciler-type", word("none")),
        ("service-cluster-ip-range", word("10.96.0.0/16")),
        ("tls-cert-file", of.client.path("serving.pem")),
        ("tls-private-key-file", of.client.path("serving.key")),
        ("client-ca-file", of.client.path("ca.pem")),
        ("kubelet-client-certificate", of.client.path("kubelets.pem")),
        ("kubelet-client-key", of.client.path("kubelets.key")),
        ("kubelet-preferred-address-types", word("Hostname")),
        ("authorization-mode", word("Node,RBAC")),
        ("enable-admission-plugins", word("NodeRestriction")),
        ("enable-bootstrap-token-auth", word("true")),
        (
            "service-account-issuer",
            word("https://kubernetes.default.svc"),
        ),
        ("service-account-key-file", of.client.path("accounts.pub")),
        (
            "service-account-signing-key-file",
            of.client.path("accounts.key"),
        ),
        ("allow-privileged", word("true")),
        ("shutdown-delay-duration", word("0s")),
    ];
    spelt(&flags)
}

fn spelt(flags: &[(&str, String)]) -> Vec<String> {
    let one = |(name, value): &(&str, String)| format!("--{name}={value}");
    flags.iter().map(one).collect()
}
