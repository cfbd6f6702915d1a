//! The service's side of a blob's own door: takes the listener that the jail opened in the blob's network, and carries what
//! comes in there to the broker's door and back. It leads there alone, whoever it was that connected.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    net::TcpListener as StdListener,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    process::Stdio,
    time::Duration,
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::{
    io::{Interest, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream, UnixStream, unix::pipe},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Connections of one blob at once; further ones wait until one has ended.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of one direction of one connection that are on their way.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long the broker's door may take to answer a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Pause after the system refuses a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where a blob's listener comes through.
pub struct Doorway {
    jail: UnixStream,
    target: (String, u16),
}

impl Doorway {
    /// A way to a host and port, and what the jail takes for its stdin.
    pub fn to(target: (String, u16)) -> io::Result<(Self, Stdio)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self { jail: UnixStream::from_std(ours)?, target }, Stdio::from(OwnedFd::from(theirs))))
    }

    /// Waits until the jail has opened its door, and carries from then on until the handle is dropped. Answers where the
    /// blob's input is written to; an error is a jail that ended before, which says why by itself.
    pub async fn open(self) -> io::Result<(pipe::Sender, AbortOnDropHandle<()>)> {
        let [listener, input] = self.jail.async_io(Interest::READABLE, || two_files(&self.jail)).await?;
        let listener = StdListener::from(listener);
        listener.set_nonblocking(true)?;
        let carrying = carry(TcpListener::from_std(listener)?, self.target);
        Ok((pipe::Sender::from_owned_fd(input)?, AbortOnDropHandle::new(tokio::spawn(carrying))))
    }
}

fn two_files(socket: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut given = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut given, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in given.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    files.try_into().map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

async fn carry(listener: TcpListener, target: (String, u16)) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((blob, _)) => drop(connections.spawn(pass(blob, target.clone()))),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// One connection, until both sides have said all. Where the broker's door does not answer, it is closed.
async fn pass(mut blob: TcpStream, target: (String, u16)) {
    let Ok(Ok(mut door)) = timeout(CONNECT_MAX, TcpStream::connect(target)).await else { return };
    let _slower = (blob.set_nodelay(true), door.set_nodelay(true));
    let _either_side_broke_off = copy_bidirectional_with_sizes(&mut blob, &mut door, BUFFER_BYTES, BUFFER_BYTES).await;
}
