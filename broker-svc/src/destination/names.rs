//! Names that are never looked up: they mean this host, its own network or its cluster, whatever an address says. Pure.

/// Names under which clouds serve machine identities.
const METADATA: &[&str] = &[
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
    "rancher-metadata",
];

/// Last labels of names that exist only on one host, one network or in one cluster.
const INNER_SUFFIXES: &[&str] = &[
    // This host (RFC 6761) and what distributions call it.
    "localhost",
    "localdomain",
    // The local link (RFC 6762) and private networks (RFC 8375, ICANN's name collisions, the reserved `internal`).
    "local",
    "home.arpa",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    // A cluster's services and pods: `cluster.local` falls under `local`.
    "svc",
    "pod",
    // Addresses in disguise and other networks than the Internet.
    "in-addr.arpa",
    "ip6.arpa",
    "onion",
    "alt",
    // Names that are promised never to exist.
    "invalid",
    "test",
];

/// What a name is before any lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// One that the public name system may know.
    Public,
    /// This host, its network, its cluster, or relative to a search list.
    Inner,
    /// A metadata service.
    Metadata,
}

/// Classifies a name in its normal form. A single label is `Inner`: what it means depends on the resolver's search list.
pub fn of(name: &str) -> Name {
    if METADATA.contains(&name) {
        return Name::Metadata;
    }
    let below = |suffix: &&str| name.strip_suffix(*suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    // `a.namespace.svc.example.org` is a cluster of another domain: the label is enough.
    let cluster = name.split('.').any(|label| label == "svc");
    match !name.contains('.') || cluster || INNER_SUFFIXES.iter().any(below) {
        true => Name::Inner,
        false => Name::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_host_its_network_and_its_cluster_are_inner() {
        for name in [
            "localhost",
            "api.localhost",
            "localhost.localdomain",
            "printer",
            "kubernetes",
            "printer.local",
            "nas.lan",
            "router.home.arpa",
            "vault.corp",
            "db.internal",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "api.payments.svc.example.org",
            "10-0-0-1.default.pod.cluster.local",
            "1.0.0.127.in-addr.arpa",
            "x.onion",
            "x.test",
            "x.invalid",
        ] {
            assert_eq!(of(name), Name::Inner, "{name}");
        }
        for name in ["metadata.google.internal", "metadata", "instance-data"] {
            assert_eq!(of(name), Name::Metadata, "{name}");
        }
    }

    #[test]
    fn names_that_only_look_like_them_are_public() {
        for name in ["localhost.com", "mylocalhost.org", "internal.example.com", "svc-1.example.com", "x.locals", "a.b"]
        {
            assert_eq!(of(name), Name::Public, "{name}");
        }
    }
}
