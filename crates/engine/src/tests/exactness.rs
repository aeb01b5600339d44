//! Under load, whatever happens to a request, its answer is the one that it has alone: preempted, batched, spilled to
//! disk and back, run again beside a failure, stopped where weights have to be read, split between a device and the cores, drafted by another model or not, under
//! every policy.

use super::exact::{Preparing, beside_a_device};
use super::*;
use crate::fake_model::{FakeDevice, PANIC};
use proptest::prelude::*;

/// A client: how many letters, where its alphabet begins, how long an answer, who waits, when it comes, whether it goes.
#[derive(Clone, Debug)]
struct Client {
    prompt: usize,
    rotation: usize,
    output: u32,
    class: Class,
    after: u64,
    leaves: bool,
}

fn client() -> impl Strategy<Value = Client> {
    (1..150_usize, 0..26_usize, 1..40_u32, any::<bool>(), 0..3_u64, prop::bool::weighted(0.15)).prop_map(
        |(prompt, rotation, output, reactive, after, leaves)| Client {
            prompt,
            rotation,
            output,
            class: if reactive { Class::Reactive } else { Class::Proactive },
            after,
            leaves,
        },
    )
}

impl Client {
    fn request(&self) -> GenerateRequest {
        let mut prompt = letters("abcdefghijklmnopqrstuvwxyz").repeat(6);
        prompt.rotate_left(self.rotation);
        prompt.truncate(self.prompt);
        GenerateRequest { class: self.class, ..hashed(&prompt, self.output) }
    }
}

fn alone(request: GenerateRequest) -> Vec<TokenId> {
    Bench::new(FakeModel::new(192, 100)).answer(request).tokens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_answer_under_load_is_the_one_alone(
        clients in prop::collection::vec(client(), 1..12),
        policy in 0..8_usize,
        pages in 3..12_usize,
        spill_pages in prop::sample::select(vec![0_usize, 4, 100]),
        age in prop::sample::select(vec![0_u64, 2_000_000, 1_000_000_000]),
        device in prop::sample::select(vec![None, Some(FakeDevice::Works), Some(FakeDevice::Refuses)]),
        fails in any::<bool>(),
        misses in any::<bool>(),
        // Pages of a draft model: none is there, it has hardly room, or enough.
        draft in prop::sample::select(vec![None, Some(2_usize), Some(100)]),
    ) {
        let policy = PolicyName::ALL[policy];
        let setup = if device.is_some() { beside_a_device(Preparing::default()) } else { setup() };
        let setup = Setup { policy, spill_pages, age: Nanos(age), ..setup };
        let setup = match draft {
            None => setup,
            Some(_) => Setup { speculate: Method::DuetDraft, verify: Verify::All, ..setup },
        };
        let disk = misses.then_some(OnDisk { missing: 0.5, bytes_per_s: 1e9 });
        let setup = Setup { disk, ..setup };
        let model = FakeModel { device: device.unwrap_or(FakeDevice::Absent), ..FakeModel::new(192, pages) };
        let draft = draft.map(|pages| FakeModel::new(192, pages));
        let bench = Bench::drafting(model, draft, &setup, Default::default());
        let failing = fails.then(|| bench.start(background(request(&[TokenId(3), PANIC]))));
        let mut open = Vec::new();
        for client in &clients {
            std::thread::sleep(std::time::Duration::from_millis(client.after));
            let generation = bench.start(client.request());
            if client.leaves {
                generation.cancel();
            }
            open.push(generation);
        }
        for (client, generation) in clients.iter().zip(open) {
            let answer = answer(generation);
            let expected = alone(client.request());
            if answer.reason() == FinishReason::Cancelled {
                prop_assert!(client.leaves && expected.starts_with(&answer.tokens));
            } else {
                prop_assert_eq!(answer.tokens, expected, "{} {:?}", policy, client);
            }
        }
        if let Some(failing) = failing {
            prop_assert!(answer(failing).end.is_err(), "what fails alone fails");
        }
        // Everything that is still in memory is kept KV.
        let stats = bench.stats();
        prop_assert_eq!((stats.queued, stats.running), (0, 0));
        prop_assert!(stats.kv_pages_used <= pages);
    }
}
