//! A plain HTTP/1.1 client over TCP: small enough to leave a request half sent or a response half read.

use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// One connection with one request on it; dropping it hangs up.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// The head of a response, its body still to come.
pub(crate) struct Incoming {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
    text: String,
}

/// A whole response.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Connection {
    /// Sends a request. A body goes with a content length and type.
    pub(crate) async fn send(to: SocketAddr, head: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Self {
        let mut request = format!("{head} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            request += &format!("host: {to}\r\n");
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = body {
            request += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        request += "\r\n";
        let mut connection = Self::open(to).await;
        connection.write(request.as_bytes()).await;
        connection.write(body.unwrap_or_default()).await;
        connection
    }

    pub(crate) async fn open(to: SocketAddr) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(to).await.expect("the server listens")) }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }

    /// Waits until the server closes the connection, whatever it says before that.
    pub(crate) async fn end(mut self) {
        let mut rest = Vec::new();
        // Closed or reset, both are an end.
        let _ = self.stream.read_to_end(&mut rest).await;
    }

    /// All that the server says until it closes the connection.
    pub(crate) async fn rest(mut self) -> String {
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).await.expect("the server closes");
        rest
    }

    /// Waits for the head of an interim response, after which the real one is still to come.
    pub(crate) async fn interim(self) -> (u16, Self) {
        let Incoming { status, stream, .. } = self.head().await;
        (status, Self { stream })
    }

    /// Waits for the head of the response.
    pub(crate) async fn head(mut self) -> Incoming {
        let status_line = line(&mut self.stream).await;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {status_line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = line(&mut self.stream).await;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Incoming { status, headers, stream: self.stream, text: String::new() }
    }

    /// Waits for the whole response.
    pub(crate) async fn response(self) -> Response {
        let mut incoming = self.head().await;
        while incoming.read().await {}
        Response { status: incoming.status, headers: incoming.headers, body: incoming.text }
    }
}

impl Incoming {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The next server-sent event's data; `None` at the end of the body.
    pub(crate) async fn event(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let Some(data) = event.strip_prefix("data: ") else { continue };
                return Some(data.to_owned());
            }
            if !self.read().await {
                assert_eq!(self.text, "", "an event was cut off");
                return None;
            }
        }
    }

    /// The next server-sent event that has a name: the name and the data.
    pub(crate) async fn named_event(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let Some((name, data)) = event.split_once('\n') else { continue };
                let name = name.strip_prefix("event: ").expect("it has a name");
                return Some((name.to_owned(), data.strip_prefix("data: ").expect("it has data").to_owned()));
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// Waits until the server hangs up, whatever it sends before.
    pub(crate) async fn closed(mut self) {
        self.stream.read_to_end(&mut Vec::new()).await.expect("an orderly end");
    }

    /// Reads some more of the body.
    async fn read(&mut self) -> bool {
        let chunked = self.header("transfer-encoding") == Some("chunked");
        let length = match self.header("content-length") {
            _ if chunked => usize::from_str_radix(&line(&mut self.stream).await, 16).expect("a chunk's size"),
            Some(length) => length.parse::<usize>().expect("a length") - self.text.len(),
            None => 0,
        };
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).await.expect("the whole body comes");
        if chunked {
            line(&mut self.stream).await;
        }
        self.text += std::str::from_utf8(&bytes).expect("bodies are UTF-8");
        length > 0
    }
}

impl Response {
    /// One that nobody sent.
    pub(crate) fn of(status: u16, kind: &str, body: &str) -> Self {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        Self { status, headers, body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.expect("the server answers");
    line.truncate(line.trim_end().len());
    line
}
