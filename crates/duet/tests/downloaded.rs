//! A model that came from a hub and has changed since: every start that packs it notices.

mod support;

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{Run, duet, run};

/// A hub with one file, which answers until the test ends.
fn hub(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let content = Arc::new(content);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that hangs up has what it wants.
            let _ = answer(stream.unwrap(), &content);
        }
    });
    endpoint
}

fn answer(mut stream: TcpStream, content: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    let size = content.len();
    if first.starts_with("HEAD") {
        let mut sum = String::new();
        Sha256::digest(content).iter().for_each(|byte| write!(sum, "{byte:02x}").unwrap());
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: http://storage.invalid/x\r\nx-linked-etag: \"{sum}\"\r\nx-linked-size: {size}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n")?;
    stream.write_all(content)
}

const NAME: &str = "hf:owner/repo/m.gguf";

/// A cache in which the hub's file is.
struct Downloaded {
    cache: tempfile::TempDir,
    endpoint: String,
    path: PathBuf,
}

impl Downloaded {
    fn of(model: &Path) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let endpoint = hub(fs::read(model).unwrap());
        let pulled = run(duet(cache.path(), &["pull", NAME]).env("HF_ENDPOINT", &endpoint));
        assert_eq!(pulled.status, 0, "{pulled:#?}");
        Self { path: pulled.stdout.trim_end().into(), cache, endpoint }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        run(duet(self.cache.path(), arguments).env("HF_ENDPOINT", &self.endpoint))
    }

    /// Changes a bit of a weight, and neither the file's length nor its time, as a disk may.
    fn flip_a_bit(&self) {
        let time = fs::metadata(&self.path).unwrap().modified().unwrap();
        let mut bytes = fs::read(&self.path).unwrap();
        let place = bytes.len() - 40;
        bytes[place] ^= 1;
        fs::write(&self.path, bytes).unwrap();
        File::options().write(true).open(&self.path).unwrap().set_modified(time).unwrap();
    }

    fn packed(&self) -> Vec<PathBuf> {
        let Ok(files) = fs::read_dir(self.cache.path().join("weights")) else { return Vec::new() };
        files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|of| of == "packed"))
            .collect()
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../model/tests/fixtures/{name}.gguf"))
}

const CHANGED: [&str; 3] = ["m.gguf", "is not what was downloaded", "delete it"];

#[test]
fn weights_that_are_packed_in_memory_are_those_that_came() {
    let downloaded = Downloaded::of(&fixture("golden_llama"));
    let answer = ["run", NAME, "hi", "--max-tokens", "1", "--weight-cache", "0"];
    let answered = downloaded.run(&answer);
    assert_eq!(answered.status, 0, "{answered:#?}");
    downloaded.flip_a_bit();
    downloaded.run(&answer).assert_refused(&CHANGED);
    downloaded.run(&["serve", NAME, "--port", "0"]).assert_refused(&CHANGED);
    // Back as it was, it is the model again.
    downloaded.flip_a_bit();
    assert_eq!(downloaded.run(&answer).stdout, answered.stdout);
}

#[test]
fn a_model_for_embeddings_is_the_one_that_came() {
    let downloaded = Downloaded::of(&fixture("golden_bert_mean"));
    let embed = ["embed", NAME, "the one"];
    assert_eq!(downloaded.run(&embed).status, 0);
    downloaded.flip_a_bit();
    downloaded.run(&embed).assert_refused(&CHANGED);
}

#[test]
fn weights_that_are_packed_into_a_file_are_those_that_came() {
    let Some(model) = duet_testing::path(duet_testing::Need::Model) else { return };
    let downloaded = Downloaded::of(&model);
    let answer = ["run", NAME, "hi", "--max-tokens", "1"];
    downloaded.flip_a_bit();
    downloaded.run(&answer).assert_refused(&CHANGED);
    assert_eq!(downloaded.packed(), [] as [PathBuf; 0], "a later start would map it");
    downloaded.flip_a_bit();
    let answered = downloaded.run(&answer);
    assert_eq!((answered.status, downloaded.packed().len()), (0, 1), "{answered:#?}");
}
