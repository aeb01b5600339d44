//! Downloads from a Hugging Face hub, over HTTPS.
//!
//! The hub is asked for the file's size and SHA-256 first, and where that is more than all memory for the beginning of the file,
//! which says what of it are experts that may stay on disk; the transfer resumes where an earlier one stopped and is
//! verified against that sum (and against the pinned one, if there is one) before the file is used. `HF_ENDPOINT`
//! names another hub, `HF_TOKEN` says who asks.

use super::cache::SlotLock;
use super::fetch::FetchError;
use super::fits::{check_disk, check_weights};
use super::partial::{self, BUFFER_BYTES, Partial};
use super::source::{HubFile, base_name};
use super::verified;
use crate::disk::free_disk;
use crate::progress::Progress;
use crate::weights::Weights;
use duet_engine::MachineMemory;
use duet_model::gguf::tensors_described;
use duet_types::Bytes;
use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Response, header};
use ureq::{Agent, Body};

/// A hub and how to talk to it.
#[derive(Debug)]
pub(crate) struct Hub {
    endpoint: String,
    token: Option<String>,
    agent: Agent,
    pause: Duration,
    /// Bytes of the disk of a folder that are free, if the system tells.
    free_disk: fn(&Path) -> Option<Bytes>,
    memory: fn() -> MachineMemory,
}

/// What the hub says about a file.
#[derive(Debug, PartialEq, Eq)]
struct Metadata {
    size: u64,
    sha256: String,
}

impl Hub {
    /// The hub that the environment names.
    pub(crate) fn from_env() -> Self {
        let set = |name| env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
        Self::new(set("HF_ENDPOINT").as_deref().unwrap_or(ENDPOINT_DEFAULT), set("HF_TOKEN"))
    }

    fn new(endpoint: &str, token: Option<String>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("duet/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: token.map(|token| token.trim().to_owned()),
            agent: config.into(),
            pause: RETRY_PAUSE,
            free_disk,
            memory: MachineMemory::now,
        }
    }

    /// Downloads `file` into the locked slot, and the other parts before it: where the first is, all are.
    pub(crate) fn fetch(
        &self,
        file: &HubFile,
        pinned: Option<&str>,
        slot: &SlotLock<'_>,
    ) -> Result<PathBuf, FetchError> {
        // One that an earlier run has brought was verified then.
        let is_missing = |part: &HubFile| !slot.target(base_name(&part.file)).is_file();
        let parts: Vec<HubFile> = file.other_parts().into_iter().filter(is_missing).collect();
        let mut asked = Vec::with_capacity(parts.len() + 1);
        for (part, pinned) in parts.iter().map(|part| (part, None)).chain([(file, pinned)]) {
            let metadata = self.metadata(&path_of(part))?;
            if let Some(pinned) = pinned.filter(|pinned| **pinned != metadata.sha256) {
                return Err(FetchError::Checksum { expected: pinned.to_owned(), actual: metadata.sha256 });
            }
            asked.push((part, metadata));
        }
        let missing = |(part, metadata): &(&HubFile, Metadata)| {
            metadata.size.saturating_sub(partial::left_of(&slot.target(base_name(&part.file)), &metadata.sha256))
        };
        let folder = slot.target("");
        check_disk(&folder, Bytes(asked.iter().map(missing).sum()), (self.free_disk)(&folder))?;
        self.check_memory(&asked)?;
        let mut path = folder;
        for (part, metadata) in &asked {
            path = self.fetch_file(part, metadata, slot)?;
        }
        Ok(path)
    }

    /// That the machine has memory for a model whose files are larger than that.
    fn check_memory(&self, parts: &[(&HubFile, Metadata)]) -> Result<(), FetchError> {
        let Some(total) = (self.memory)().total else { return Ok(()) };
        let files: u64 = parts.iter().map(|(_, metadata)| metadata.size).sum();
        if Bytes(files) <= total {
            return Ok(());
        }
        // One whose beginning cannot be had says what is wrong when all of it is asked for.
        let weights: Option<Vec<Weights>> = parts.iter().map(|(part, _)| self.weights(&path_of(part))).collect();
        weights.map_or(Ok(()), |parts| check_weights(parts.into_iter().fold(Weights::default(), Weights::and), total))
    }

    /// What the beginning of a file says of its weights.
    fn weights(&self, path: &str) -> Option<Weights> {
        BEGINNINGS.into_iter().find_map(|len| {
            let request = self.authorized(self.agent.get(format!("{}{path}", self.endpoint)));
            let mut response = request.header(header::RANGE, format!("bytes=0-{}", len - 1)).call().ok()?;
            let mut beginning = Vec::new();
            // A server without ranges sends all of it.
            response.body_mut().as_reader().take(len).read_to_end(&mut beginning).ok()?;
            tensors_described(&beginning).ok().map(|tensors| Weights::of(&tensors))
        })
    }

    fn fetch_file(&self, file: &HubFile, metadata: &Metadata, slot: &SlotLock<'_>) -> Result<PathBuf, FetchError> {
        let path = path_of(file);
        let mut partial = Partial::resume(&slot.target(base_name(&file.file)), &metadata.sha256)?;
        let progress = Progress::bytes("downloading", base_name(&file.file), Bytes(metadata.size));
        self.transfer(&path, metadata.size, &mut partial, &progress)?;
        let path = partial.commit(Some(&metadata.sha256))?;
        progress.finish("downloaded");
        // What it is to have each time it is packed.
        verified::note(&path, &metadata.sha256);
        Ok(path)
    }

