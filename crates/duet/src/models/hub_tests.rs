//! The hub client against a small real HTTP server that misbehaves on purpose.

use super::*;
use crate::models::cache::Slot;
use crate::models::partial::hex;
use crate::models::source::Origin;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How the server treats one file.
#[derive(Clone)]
struct Behaviour {
    content: Vec<u8>,
    sha256: Option<String>,
    /// Bytes of body per connection before it is cut.
    cut: usize,
    ranges: bool,
}

/// One request as it came: its first line and its headers in lower case.
type Log = Arc<Mutex<Vec<(String, Vec<String>)>>>;

impl Behaviour {
    fn proper(content: &[u8]) -> Self {
        let sha256 = Some(hex(&Sha256::digest(content)));
        Self { content: content.to_vec(), sha256, cut: usize::MAX, ranges: true }
    }
}

/// Serves until the test process ends.
fn serve(behaviour: Behaviour) -> (Hub, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    let log = Log::default();
    let seen = Arc::clone(&log);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that hangs up early is part of the game.
            let _ = answer(stream.unwrap(), &behaviour, &seen);
        }
    });
    let mut hub = Hub::new(&endpoint, Some("secret".into()));
    hub.pause = Duration::ZERO;
    (hub, log)
}

fn answer(mut stream: TcpStream, behaviour: &Behaviour, log: &Log) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let headers: Vec<_> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let headers: Vec<_> = headers.into_iter().map(|line| line.to_ascii_lowercase()).collect();
    log.lock().unwrap().push((first.clone(), headers.clone()));
    let size = behaviour.content.len();
    if first.contains("/renamed/") {
        let location = first.split(' ').nth(1).unwrap_or_default().replace("/renamed/", "/owner/");
        return write!(
            stream,
            "HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    if !first.contains("/resolve/main/m") {
        return write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    if first.starts_with("HEAD") {
        let etag = behaviour.sha256.as_ref().map(|sum| format!("x-linked-etag: \"{sum}\"\r\n")).unwrap_or_default();
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: http://storage.invalid/x\r\n{etag}x-linked-size: {size}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let range = headers.iter().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok());
    let start: usize = range.filter(|_| behaviour.ranges).unwrap_or(0);
    let status = match start {
        0 => "200 OK".to_owned(),
        _ => format!("206 Partial Content\r\ncontent-range: bytes {start}-{}/{size}", size - 1),
    };
    let rest = &behaviour.content[start..];
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", rest.len())?;
    stream.write_all(&rest[..rest.len().min(behaviour.cut)])
}

fn fetch(hub: &Hub, origin: &str, pinned: Option<&str>, cache: &std::path::Path) -> Result<Vec<u8>, FetchError> {
    let origin = Origin::parse(origin).unwrap().unwrap();
    let slot = Slot::new(cache, &origin);
    let Origin::Hub(file) = &origin else { panic!("not a hub file") };
    let path = hub.fetch(file, pinned, &slot.lock(|| ()).unwrap())?;
    assert_eq!(slot.cached(), Some(path.clone()));
    Ok(fs::read(path).unwrap())
}

fn gets(log: &Log) -> Vec<Option<String>> {
    let range = |headers: &Vec<String>| headers.iter().find(|line| line.starts_with("range:")).cloned();
    let log = log.lock().unwrap();
    log.iter().filter(|(first, _)| first.starts_with("GET")).map(|(_, headers)| range(headers)).collect()
}

const ORIGIN: &str = "hf:owner/repo/m.gguf";

fn content() -> Vec<u8> {
    let mut content = b"GGUF".to_vec();
    content.extend((0..1_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8));
    content
}

#[test]
fn a_file_is_downloaded_verified_and_asked_for_with_the_token() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, log) = serve(Behaviour::proper(&content()));
    assert_eq!(fetch(&hub, ORIGIN, None, cache.path()).unwrap(), content());
    assert_eq!(gets(&log), [None]);
    assert!(log.lock().unwrap().iter().all(|(_, headers)| headers.contains(&"authorization: bearer secret".into())));
}

