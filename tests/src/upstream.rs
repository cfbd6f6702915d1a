//! A local HTTP service that records every request as it came, byte for byte.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Longest head of a request that is read.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest body that is read.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// Request line and headers, as sent.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The values of a header, in order.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// The body as text.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What the upstream answers.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers beside length and connection.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A JSON answer.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { status, headers, body: body.to_string().into_bytes() }
    }
}

type Respond = dyn Fn(&Received) -> Option<Answer> + Send + Sync;

/// The service; it ends when it is dropped.
pub struct Upstream {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Upstream {
    /// Answers every request as `respond` says; `None` leaves the caller waiting.
    pub async fn start(respond: impl Fn(&Received) -> Option<Answer> + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a free port")?;
        let address = listener.local_addr().context("a bound address")?;
        let received = Arc::default();
        let respond: Arc<Respond> = Arc::new(respond);
        let task = tokio::spawn(accept(listener, Arc::clone(&received), respond));
        Ok(Self { address, received, task })
    }

    /// Answers every request with the same.
    pub async fn answering(answer: Answer) -> Result<Self> {
        Self::start(move |_| Some(answer.clone())).await
    }

    /// `http://127.0.0.1:PORT`
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, received: Arc<Mutex<Vec<Received>>>, respond: Arc<Respond>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (received, respond) = (Arc::clone(&received), Arc::clone(&respond));
        // A broken connection is the caller's business: what came was recorded.
        tokio::spawn(async move {
            let _caller_left = converse(stream, &received, &respond).await;
        });
    }
}

async fn converse(mut stream: TcpStream, received: &Mutex<Vec<Received>>, respond: &Arc<Respond>) -> Result<()> {
    while let Some(request) = read_request(&mut stream).await? {
        let answer = respond(&request);
        received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let Some(answer) = answer else { std::future::pending().await };
        let mut head = format!("HTTP/1.1 {} Answer\r\ncontent-length: {}\r\n", answer.status, answer.body.len());
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&answer.body).await?;
    }
    Ok(())
}

async fn read_request(stream: &mut TcpStream) -> Result<Option<Received>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        anyhow::ensure!(bytes.len() < HEAD_BYTES_MAX, "a head without end");
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let mut request = Received {
        head: String::from_utf8_lossy(&bytes[..head_end]).into_owned(),
        body: bytes[head_end + 4..].to_vec(),
    };
    let length: usize = request.header("content-length").first().and_then(|text| text.parse().ok()).unwrap_or(0);
    anyhow::ensure!(length <= BODY_BYTES_MAX, "a body over the recorder's bound");
    while request.body.len() < length {
        if stream.read_buf(&mut request.body).await? == 0 {
            break;
        }
    }
    Ok(Some(request))
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
