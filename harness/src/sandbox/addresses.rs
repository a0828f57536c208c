//! Who has which address. All come from 198.18.0.0/15, which RFC 2544 keeps for benchmarks, so that a
//! sandbox address never is the address of a real host.

use std::net::Ipv4Addr;

/// The controller's address on the bridge.
pub const CONTROLLER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);

/// Length of the network's prefix.
pub const PREFIX_LEN: u8 = 15;

/// Client addresses a third octet; see [`client_address`].
const CLIENTS_AN_OCTET: u16 = 250;

/// Address of node `n<number>`, numbered from 1 to 250: 198.18.0.number.
///
/// # Panics
/// If the number is out of range; scenario files are checked long before.
#[must_use]
pub fn node_address(number: u16) -> Ipv4Addr {
    assert!(
        (1..=250).contains(&number),
        "node numbers go from 1 to 250, not {number}"
    );
    Ipv4Addr::new(198, 18, 0, number as u8)
}

/// Address of helper host `s<number>`, numbered from 1 to 250: 198.18.254.number.
///
/// # Panics
/// If the number is out of range; scenario files are checked long before.
#[must_use]
pub fn helper_address(number: u16) -> Ipv4Addr {
    assert!(
        (1..=250).contains(&number),
        "helper numbers go from 1 to 250, not {number}"
    );
    Ipv4Addr::new(198, 18, 254, number as u8)
}

/// Address of client host `c<number>`, numbered from 1 to 60,000: 198.18.(1 + number/250).(1 + number%250).
///
/// # Panics
/// If the number is out of range; scenario files are checked long before.
#[must_use]
pub fn client_address(number: u16) -> Ipv4Addr {
    assert!(
        (1..=60_000).contains(&number),
        "client numbers go from 1 to 60000, not {number}"
    );
    Ipv4Addr::new(
        198,
        18,
        (1 + number / CLIENTS_AN_OCTET) as u8,
        (1 + number % CLIENTS_AN_OCTET) as u8,
    )
}

/// Hardware address that belongs to an address: locally administered, so that every host can know every
/// other one's without asking (ARP would be a variable of the experiment).
pub(super) fn hardware_address(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0xfe, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_are_distinct_and_in_the_range() {
        let nodes = (1..=250).map(node_address);
        let clients = (1..=60_000).map(client_address);
        let helpers = (1..=250).map(helper_address);
        let all: Vec<_> = nodes
            .chain(clients)
            .chain(helpers)
            .chain([CONTROLLER_ADDRESS])
            .collect();
        let network = u32::from(CONTROLLER_ADDRESS) >> (32 - PREFIX_LEN);
        assert!(
            all.iter()
                .all(|&a| u32::from(a) >> (32 - PREFIX_LEN) == network && a.octets()[3] != 255)
        );
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(client_address(1).to_string(), "198.18.1.2");
        assert_eq!(client_address(250).to_string(), "198.18.2.1");
    }
}
