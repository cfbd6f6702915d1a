//! Which addresses are out in the world and which are not. Pure.

mod names;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::{
    origin::Host,
    refusal::{Refusal, Why},
};
use names::Name;

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Out in the world.
    Public,
    /// Private, local, shared, reserved, or another address in disguise: only where `allow_private` lists it.
    Inner,
    /// A metadata service: never.
    Metadata,
}

/// Classifies an address. Forms that embed an IPv4 address are `Inner`, whatever they embed, or `Metadata` if they embed that.
pub fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [169, 254, 169 | 170, _] | [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => Kind::Metadata,
        [0 | 10 | 127, ..] | [100, 64..=127, ..] | [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Inner,
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Kind::Inner
        }
        [224..=255, ..] => Kind::Inner,
        _ => Kind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    let segments = address.segments();
    if embedded(segments).into_iter().flatten().any(|inner| kind_v4(inner) == Kind::Metadata) || metadata_v6(segments) {
        return Kind::Metadata;
    }
    match segments {
        // Protocol assignments: Teredo, benchmarking, ORCHID and their kind.
        [0x2001, 0..=0x1ff, ..] => Kind::Inner,
        // Documentation and 6to4.
        [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => Kind::Inner,
        [0x2000..=0x3fff, _, _, _, a, b, ..] if a & 0xfdff == 0 && b == 0x5efe => Kind::Inner, // ISATAP
        [0x2000..=0x3fff, ..] => Kind::Public,
        // Loopback, unspecified, v4-mapped, NAT64, unique local, link-local, multicast, everything that is not yet given out.
        _ => Kind::Inner,
    }
}

fn metadata_v6(segments: [u16; 8]) -> bool {
    matches!(
        segments,
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254 | 0x23]
            | [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254]
            | [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
    )
}

/// The IPv4 addresses that a form of IPv6 address carries.
fn embedded(segments: [u16; 8]) -> [Option<Ipv4Addr>; 2] {
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let last = pair(segments[6], segments[7]);
    match segments {
        // v4-compatible, v4-mapped, v4-translated, NAT64 with the well-known prefix.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            [Some(last), None]
        }
        // NAT64 with a local prefix: at the end, or behind the /48 around the octet that stays zero.
        [0x64, 0xff9b, 1, a, b, c, ..] => [Some(last), Some(pair(a, (b << 8) | (c >> 8)))],
        [0x2002, a, b, ..] => [Some(pair(a, b)), None],
        // Teredo: the server in clear, the client with every bit turned.
        [0x2001, 0, a, b, ..] => [Some(pair(a, b)), Some(pair(!segments[6], !segments[7]))],
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [Some(last), None],
        _ => [None, None],
    }
}

/// Whether an address may be connected to.
pub fn may_reach(address: IpAddr, allow_private: &[IpNet]) -> bool {
    match kind(address) {
        Kind::Public => true,
        Kind::Inner => listed(address, allow_private),
        Kind::Metadata => false,
    }
}

/// Whether `allow_private` lists the address.
pub fn listed(address: IpAddr, allow_private: &[IpNet]) -> bool {
    allow_private.iter().any(|network| network.contains(&address))
}

/// Refuses a host that can be judged before any lookup: an address literal, or a name that is never looked up.
pub fn check_host(host: &Host, allow_private: &[IpNet]) -> Result<(), Refusal> {
    match host {
        Host::Address(address) => check_addresses(host, &[*address], allow_private),
        Host::Name(name) => match names::of(name) {
            Name::Public => Ok(()),
            Name::Metadata => Err(metadata(host)),
            Name::Inner => Err(Refusal::new(
                Why::PrivateAddress,
                format!(
                    "{host} is a name of this host, its network or its cluster and is never looked up: call a public name, or \
                     an address that [policy] allow_private lists"
                ),
            )),
        },
    }
}

/// Refuses a set of addresses of which any may not be reached.
pub fn check_addresses(host: &Host, addresses: &[IpAddr], allow_private: &[IpNet]) -> Result<(), Refusal> {
    match addresses.iter().all(|address| may_reach(*address, allow_private)) {
        true => Ok(()),
        false if is_metadata(host) => Err(metadata(host)),
        false => Err(inner(host)),
    }
}