#[test]
fn the_hubs_sum_is_kept_beside_what_came() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, _) = serve(Behaviour::proper(&content()));
    fetch(&hub, ORIGIN, None, cache.path()).unwrap();
    let path = cache.path().join("models/hf/owner/repo/m.gguf");
    assert_eq!(verified::noted(&path), Some(hex(&Sha256::digest(content()))));
    assert!(crate::models::Check::begin(&path).finish().is_ok());
}

#[test]
fn what_the_disk_has_no_room_for_is_not_downloaded() {
    let cache = tempfile::tempdir().unwrap();
    let (mut hub, log) = serve(Behaviour::proper(&content()));
    hub.free_disk = |_| Some(Bytes(1_000_003));
    let refused = fetch(&hub, ORIGIN, None, cache.path()).unwrap_err();
    assert!(matches!(refused, FetchError::NoRoom { missing: Bytes(1_000_004), .. }), "{refused}");
    assert_eq!(gets(&log), Vec::<Option<String>>::new());
    // Of a download that broke off the rest has to fit.
    hub.free_disk = |_| Some(Bytes(1_000_000));
    let sum = hex(&Sha256::digest(content()));
    let slot = Slot::new(cache.path(), &Origin::parse(ORIGIN).unwrap().unwrap());
    Partial::resume(&slot.lock(|| ()).unwrap().target("m.gguf"), &sum).unwrap().append(&content()[..4]).unwrap();
    assert_eq!(fetch(&hub, ORIGIN, None, cache.path()).unwrap(), content());
}

/// Of a model's file, with more behind it than its tensors, and so larger than all memory that the tests give it.
fn behind(name: &str) -> (Vec<u8>, Weights) {
    let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let mut bytes = fs::read(path).unwrap();
    let weights = Weights::of(&tensors_described(&bytes).unwrap());
    bytes.resize(3 << 20, 0);
    (bytes, weights)
}

#[test]
fn what_memory_has_no_room_for_is_not_downloaded_unless_experts_may_stay_on_disk() {
    let cache = tempfile::tempdir().unwrap();
    let (bytes, weights) = behind("mixtral");
    let (mut hub, log) = serve(Behaviour::proper(&bytes));
    hub.memory = || MachineMemory { total: Some(Bytes(100)), available: None };
    let refused = fetch(&hub, ORIGIN, None, cache.path()).unwrap_err();
    assert!(matches!(refused, FetchError::NoMemory { needed, .. } if needed == weights.all), "{refused}");
    assert_eq!(gets(&log), [Some("range: bytes=0-1048575".into())], "its beginning is enough");
    assert!(weights.least() < Bytes(1 << 20) && weights.experts > Bytes(0), "{weights:?}");
    hub.memory = || MachineMemory { total: Some(Bytes(1 << 20)), available: None };
    assert_eq!(fetch(&hub, ORIGIN, None, cache.path()).unwrap(), bytes);
}

#[test]
fn all_parts_of_a_model_come_and_the_first_last() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, log) = serve(Behaviour::proper(&content()));
    let origin = Origin::parse("hf:owner/repo/m-00001-of-00003.gguf").unwrap().unwrap();
    let (slot, Origin::Hub(file)) = (Slot::new(cache.path(), &origin), &origin) else { panic!("not a hub file") };
    let first = hub.fetch(file, None, &slot.lock(|| ()).unwrap()).unwrap();
    assert!(first.ends_with("m-00001-of-00003.gguf") && slot.cached() == Some(first.clone()));
    let log = log.lock().unwrap();
    let asked: Vec<char> = log
        .iter()
        .filter(|(line, _)| line.starts_with("GET"))
        .filter_map(|(line, _)| line.split("m-0000").nth(1)?.chars().next())
        .collect();
    assert_eq!(asked, ['2', '3', '1']);
    for number in 1..=3 {
        assert!(first.with_file_name(format!("m-0000{number}-of-00003.gguf")).is_file());
    }
}

