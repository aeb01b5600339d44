//! Answers of a real model: what happens to KV in the virtual world happens to tables, and kernels run.
//!
//! What is on disk in virtual time stays in memory here: its contents are the same, and time is not what is measured.
//! That the world keeps its promises (see [`Answers`]) is asserted: a pass that computes other rows than the scheduler
//! thinks would be a wrong answer.

use super::RealModel;
use super::sequence::Sequence;
use duet_kernels::crew::Scoped;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvPool, KvTable, PAGE_TOKENS};
use duet_scheduler::{Generated, Kernel, Member, PassId, Source, Yields};
use duet_sim::{Answers, Client};
use duet_types::{RequestId, TokenId, Tokens};
use std::collections::BTreeMap;

/// All requests of a scenario and their passes.
#[derive(Debug)]
pub(super) struct RealAnswers<'a> {
    real: RealModel<'a>,
    pool: KvPool,
    /// By the number of the request.
    sequences: Vec<Sequence>,
    passes: BTreeMap<PassId, UnderWay>,
    /// Buffers that no pass uses.
    spare: Vec<Activations>,
}

/// A pass and whose rows it carries, in their order.
#[derive(Debug)]
struct UnderWay {
    pass: Pass,
    members: Vec<RequestId>,
}

impl<'a> RealAnswers<'a> {
    /// One prompt for each client, which the model can read, and answers that its context has room for.
    pub(super) fn new(real: RealModel<'a>, clients: &[Client], prompts: Vec<Vec<TokenId>>) -> Self {
        let requests = prompts.into_iter().zip(clients);
        let sequences: Vec<_> = requests.map(|(prompt, client)| Sequence::new(prompt, client.output)).collect();
        // As if nothing was ever shared or forgotten: how much memory there is, is the scheduler's to mind. Pages that
        // are not written take none.
        let pages: usize = sequences.iter().map(|sequence| sequence.len_max().div_ceil(PAGE_TOKENS) + 1).sum();
        let pool = real.model.kv_pool(real.kv_format, Tokens((pages * PAGE_TOKENS) as u32));
        Self { real, pool, sequences, passes: BTreeMap::new(), spare: Vec::new() }
    }

    /// What was generated for a request.
    pub(super) fn generated(&self, request: usize) -> &[TokenId] {
        self.sequences[request].generated()
    }

    fn sequence(&mut self, request: RequestId) -> &mut Sequence {
        &mut self.sequences[request.0 as usize]
    }

    /// Threads are started for each kernel, which a few rows are not worth.
    fn crew(&self, rows: usize) -> Scoped {
        Scoped { threads: if rows < ROWS_SHARED { 1 } else { self.real.threads } }
    }

    /// Buffers for `rows` rows.
    fn activations(&mut self, rows: usize) -> Activations {
        match self.spare.iter().position(|activations| activations.rows() >= rows) {
            Some(fits) => self.spare.swap_remove(fits),
            None => {
                // In place of one that was too small, so that there are never more than passes at once.
                self.spare.pop();
                Activations::new(self.real.model, rows.next_power_of_two())
            }
        }
    }

    fn take_back(&mut self, members: &[RequestId], (activations, tables): (Activations, Vec<KvTable>)) {
        self.spare.push(activations);
        for (&request, table) in members.iter().zip(tables) {
            self.sequence(request).attach(table);
        }
    }

    /// The likeliest token after each of some rows of a pass.
    fn choose(&self, pass: &mut Pass, rows: &[usize]) -> Vec<TokenId> {
        let tops = self.real.model.top_k(pass, rows, 1, &self.crew(rows.len()));
        // A model whose logits are all no numbers has no likeliest token; it says the first.
        tops.iter().map(|top| top.first().map_or(TokenId(0), |&(token, _)| token)).collect()
    }
}

