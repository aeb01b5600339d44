//! The API without a model, to try clients against: `cargo run -p duet-server --example fake_server -- 127.0.0.1:8080`.

#[path = "../tests/api/fake.rs"]
#[expect(dead_code, reason = "faults and counters are for the tests")]
mod fake;

use std::sync::Arc;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        println!("http://{}", listener.local_addr()?);
        let config = duet_server::ServerConfig { loopback_only: true, ..Default::default() };
        duet_server::serve(listener, Arc::new(fake::Fake::default()), config, std::future::pending()).await
    })
}