#[test]
fn a_renamed_repository_is_followed() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, _) = serve(Behaviour::proper(&content()));
    assert_eq!(fetch(&hub, "hf:renamed/repo/m.gguf", None, cache.path()).unwrap(), content());
}

#[test]
fn a_transfer_that_keeps_breaking_off_is_resumed_each_time() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, log) = serve(Behaviour { cut: 300_000, ..Behaviour::proper(&content()) });
    assert_eq!(fetch(&hub, ORIGIN, None, cache.path()).unwrap(), content());
    let ranges = gets(&log);
    assert_eq!(ranges.len(), 4);
    assert_eq!(ranges[1].as_deref(), Some("range: bytes=300000-"));
}

#[test]
fn what_arrived_is_kept_for_the_next_run() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, log) = serve(Behaviour { cut: 0, ..Behaviour::proper(&content()) });
    let error = fetch(&hub, ORIGIN, None, cache.path()).unwrap_err();
    assert!(matches!(error, FetchError::Interrupted { have: 0, want: 1_000_004, .. }), "{error}");
    assert_eq!(gets(&log).len(), 3);

    let sum = hex(&Sha256::digest(content()));
    let slot = Slot::new(cache.path(), &Origin::parse(ORIGIN).unwrap().unwrap());
    assert_eq!(slot.cached(), None);
    Partial::resume(&slot.lock(|| ()).unwrap().target("m.gguf"), &sum).unwrap().append(&content()[..777]).unwrap();
    let (hub, log) = serve(Behaviour::proper(&content()));
    assert_eq!(fetch(&hub, ORIGIN, None, cache.path()).unwrap(), content());
    assert_eq!(gets(&log), [Some("range: bytes=777-".into())]);
}

#[test]
fn a_server_without_ranges_starts_over() {
    let cache = tempfile::tempdir().unwrap();
    let sum = hex(&Sha256::digest(content()));
    let slot = Slot::new(cache.path(), &Origin::parse(ORIGIN).unwrap().unwrap());
    Partial::resume(&slot.lock(|| ()).unwrap().target("m.gguf"), &sum).unwrap().append(b"GGUF half").unwrap();
    let (hub, _) = serve(Behaviour { ranges: false, ..Behaviour::proper(&content()) });
    assert_eq!(fetch(&hub, ORIGIN, None, cache.path()).unwrap(), content());
}

#[test]
fn wrong_bytes_are_discarded() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, _) = serve(Behaviour { sha256: Some("ab".repeat(32)), ..Behaviour::proper(&content()) });
    let error = fetch(&hub, ORIGIN, None, cache.path()).unwrap_err();
    assert!(matches!(error, FetchError::Checksum { .. }), "{error}");
    let slot = cache.path().join("models/hf/owner/repo");
    let left: Vec<_> = fs::read_dir(slot).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn another_file_than_the_pinned_one_is_not_even_downloaded() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, log) = serve(Behaviour::proper(&content()));
    let error = fetch(&hub, ORIGIN, Some(&"ab".repeat(32)), cache.path()).unwrap_err();
    assert!(matches!(error, FetchError::Checksum { .. }), "{error}");
    assert!(gets(&log).is_empty());
}

#[test]
fn missing_files_missing_sums_and_missing_servers_are_told_apart() {
    let cache = tempfile::tempdir().unwrap();
    let (hub, _) = serve(Behaviour { sha256: None, ..Behaviour::proper(&content()) });
    assert!(matches!(fetch(&hub, "hf:owner/repo/other.gguf", None, cache.path()), Err(FetchError::NotFound)));
    assert!(matches!(fetch(&hub, ORIGIN, None, cache.path()), Err(FetchError::NoChecksum)));

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hub = Hub::new(&format!("http://{closed}"), None);
    assert!(matches!(fetch(&hub, ORIGIN, None, cache.path()), Err(FetchError::Unreachable { .. })));
}
