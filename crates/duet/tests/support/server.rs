//! A server under test.

use super::{duet, signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// `duet serve` on a free port; killed if the test fails.
pub(crate) struct Server {
    /// The process.
    pub(crate) child: Child,
    /// Where it listens.
    pub(crate) port: u16,
    /// Held open so that the server may go on writing.
    stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    pub(crate) fn start(cache: &Path, model: &str) -> Self {
        Self::start_with(cache, model, &[])
    }

    pub(crate) fn start_with(cache: &Path, model: &str, arguments: &[&str]) -> Self {
        let mut command = duet(cache, &[&["serve", model, "--port", "0"], arguments].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let port = loop {
            let start = said.len();
            let count = stderr.read_line(&mut said).unwrap();
            assert!(count > 0, "the server ended: {said}");
            if let Some((_, address)) = said[start..].split_once("http://127.0.0.1:") {
                let digits: String = address.chars().take_while(char::is_ascii_digit).collect();
                break digits.parse().unwrap();
            }
        };
        Self { child, port, stderr }
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.send("GET", path, "", "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        self.send("POST", path, "", body)
    }

    /// The response to a request with further `headers`, each of which ends its line.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let Self { port, .. } = self;
        let content = match body.len() {
            0 => String::new(),
            length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
        };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
        self.exchange(&format!("{head}{content}{headers}\r\n{body}"))
    }

    fn exchange(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    /// The exit status of one that has ended by itself, and what it said since it began to listen; one that has not is told to end.
    pub(crate) fn ended(&mut self) -> (Option<i32>, String) {
        signal(&self.child, libc::SIGTERM);
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }

    pub(crate) fn terminate(&mut self) -> Option<i32> {
        self.end_with(libc::SIGTERM)
    }

    /// The exit status after a signal; none if the signal killed it.
    pub(crate) fn end_with(&mut self, number: libc::c_int) -> Option<i32> {
        signal(&self.child, number);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