    /// Asks for size and sum. The hub gives them beside a redirect to its storage, which therefore is not followed;
    /// a redirect within the hub (a renamed repository) is.
    fn metadata(&self, path: &str) -> Result<Metadata, FetchError> {
        let mut path = path.to_owned();
        for _ in 0..RENAMES_MAX {
            let url = format!("{}{path}", self.endpoint);
            let request = self.agent.head(&url).config().max_redirects(0).build();
            let response = self.authorized(request).call().map_err(|error| self.unreachable(&error))?;
            let headers = response.headers();
            let status = response.status();
            let location = header_text(headers, "location");
            match location.filter(|location| location.starts_with('/') && headers.get(LINKED_ETAG).is_none()) {
                Some(location) if status.is_redirection() => path = location.to_owned(),
                _ if status.is_success() || status.is_redirection() => {
                    return Metadata::read(headers).ok_or(FetchError::NoChecksum);
                }
                _ => return Err(status_error(status.as_u16())),
            }
        }
        Err(FetchError::Status { status: 310 })
    }

    /// Fills `partial` up to `size` bytes. A broken transfer is resumed; it is given up after several tries in a row
    /// that brought nothing.
    fn transfer(&self, path: &str, size: u64, partial: &mut Partial, progress: &Progress) -> Result<(), FetchError> {
        let mut longest = partial.len();
        let mut fruitless = 0;
        while partial.len() < size {
            let reason = match self.request_rest(path, partial)? {
                Ok(mut response) => copy_body(&mut response, size, partial, progress)?,
                Err(reason) => reason,
            };
            if partial.len() >= size {
                break;
            }
            fruitless = if partial.len() > longest { 0 } else { fruitless + 1 };
            longest = longest.max(partial.len());
            if fruitless == FRUITLESS_MAX {
                return Err(FetchError::Interrupted { have: partial.len(), want: size, reason });
            }
            tracing::info!(have = partial.len(), want = size, reason, "transfer broke off, resuming");
            std::thread::sleep(self.pause * fruitless);
        }
        if partial.len() > size {
            partial.restart()?;
            return Err(FetchError::TooLong { want: size });
        }
        Ok(())
    }

    /// Asks for what is missing. The inner error is one that trying again may cure.
    fn request_rest(&self, path: &str, partial: &mut Partial) -> Result<Result<Response<Body>, String>, FetchError> {
        let have = partial.len();
        let mut request = self.authorized(self.agent.get(format!("{}{path}", self.endpoint)));
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) => return Ok(Err(error.to_string())),
        };
        match response.status().as_u16() {
            206 if range_start(response.headers()) == Some(have) => {}
            // A server without ranges starts over, and so do we.
            200 => partial.restart()?,
            206 | 416 => {
                partial.restart()?;
                return Ok(Err("the server could not resume".into()));
            }
            status @ (429 | 500..) => return Ok(Err(format!("HTTP {status}"))),
            status => return Err(status_error(status)),
        }
        Ok(Ok(response))
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> FetchError {
        FetchError::Unreachable { host: self.endpoint.clone(), reason: error.to_string() }
    }
}

impl Metadata {
    /// Large files carry the sum in `X-Linked-Etag`; a mirror that serves them itself, in `ETag`.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let sum = |name| {
            let tag = header_text(headers, name)?.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
            (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(tag)
        };
        let size = |name| header_text(headers, name)?.parse().ok();
        match sum(LINKED_ETAG) {
            Some(sha256) => Some(Self { size: size("x-linked-size").or_else(|| size("content-length"))?, sha256 }),
            None => Some(Self { sha256: sum("etag")?, size: size("content-length")? }),
        }
    }
}

/// Where a hub has a file.
fn path_of(file: &HubFile) -> String {
    format!("/{}/{}/resolve/{}/{}", file.owner, file.repo, file.revision, file.file)
}

const ENDPOINT_DEFAULT: &str = "https://huggingface.co";
const LINKED_ETAG: &str = "x-linked-etag";
/// A machine without a route to the hub should learn so at once and try the next source.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longer than a slow storage host thinks, short enough that a dead line is noticed while the person still watches.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const FRUITLESS_MAX: u32 = 3;
const RENAMES_MAX: usize = 5;
/// Bytes that are asked for to read a file's header, which has the model's vocabulary: less first.
const BEGINNINGS: [u64; 3] = [1 << 20, 16 << 20, 64 << 20];

/// Appends the body until it ends or breaks; returns why it did. Stops once there is more than `size`.
fn copy_body(
    response: &mut Response<Body>,
    size: u64,
    partial: &mut Partial,
    progress: &Progress,
) -> Result<String, FetchError> {
    let mut reader = response.body_mut().as_reader();
    let mut buffer = vec![0; BUFFER_BYTES];
    while partial.len() <= size {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => partial.append(&buffer[..count])?,
            Err(error) => return Ok(error.to_string()),
        }
        progress.set(Bytes(partial.len()));
    }
    Ok("the server closed the connection".into())
}

fn status_error(status: u16) -> FetchError {
    match status {
        404 => FetchError::NotFound,
        401 | 403 => FetchError::Refused { status },
        status => FetchError::Status { status },
    }
}

/// The first byte of `Content-Range: bytes FIRST-LAST/SIZE`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = header_text(headers, "content-range")?.trim().strip_prefix("bytes")?;
    range.trim_start().split('-').next()?.parse().ok()
}

fn header_text<'headers>(headers: &'headers HeaderMap, name: &str) -> Option<&'headers str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