/// Whether a host is a metadata service by its own name or address, whatever it resolves to.
pub fn is_metadata(host: &Host) -> bool {
    match host {
        Host::Address(address) => kind(*address) == Kind::Metadata,
        Host::Name(name) => names::of(name) == Name::Metadata,
    }
}

/// Whether a network is a metadata service's one address.
pub fn is_metadata_alone(network: &IpNet) -> bool {
    network.prefix_len() == network.max_prefix_len() && kind(network.addr()) == Kind::Metadata
}

fn metadata(host: &Host) -> Refusal {
    let text = format!("{host} is a metadata service: it is never reached, and there is nothing to configure");
    Refusal::new(Why::PrivateAddress, text)
}

/// One text for every address that a name resolves to, inner or a metadata service: that is not the caller's to learn.
fn inner(host: &Host) -> Refusal {
    let is = if matches!(host, Host::Address(_)) { "is a" } else { "is at a" };
    Refusal::new(
        Why::PrivateAddress,
        format!(
            "{host} {is} private, local or reserved address: an operator can list its network in [policy] allow_private, \
             unless it is a metadata service"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Kind {
        kind(text.parse().unwrap())
    }

    #[test]
    fn metadata_services_are_known_in_every_disguise() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2002:a9fe:a9fe::",
            "2001:0:a9fe:a9fe::",
            "2001:0:1:2:3:4:5601:5601",
            "fe80::a9fe:a9fe",
            "::ffff:0:169.254.169.254",
            "fe80::5efe:169.254.169.254",
        ] {
            assert_eq!(of(text), Kind::Metadata, "{text}");
        }
    }

    #[test]
    fn what_is_not_out_in_the_world_is_inner() {
        for text in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.1",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:808:808::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2600::5efe:8.8.8.8",
        ] {
            assert_eq!(of(text), Kind::Inner, "{text}");
        }
    }

    #[test]
    fn the_neighbours_of_private_ranges_are_public() {
        for text in [
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "11.0.0.1",
            "9.255.255.255",
            "169.253.255.255",
            "169.255.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "1.1.1.1",
            "2606:4700::1111",
            "2001:200::1",
            "2a00::1",
        ] {
            assert_eq!(of(text), Kind::Public, "{text}");
        }
    }

    #[test]
    fn allow_private_opens_networks_but_never_a_metadata_service() {
        let everything = ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        assert!(may_reach([127, 0, 0, 1].into(), &everything));
        assert!(!may_reach([127, 0, 0, 1].into(), &["10.0.0.0/8".parse().unwrap()]));
        assert!(!may_reach([169, 254, 169, 254].into(), &everything));
        assert!(!may_reach("64:ff9b::a9fe:a9fe".parse().unwrap(), &everything));
        assert!(check_host(&Host::Name("metadata.google.internal".into()), &everything).is_err());
    }

    #[test]
    fn who_asks_for_a_metadata_service_is_not_sent_to_a_setting_that_cannot_help() {
        let text = |host: Host| check_host(&host, &[]).unwrap_err().text;
        let address = |text: &str| Host::Address(text.parse().unwrap());
        for host in [
            address("169.254.169.254"),
            address("::ffff:169.254.169.254"),
            address("fd00:ec2::254"),
            Host::Name("metadata.google.internal".into()),
            Host::Name("metadata".into()),
        ] {
            let text = text(host);
            assert!(
                text.ends_with("is a metadata service: it is never reached, and there is nothing to configure"),
                "{text}"
            );
        }
        assert!(text(address("10.0.0.1")).contains("list its network in [policy] allow_private"));
        // What a name resolves to is not told: the same words for a private address and a metadata service.
        let host = Host::Name("api.good.com".into());
        let resolved = |address: [u8; 4]| check_addresses(&host, &[address.into()], &[]).unwrap_err().text;
        assert_eq!(resolved([169, 254, 169, 254]), resolved([10, 0, 0, 1]));
    }

    #[test]
    fn one_inner_address_spoils_the_set_and_is_not_named() {
        let host = Host::Name("api.good.com".into());
        let refusal = check_addresses(&host, &[[8, 8, 8, 8].into(), [10, 1, 2, 3].into()], &[]).unwrap_err();
        assert_eq!(refusal.why, Why::PrivateAddress);
        assert!(!refusal.text.contains("10.1.2.3"), "{refusal}");
    }
}