impl Answers for RealAnswers<'_> {
    /// The longest common beginning; of equals, the last, as the engine has it. O(requests × prompt).
    fn shared(&self, request: RequestId, _: &Client) -> Option<(RequestId, Tokens)> {
        let prompt = self.sequences[request.0 as usize].prompt();
        let common = |(index, sequence): (usize, &Sequence)| {
            let same = sequence.kept().iter().zip(prompt).take_while(|(kept, wanted)| kept == wanted).count();
            (Tokens(same as u32), RequestId(index as u64))
        };
        let (tokens, of) = self.sequences.iter().enumerate().map(common).max()?;
        (tokens > Tokens::ZERO).then_some((of, tokens))
    }

    fn placed(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) {
        match source {
            None => {
                let table = self.pool.table();
                let sequence = self.sequence(request);
                if sequence.table().is_none() {
                    sequence.attach(table);
                }
            }
            Some(Source::TakenOver(of)) => {
                let table = self.sequence(of).take_kept().expect("what is taken over was kept");
                self.sequence(request).attach(table);
            }
            Some(Source::Forked(of)) => {
                let kept = self.sequence(of).kept_table().expect("what is forked was kept");
                let table = kept.fork(cached).expect("there is a page for every position");
                self.sequence(request).attach(table);
            }
        }
        let len = self.sequence(request).table().map(KvTable::len);
        assert_eq!(len, Some(cached), "positions of {request} that are in place");
    }

    fn begins(&mut self, pass: PassId, members: &[Member]) {
        let rows: Tokens = members.iter().map(Member::len).sum();
        let activations = self.activations(rows.as_usize());
        let segment = |member: &Member| {
            let rows = self.sequence(member.request).take_rows(member.rows.start, member.rows.end);
            let (table, tokens) = rows.expect("the rows of a member follow what it has");
            Segment::new(table, tokens)
        };
        let segments = members.iter().map(segment).collect();
        let begun = Pass::new(self.real.model, activations, segments).map_err(|refused| refused.error);
        let begun = begun.expect("prompts were checked, and there is a page for every position");
        let members = members.iter().map(|member| member.request).collect();
        self.passes.insert(pass, UnderWay { pass: begun, members });
    }

    fn ran(&mut self, kernel: &Kernel) {
        let rows = kernel.rows.start as usize..kernel.rows.end as usize;
        let (model, crew) = (self.real.model, self.crew(rows.len()));
        // Its other part failed, and the pass was undone while it ran.
        let Some(UnderWay { pass, .. }) = self.passes.get_mut(&kernel.pass) else { return };
        for index in kernel.nodes.clone() {
            model.run_node(pass, model.order().node(index), rows.clone(), &crew);
        }
    }

    fn complete(&mut self, pass: PassId, members: &[Member]) -> Vec<Generated> {
        let UnderWay { mut pass, members: order } = self.passes.remove(&pass).expect("a pass completes once");
        let yielding = yielding_rows(members);
        let rows: Vec<usize> = yielding.iter().map(|&(_, row)| row).collect();
        let tokens = if rows.is_empty() { Vec::new() } else { self.choose(&mut pass, &rows) };
        self.take_back(&order, pass.finish());
        let generated = yielding.into_iter().zip(tokens).map(|((request, _), token)| {
            let ends_turn = self.real.model.tokenizer().is_end_of_generation(token);
            Generated::one(request, self.sequence(request).push(token, ends_turn))
        });
        generated.collect()
    }

    fn undone(&mut self, pass: PassId) {
        if let Some(UnderWay { pass, members }) = self.passes.remove(&pass) {
            self.take_back(&members, pass.abandon());
        }
    }

    fn discarded(&mut self, request: RequestId) {
        self.sequence(request).forget();
    }

    fn kept(&mut self, request: RequestId) {
        self.sequence(request).keep();
    }

    fn dropped(&mut self, request: RequestId) {
        self.sequence(request).forget();
    }
}

/// The last row of each member that yields a token, in the pass.
fn yielding_rows(members: &[Member]) -> Vec<(RequestId, usize)> {
    let mut end = 0;
    let mut rows = Vec::new();
    for member in members {
        end += member.len().as_usize();
        if member.yields == Yields::Token {
            rows.push((member.request, end - 1));
        }
    }
    rows
}

/// Rows from which on more threads are faster than one.
const ROWS_SHARED: usize = 16;
