//! The one way out of a blob's own network: a listener at the address that the blob is told, handed to the service, which
//! carries what comes in to the broker's door. The network around it has nothing else: a loopback, and no route.

use std::{
    fs,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    mount::mount_bind,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
        send, sendmsg, socket_with,
    },
    pipe::{PipeFlags, pipe_with},
};

/// The loopback is the first interface of every network.
const LOOPBACK: u32 = 1;
/// Bytes of the kernel's answer to a message: a head, an error, and the message's own head.
const ANSWER_BYTES: usize = 64;
/// Where in it the error is: after its head.
const ERROR_AT: usize = 16;
/// Bytes of the head of a message.
const HEAD_BYTES: usize = 16;
/// Where the system looks names up without asking anybody.
const HOSTS: &str = "/etc/hosts";
/// The file with a blob's own names, for a moment, in its own directory.
const OWN_HOSTS: &str = "hosts";

/// Opens the door in the network that this process has just entered, and gives it to the service by the socket that stands in
/// for stdin, together with the end of a pipe to write the input to. What is left is the other end: the blob's stdin.
pub fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    bring_up()?;
    let ip = address.ip();
    if !ip.is_loopback() && !ip.is_unspecified() {
        add(ip)?;
    }
    let listener = TcpListener::bind(address)?;
    let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let given = [listener.as_fd(), input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut files = SendAncillaryBuffer::new(&mut space);
    if !files.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::Error::other("two files do not fit into a message"));
    }
    sendmsg(io::stdin(), &[IoSlice::new(&[0])], &mut files, SendFlags::NOSIGNAL)?;
    Ok(stdin)
}

/// Makes a name mean this network's own address, for whoever sees this process's mounts.
pub fn call_it(name: &str) -> io::Result<()> {
    let names = format!("127.0.0.1 localhost\n::1 localhost\n127.0.0.1 {name}\n");
    let mut file = fs::File::create_new(OWN_HOSTS)?;
    io::Write::write_all(&mut file, names.as_bytes())?;
    let mounted = mount_bind(OWN_HOSTS, HOSTS);
    // It stays where it was mounted.
    fs::remove_file(OWN_HOSTS)?;
    Ok(mounted?)
}

fn bring_up() -> io::Result<()> {
    let up = libc::IFF_UP.cast_unsigned().to_ne_bytes();
    let kind_of_nothing = [0; 4];
    ask(libc::RTM_NEWLINK, 0, &[&kind_of_nothing, &LOOPBACK.to_ne_bytes(), &up, &up])
}

/// Gives the loopback one more address, and no network behind it.
fn add(ip: IpAddr) -> io::Result<()> {
    let (family, bits, octets) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, 32, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, 128, ip.octets().to_vec()),
    };
    let family = u8::try_from(family).map_err(io::Error::other)?;
    let flags = u8::try_from(libc::IFA_F_NODAD).map_err(io::Error::other)?;
    let bytes = u16::try_from(4 + octets.len()).map_err(io::Error::other)?.to_ne_bytes();
    let local = [&bytes[..], &libc::IFA_LOCAL.to_ne_bytes(), &octets].concat();
    ask(libc::RTM_NEWADDR, libc::NLM_F_CREATE, &[&[family, bits, flags, 0], &LOOPBACK.to_ne_bytes(), &local])
}

/// Asks the kernel for a change of this network, and hears whether it was made.
fn ask(kind: u16, flags: i32, parts: &[&[u8]]) -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let body = parts.concat();
    let flags = u16::try_from(flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK).map_err(io::Error::other)?;
    let length = u32::try_from(HEAD_BYTES + body.len()).map_err(io::Error::other)?;
    let (number, from) = (1_u32.to_ne_bytes(), 0_u32.to_ne_bytes());
    let head = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &number, &from].concat();
    send(&socket, &[head, body].concat(), SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    recv(&socket, &mut answer, RecvFlags::empty())?;
    let code: [u8; 4] = answer[ERROR_AT..ERROR_AT + 4].try_into().map_err(io::Error::other)?;
    match i32::from_ne_bytes(code) {
        0 => Ok(()),
        negative => Err(io::Error::from_raw_os_error(-negative)),
    }
}
