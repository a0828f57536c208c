//! What the switch reads of a frame: whom it is for, and which ports it is about. Pure.

/// Length of the virtio header before every frame (`struct virtio_net_hdr`, linux/virtio_net.h). It
/// carries the offloads, and is passed on as it is.
pub const HEADER_LEN: usize = 10;

/// Length of an Ethernet header.
pub(super) const ETHERNET_LEN: usize = 14;

/// The hardware address that a frame is for; `None` when it is too short to be one.
pub(super) fn destination(packet: &[u8]) -> Option<[u8; 6]> {
    let frame = packet.get(HEADER_LEN..)?;
    if frame.len() < ETHERNET_LEN {
        return None;
    }
    frame[..6].try_into().ok()
}

/// True for broadcast and multicast.
pub(super) fn is_group(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 1
}

/// Source and destination port of a TCP or UDP packet over IPv4; `None` for anything else, fragments
/// after the first included.
pub(super) fn ports(packet: &[u8]) -> Option<(u16, u16)> {
    let frame = packet.get(HEADER_LEN..)?;
    if frame.get(12..14)? != [0x08, 0x00] {
        return None;
    }
    let ip = frame.get(ETHERNET_LEN..)?;
    let header_len = usize::from(ip.first()? & 0x0f) * 4;
    let fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x1fff;
    let is_tcp_or_udp = matches!(ip.get(9)?, 6 | 17);
    if fragment != 0 || !is_tcp_or_udp {
        return None;
    }
    let ports = ip.get(header_len..header_len + 4)?;
    Some((
        u16::from_be_bytes([ports[0], ports[1]]),
        u16::from_be_bytes([ports[2], ports[3]]),
    ))
}

/// Flips one bit behind the Ethernet header; `place` is a share of what is there.
pub(super) fn flip(packet: &mut [u8], place: f64, bit: u8) {
    let start = HEADER_LEN + ETHERNET_LEN;
    let Some(body) = packet.get_mut(start..) else {
        return;
    };
    let index = (place * body.len() as f64) as usize;
    if let Some(byte) = body.get_mut(index) {
        *byte ^= 1 << (bit & 7);
    }
}

/// A TCP packet over IPv4 for the tests: only what is looked at is right.
#[cfg(test)]
pub(super) fn tcp(to: [u8; 6], from: [u8; 6], ports: (u16, u16), body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_LEN];
    packet.extend(to);
    packet.extend(from);
    packet.extend([0x08, 0x00]);
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[9] = 6;
    packet.extend(ip);
    packet.extend(ports.0.to_be_bytes());
    packet.extend(ports.1.to_be_bytes());
    packet.extend([0; 16]);
    packet.extend(body);
    packet
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_addresses_and_ports() {
        let packet = tcp([2, 0, 0, 0, 0, 9], [2; 6], (1234, 2380), b"x");
        assert_eq!(destination(&packet), Some([2, 0, 0, 0, 0, 9]));
        assert_eq!(ports(&packet), Some((1234, 2380)));
        let mut arp = packet.clone();
        arp[HEADER_LEN + 13] = 6;
        assert_eq!(ports(&arp), None);
        let mut fragment = packet;
        fragment[HEADER_LEN + ETHERNET_LEN + 7] = 1;
        assert_eq!(ports(&fragment), None);
        assert!(is_group([0xff; 6]) && !is_group([2; 6]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_safely(mut bytes in prop::collection::vec(any::<u8>(), 0..80), place in 0.0..1.0_f64, bit: u8) {
            let _ = (destination(&bytes), ports(&bytes));
            let before = bytes.clone();
            flip(&mut bytes, place, bit);
            let bits: u32 = before.iter().zip(&bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
            let has_body = before.len() > HEADER_LEN + ETHERNET_LEN;
            prop_assert_eq!(bits, u32::from(has_body));
            let head = before.len().min(HEADER_LEN + ETHERNET_LEN);
            prop_assert_eq!(&before[..head], &bytes[..head]);
        }
    }
}
